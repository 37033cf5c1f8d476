//! The whole engine on the memory store. What is delivered is counted here, not by the engine.

mod delegate;
mod faults;
mod idle;
mod near;
mod resume;
mod store_errors;

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use proptest::prelude::*;

use delegate::Delegate;

use super::*;
use crate::members::{FieldColumns, Members, Part};
use crate::plan::{LastBatch, Rank};
use crate::store::{FaultPlan, MemoryConfig, MemoryStore, NewObject, Table, WriteRequest};

const DATASET: Id = Id::new([7; 16]);

fn hashed(what: &str, index: u64) -> [u8; 32] {
    *blake3::hash(format!("{what}{index}").as_bytes()).as_bytes()
}

fn id(what: &str, index: u64) -> Id {
    Id::from_slice(&hashed(what, index)[..16]).unwrap()
}

/// What a field of a sample holds: derived from its index, so that anyone can check it.
fn content(field: usize, index: u64, most: u64) -> Bytes {
    let seed = hashed("content", index * 10 + field as u64);
    let length = u64::from_le_bytes(seed[..8].try_into().unwrap()) % (most + 1);
    let length = usize::try_from(length).unwrap();
    seed.iter().copied().cycle().take(length).collect()
}

/// A store with `n` samples of two fields; every third sample has its mask in an object of its own.
struct World {
    n: u64,
    most: u64,
    name: String,
}

static WORLDS: AtomicU64 = AtomicU64::new(0);

impl World {
    fn new(n: u64, most: u64) -> Self {
        let name = format!("engine-{}", WORLDS.fetch_add(1, Ordering::Relaxed));
        let world = Self { n, most, name };
        world.write();
        world
    }

    /// Puts every sample into the store, also those that were lost.
    fn write(&self) {
        let objects = (0..self.n).flat_map(|i| {
            let [image, mask] = [0, 1].map(|f| (Arc::from(FIELDS[f]), content(f, i, self.most)));
            if i % 3 == 0 {
                let apart = |what, field| NewObject {
                    object_id: id(what, i),
                    fields: vec![field],
                };
                vec![apart("object", image), apart("mask", mask)]
            } else {
                vec![NewObject {
                    object_id: id("object", i),
                    fields: vec![image, mask],
                }]
            }
        });
        let write = WriteRequest {
            table: Table::Samples,
            dataset_id: DATASET,
            objects: objects.collect(),
        };
        let store = self.store(FaultPlan::default());
        process::runtime()
            .unwrap()
            .block_on(store.write(write))
            .unwrap();
    }

    fn store(&self, faults: FaultPlan) -> Arc<dyn Store> {
        Arc::new(MemoryStore::open(MemoryConfig {
            name: self.name.clone(),
            faults: Some(faults),
        }))
    }

    fn members(&self, fields: &[usize]) -> Members {
        let half = self.n / 2;
        let parts = [0..half, half..self.n]
            .into_iter()
            .map(|range| self.part(fields, range))
            .collect();
        Members::new(fields.iter().map(|f| FIELDS[*f].into()).collect(), parts).unwrap()
    }

    fn part(&self, fields: &[usize], range: std::ops::Range<u64>) -> Part {
        let column = |value: &dyn Fn(u64) -> u64| -> Bytes {
            range.clone().flat_map(|i| value(i).to_le_bytes()).collect()
        };
        let ids = |name: &dyn Fn(u64) -> Id| -> Bytes {
            range.clone().flat_map(|i| *name(i).as_bytes()).collect()
        };
        let of_field = |field: usize| FieldColumns {
            object_ids: ids(&|i| {
                let is_apart = field == 1 && i % 3 == 0;
                id(if is_apart { "mask" } else { "object" }, i)
            }),
            sizes: column(&|i| content(field, i, self.most).len() as u64),
            checksums: column(&|i| crate::checksum::xxh3(&content(field, i, self.most))),
        };
        Part {
            ids: ids(&|i| id("sample", i)),
            fields: fields.iter().map(|f| of_field(*f)).collect(),
        }
    }

    fn config(&self, batch_size: u64) -> EngineConfig {
        let rank = Rank::new(0, 1).unwrap();
        let mut config = EngineConfig::new(DATASET, self.members(&[0, 1]), batch_size, rank);
        config.is_shuffled = true;
        config.store_wait = Duration::from_secs(20);
        config
    }

    /// Samples come as they are numbered.
    fn in_order_config(&self, batch_size: u64) -> EngineConfig {
        let mut config = self.config(batch_size);
        config.is_in_order = true;
        config.is_shuffled = false;
        config
    }

    /// Looks at every row: id, position and bytes belong together. Returns (position, valid).
    fn check(&self, batch: &Batch) -> Vec<(u64, bool)> {
        for (row, position) in batch.positions.iter().enumerate() {
            let found = Id::from_slice(&batch.ids[row * 16..row * 16 + 16]).unwrap();
            assert_eq!(found, id("sample", *position));
            for field in &batch.fields {
                let index = FIELDS
                    .iter()
                    .position(|name| **name == *field.name)
                    .unwrap();
                let bytes = match &field.content {
                    Content::Arena { block, offsets } => {
                        let place = |row: usize| usize::try_from(offsets[row]).unwrap();
                        block.to_vec()[place(row)..place(row + 1)].to_vec()
                    }
                    Content::List(samples) => samples[row].to_vec(),
                };
                assert_eq!(bytes, content(index, *position, self.most));
            }
        }
        let valid = batch.valid.iter().copied();
        batch.positions.iter().copied().zip(valid).collect()
    }
}

const FIELDS: [&str; 2] = ["image", "mask"];

fn next(engine: &Engine) -> Result<Option<Batch>, EngineError> {
    let patience = Instant::now() + Duration::from_secs(30);
    let wait = || {
        assert!(
            Instant::now() < patience,
            "no batch: {:?}",
            engine.stats.gauges
        );
        Ok::<(), Infallible>(())
    };
    engine.next_batch(wait).map_err(|error| match error {
        NextError::Engine(error) => error,
        NextError::Interrupted(never) => match never {},
    })
}

fn wait_until(engine: &Engine, what: &str, mut is_so: impl FnMut(&EngineSnapshot) -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let snapshot = engine.snapshot().unwrap();
        if is_so(&snapshot) {
            return;
        }
        assert!(Instant::now() < patience, "not {what}: {snapshot:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All batches of an epoch, checked and acknowledged.
fn epoch(world: &World, engine: &Engine, epoch: u64) -> Vec<Vec<(u64, bool)>> {
    engine.start_epoch(epoch).unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = next(engine).unwrap() {
        assert_eq!((batch.epoch, batch.step), (epoch, batches.len() as u64));
        batches.push(world.check(&batch));
        engine.ack(batch.seq).unwrap();
    }
    assert_eq!(batches.len() as u64, engine.steps());
    batches
}

fn delays(longest_ms: f64) -> FaultPlan {
    FaultPlan {
        delay_ms: (0.0, longest_ms),
        ..FaultPlan::default()
    }
}

fn policies() -> impl Strategy<Value = LastBatch> {
    prop_oneof![
        Just(LastBatch::Drop),
        Just(LastBatch::Partial),
        Just(LastBatch::Pad)
    ]
}

#[derive(Debug, Clone)]
struct Case {
    n: u64,
    world_size: u64,
    batch_size: u64,
    last_batch: LastBatch,
    is_in_order: bool,
    max_displacement: u64,
    window_bytes: u64,
    prefetch_bytes: u64,
    is_shuffled: bool,
    breaks: Vec<u64>,
    faults: FaultPlan,
}

fn cases() -> impl Strategy<Value = Case> {
    let shape = (1_u64..90, 1_u64..5, 1_u64..17, policies());
    let order = (any::<bool>(), any::<bool>(), 1_u64..4);
    let limits = (1_u64..5_000, 900_u64..8_000);
    let faults = (any::<u64>(), 0.0..4.0_f64, 0.0..0.1_f64, 0.0..0.2_f64);
    let breaks = prop::collection::vec(0_u64..6, 0..3);
    (shape, order, limits, faults, breaks).prop_map(|(shape, order, limits, faults, breaks)| Case {
        n: shape.0,
        world_size: shape.1,
        batch_size: shape.2,
        last_batch: shape.3,
        is_in_order: order.0,
        is_shuffled: order.1,
        max_displacement: order.2,
        window_bytes: limits.0,
        prefetch_bytes: limits.1,
        breaks,
        faults: FaultPlan {
            seed: faults.0,
            delay_ms: (0.0, faults.1),
            slow_share: faults.2,
            slow_ms: 15.0,
            unavailable_share: faults.3,
            faulty_reads: Some(2),
            ..FaultPlan::default()
        },
    })
}

/// Breaks off some epochs, then counts one whole epoch over all ranks.
fn play(case: &Case) -> Vec<Vec<Vec<(u64, bool)>>> {
    let world = World::new(case.n, 400);
    let store = world.store(case.faults.clone());
    (0..case.world_size)
        .map(|rank| {
            let mut config = world.config(case.batch_size);
            config.rank = Rank::new(rank, case.world_size).unwrap();
            config.last_batch = case.last_batch;
            config.is_in_order = case.is_in_order;
            config.is_shuffled = case.is_shuffled;
            config.max_displacement = case.max_displacement;
            config.window_bytes = Some(case.window_bytes);
            config.prefetch_bytes = case.prefetch_bytes;
            let engine = Engine::new(Arc::clone(&store), config).unwrap();
            for (number, steps) in (0..).zip(&case.breaks) {
                engine.start_epoch(number).unwrap();
                for _ in 0..*steps {
                    if let Some(batch) = next(&engine).unwrap() {
                        assert_eq!(batch.epoch, number);
                        world.check(&batch);
                    }
                }
            }
            let first = case.breaks.len() as u64;
            let batches = epoch(&world, &engine, first);
            // A batch may go over the budget alone; then its sources and its copy are held.
            let largest = 2 * case.batch_size * (800 + 256);
            let peak = engine.stats.gauges.snapshot().peak_held_bytes;
            assert!(peak <= case.prefetch_bytes + largest, "{peak}");
            batches
        })
        .collect()
}

proptest! {
    #![proptest_config(crate::soak::cases(40, 2_000))]

    #[test]
    fn every_id_is_delivered_exactly_once(case in cases()) {
        let ranks = play(&case);
        let steps: HashSet<usize> = ranks.iter().map(Vec::len).collect();
        prop_assert_eq!(steps.len(), 1);
        let mut times = BTreeMap::<u64, u32>::new();
        for (position, _) in ranks.iter().flatten().flatten().filter(|row| row.1) {
            *times.entry(*position).or_default() += 1;
        }
        prop_assert!(times.values().all(|t| *t == 1), "{:?}", times);
        let rows = ranks.iter().flatten().map(Vec::len);
        match case.last_batch {
            LastBatch::Drop => {
                prop_assert!(rows.clone().all(|rows| rows as u64 == case.batch_size));
                let dropped = case.n - times.len() as u64;
                prop_assert!(dropped < case.batch_size * case.world_size);
            }
            LastBatch::Pad => {
                prop_assert!(rows.clone().all(|rows| rows as u64 == case.batch_size));
                prop_assert_eq!(times.len() as u64, case.n);
            }
            LastBatch::Partial => prop_assert_eq!(times.len() as u64, case.n),
        }
        if case.is_in_order {
            prop_assert_eq!(ranks, play(&case));
        }
    }
}

#[test]
fn a_batch_kept_over_epochs_keeps_its_bytes() {
    let world = World::new(40, 3000);
    let engine = Engine::new(world.store(delays(1.0)), world.config(8)).unwrap();
    let mut kept = Vec::new();
    for number in 0..4 {
        engine.start_epoch(number).unwrap();
        while let Some(batch) = next(&engine).unwrap() {
            kept.push(batch);
        }
    }
    assert_eq!(kept.len(), 20);
    drop(engine);
    for batch in &kept {
        world.check(batch);
    }
}

#[test]
fn blocks_are_used_again() {
    let world = World::new(200, 3000);
    let engine = Engine::new(world.store(delays(0.5)), world.config(8)).unwrap();
    // What fits into the budget may all have been copied before the first batch is dropped.
    for number in 0..5 {
        epoch(&world, &engine, number);
    }
    let stats = engine.snapshot().unwrap().pool;
    assert!(stats.reused > 0, "{stats:?}");
}

#[test]
fn the_next_epoch_is_read_ahead_and_taken_over() {
    let world = World::new(30, 300);
    let engine = Engine::new(world.store(delays(1.0)), world.config(4)).unwrap();
    epoch(&world, &engine, 0);
    let requests = || engine.stats.counters.snapshot().requests;
    let patience = Instant::now() + Duration::from_secs(10);
    while requests() < 80 && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(requests(), 80, "two epochs of 30 samples in 40 objects");
    engine.start_epoch(1).unwrap();
    let first = next(&engine).unwrap().unwrap();
    assert_eq!((first.epoch, first.step), (1, 0));
    assert_eq!(engine.stats.counters.snapshot().discarded, 0);
    engine.start_epoch(7).unwrap();
    assert_eq!(epoch(&world, &engine, 7).concat().len(), 30);
}

#[test]
fn the_next_epoch_is_asked_for_while_a_straggler_of_this_one_is_on_its_way() {
    let world = World::new(20, 300);
    let permits = Arc::new(tokio::sync::Semaphore::new(0));
    let mut store = Delegate::new(world.store(delays(0.5)));
    store.held = Some((id("object", 1), Arc::clone(&permits)));
    let engine = Engine::new(Arc::new(store), world.config(4)).unwrap();
    engine.start_epoch(0).unwrap();
    // 20 samples in 27 objects, and all of the next epoch.
    wait_until(&engine, "read ahead", |now| now.counters.requests == 54);
    permits.add_permits(2);
    assert_eq!(epoch(&world, &engine, 0).concat().len(), 20);
    assert_eq!(epoch(&world, &engine, 1).concat().len(), 20);
    assert_eq!(engine.stats.counters.snapshot().discarded, 0);
}

#[test]
fn every_epoch_read_ahead_is_taken_over() {
    let world = World::new(60, 300);
    let engine = Engine::new(world.store(delays(1.0)), world.config(4)).unwrap();
    for number in 0..3 {
        assert_eq!(epoch(&world, &engine, number).concat().len(), 60);
    }
    let counters = engine.stats.counters.snapshot();
    assert_eq!(counters.discarded, 0);
    assert!(counters.requests <= 4 * 80, "{counters:?}");
}

#[test]
fn a_snapshot_of_many_lanes_is_quick() {
    use crate::lanes::{LaneStats, Meter};
    let world = World::new(20, 100);
    let mut store = Delegate::new(world.store(delays(0.0)));
    let meter = Meter::new(Instant::now());
    let lane = LaneStats {
        node: ([10, 0, 0, 1], 9042).into(),
        state: "open",
        reading: meter.reading(),
        hedged: 0,
        answer_times: meter.answer_times(),
        patience: None,
        shard: None,
    };
    store.lanes = vec![lane; 64];
    let engine = Engine::new(Arc::new(store), world.config(4)).unwrap();
    epoch(&world, &engine, 0);
    let quickest = (0..200)
        .map(|_| {
            let started = Instant::now();
            let snapshot = engine.snapshot().unwrap();
            let taken = started.elapsed();
            assert_eq!((snapshot.lanes.len(), snapshot.counters.samples), (64, 20));
            assert_eq!(snapshot.gauges.prefetch_bytes, 256 << 20);
            taken
        })
        .min();
    // 50 microseconds are promised; the slack is for a debug build on a busy machine.
    assert!(quickest < Some(Duration::from_micros(150)), "{quickest:?}");
}

#[test]
fn without_read_ahead_an_epoch_asks_for_itself_only() {
    let world = World::new(30, 300);
    let mut config = world.config(4);
    config.is_next_epoch_prefetched = false;
    let engine = Engine::new(world.store(delays(0.0)), config).unwrap();
    epoch(&world, &engine, 0);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(engine.stats.counters.snapshot().requests, 40);
}

#[test]
fn starting_an_untouched_epoch_again_changes_nothing() {
    let world = World::new(20, 100);
    let engine = Engine::new(world.store(delays(0.0)), world.config(4)).unwrap();
    engine.start_epoch(3).unwrap();
    engine.start_epoch(3).unwrap();
    assert_eq!(epoch(&world, &engine, 3).concat().len(), 20);
    assert_eq!(engine.stats.counters.snapshot().discarded, 0);
}

#[test]
fn samples_larger_than_the_window_go_one_by_one() {
    let world = World::new(12, 5000);
    let mut config = world.config(3);
    config.window_bytes = Some(1);
    let engine = Engine::new(world.store(delays(1.0)), config).unwrap();
    assert_eq!(epoch(&world, &engine, 0).concat().len(), 12);
    let largest = engine.config.members.largest().1;
    let peak = engine.stats.gauges.snapshot().peak_inflight_bytes;
    assert!(peak <= largest, "{peak} in flight");
}

#[test]
fn a_batch_larger_than_the_budget_still_comes() {
    let world = World::new(60, 400);
    for is_in_order in [false, true] {
        let mut config = world.config(30);
        config.prefetch_bytes = 900;
        config.is_in_order = is_in_order;
        let engine = Engine::new(world.store(delays(1.0)), config).unwrap();
        assert_eq!(epoch(&world, &engine, 0).concat().len(), 60);
    }
}

#[test]
fn a_window_that_nobody_set_grows_with_the_delay_up_to_the_budget() {
    let world = World::new(1500, 6000);
    let far = || FaultPlan {
        delay_ms: (30.0, 30.0),
        ..FaultPlan::default()
    };
    let peak_of = |prefetch_bytes| {
        let mut config = world.config(16);
        config.window_bytes = None;
        config.prefetch_bytes = prefetch_bytes;
        let engine = Engine::new(world.store(far()), config).unwrap();
        assert_eq!(epoch(&world, &engine, 0).concat().len(), 1500);
        let gauges = engine.stats.gauges.snapshot();
        let slack = prefetch_bytes / 10;
        assert!(
            gauges.peak_held_bytes <= prefetch_bytes + slack,
            "{gauges:?}"
        );
        gauges.peak_inflight_bytes
    };
    let peak = peak_of(64 << 20);
    assert!(peak > 3 << 19, "{peak} bytes in flight at most");
    assert!(peak_of(1 << 20) <= 1 << 20);
}

#[test]
fn no_fields_give_ids_without_a_single_read() {
    let world = World::new(50, 100);
    let mut config = world.config(8);
    config.members = world.members(&[]);
    let engine = Engine::new(world.store(delays(0.0)), config).unwrap();
    assert_eq!(epoch(&world, &engine, 0).concat().len(), 50);
    assert_eq!(engine.stats.counters.snapshot().requests, 0);
}

#[test]
fn fields_of_one_object_are_read_in_one_request() {
    let world = World::new(9, 100);
    let mut config = world.config(3);
    config.is_next_epoch_prefetched = false;
    let engine = Engine::new(world.store(delays(0.0)), config).unwrap();
    epoch(&world, &engine, 0);
    assert_eq!(engine.stats.counters.snapshot().requests, 6 + 3 * 2);
}

fn missing(share: f64) -> FaultPlan {
    FaultPlan {
        missing_share: share,
        ..delays(0.5)
    }
}

#[test]
fn an_unreadable_sample_is_named_and_a_new_epoch_tries_again() {
    let world = World::new(20, 100);
    let engine = Engine::new(world.store(missing(1.0)), world.config(4)).unwrap();
    engine.start_epoch(0).unwrap();
    let error = next(&engine).unwrap_err();
    let EngineError::Sample { seq: 0, sample, .. } = &error else {
        panic!("{error:?}")
    };
    assert!((0..20).any(|i| id("sample", i) == sample.sample_id));
    let text = error.to_string();
    assert!(text.contains(&sample.sample_id.to_string()), "{text}");
    assert!(
        text.contains("field") && text.contains("asked 1 times"),
        "{text}"
    );
    assert!(next(&engine).is_err(), "of the next batch");
    engine.start_epoch(0).unwrap();
    assert!(next(&engine).is_err());
    assert!(engine.stats.counters.snapshot().errors >= 2);
}

#[test]
fn what_contradicts_the_members_is_corrupt() {
    let world = World::new(6, 100);
    let mut part = world.part(&[0], 0..6);
    part.fields[0].checksums = Bytes::from(vec![1; 48]);
    let mut config = world.config(2);
    config.members = Members::new(vec!["image".into()], vec![part]).unwrap();
    config.is_next_epoch_prefetched = false;
    let engine = Engine::new(world.store(delays(0.0)), config).unwrap();
    engine.start_epoch(0).unwrap();
    let text = next(&engine).unwrap_err().to_string();
    assert!(text.contains("the split says 0101010101010101"), "{text}");
    assert!(
        text.contains("read 2 times"),
        "asked again at a quorum: {text}"
    );
}

#[test]
fn a_store_that_is_away_is_waited_for_and_then_reported() {
    let world = World::new(6, 100);
    let away = FaultPlan {
        unavailable_share: 1.0,
        ..delays(0.0)
    };
    let mut config = world.config(2);
    config.store_wait = Duration::from_millis(300);
    let engine = Engine::new(world.store(away), config).unwrap();
    let started = Instant::now();
    engine.start_epoch(0).unwrap();
    let text = next(&engine).unwrap_err().to_string();
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert!(text.contains("failed after"), "{text}");
}

#[test]
fn skipped_samples_use_up_their_slots() {
    let world = World::new(60, 100);
    let mut config = world.config(10);
    config.on_error = OnError::Skip;
    config.max_failed_share = 1.0;
    let engine = Engine::new(world.store(missing(0.3)), config).unwrap();
    let batches = epoch(&world, &engine, 0);
    assert_eq!(batches.len(), 6);
    let failed: HashSet<Id> = engine
        .failures()
        .unwrap()
        .iter()
        .filter(|failure| failure.epoch == 0)
        .map(|failure| failure.sample_id)
        .collect();
    assert!(!failed.is_empty());
    let read: HashSet<Id> = batches.concat().iter().map(|r| id("sample", r.0)).collect();
    assert!(read.is_disjoint(&failed));
    assert_eq!(read.len() + failed.len(), 60);
}

#[test]
fn replaced_samples_are_flagged_repeats() {
    let world = World::new(60, 100);
    let mut config = world.config(10);
    config.on_error = OnError::Replace;
    config.max_failed_share = 1.0;
    let engine = Engine::new(world.store(missing(0.3)), config).unwrap();
    let batches = epoch(&world, &engine, 0);
    assert!(batches.iter().all(|batch| batch.len() == 10));
    let replaced = batches.concat().iter().filter(|row| !row.1).count();
    assert!(replaced > 0);
    let valid: HashSet<u64> = batches
        .concat()
        .iter()
        .filter(|r| r.1)
        .map(|r| r.0)
        .collect();
    assert_eq!(valid.len() + replaced, 60);
    assert!(batches.concat().iter().all(|row| valid.contains(&row.0)));
}

#[test]
fn too_many_failures_raise() {
    let world = World::new(100, 100);
    for on_error in [OnError::Skip, OnError::Replace] {
        let mut config = world.config(10);
        config.on_error = on_error;
        config.max_failed_share = 0.05;
        let engine = Engine::new(world.store(missing(0.3)), config).unwrap();
        engine.start_epoch(0).unwrap();
        let error = loop {
            match next(&engine) {
                Ok(batch) => assert!(batch.is_some(), "the epoch ended"),
                Err(error) => break error,
            }
        };
        assert!(
            matches!(error, EngineError::TooManyFailures { .. }),
            "{error}"
        );
    }
}

#[test]
fn an_epoch_of_which_nothing_can_be_read_raises() {
    let world = World::new(5, 100);
    let mut config = world.config(2);
    config.on_error = OnError::Skip;
    config.max_failed_share = 1.0;
    let engine = Engine::new(world.store(missing(1.0)), config).unwrap();
    engine.start_epoch(0).unwrap();
    let error = loop {
        match next(&engine) {
            Ok(batch) => assert!(batch.unwrap().is_empty()),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, EngineError::TooManyFailures { failed: 5, .. }),
        "{error}"
    );
}

#[test]
fn closing_does_not_wait_for_slow_reads() {
    let world = World::new(300, 100);
    let slow = FaultPlan {
        delay_ms: (20_000.0, 20_000.0),
        ..FaultPlan::default()
    };
    let engine = Arc::new(Engine::new(world.store(slow), world.config(4)).unwrap());
    engine.start_epoch(0).unwrap();
    let waiting = {
        let engine = Arc::clone(&engine);
        std::thread::spawn(move || next(&engine))
    };
    while engine.stats.gauges.snapshot().inflight_samples < 300 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let started = Instant::now();
    engine.close();
    assert!(started.elapsed() < Duration::from_secs(6));
    assert!(matches!(waiting.join().unwrap(), Err(EngineError::Closed)));
    assert!(matches!(engine.start_epoch(1), Err(EngineError::Closed)));
    engine.close();
}

#[test]
fn the_caller_may_stop_waiting() {
    let world = World::new(3, 100);
    let engine = Engine::new(world.store(delays(60_000.0)), world.config(2)).unwrap();
    engine.start_epoch(0).unwrap();
    let result = engine.next_batch(|| Err("enough"));
    assert!(matches!(result, Err(NextError::Interrupted("enough"))));
}

#[test]
fn misuse_is_refused_with_the_reason() {
    let world = World::new(5, 100);
    let store = world.store(delays(0.0));
    let refused = |change: &dyn Fn(&mut EngineConfig)| {
        let mut config = world.config(2);
        change(&mut config);
        Engine::new(Arc::clone(&store), config)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(&|c| c.batch_size = 0).contains("batch_size is 0"));
    assert!(refused(&|c| c.window_bytes = Some(0)).contains("window_bytes is 0"));
    assert!(refused(&|c| c.max_displacement = 0).contains("max_displacement is 0"));
    assert!(refused(&|c| c.max_displacement = 1 << 63).contains("at most 2**63 - 1"));
    assert!(refused(&|c| c.idle = Duration::ZERO).contains("idle is 0"));
    assert!(refused(&|c| c.max_failed_share = 1.5).contains("between 0 and 1"));
    let small = refused(&|c| c.prefetch_bytes = 10);
    assert!(small.contains("more than prefetch_bytes (10)"), "{small}");
    let engine = Engine::new(store, world.config(2)).unwrap();
    assert!(matches!(next(&engine), Err(EngineError::NotStarted)));
    assert!(matches!(engine.ack(0), Err(EngineError::UnknownBatch(_))));
}

#[test]
fn a_panic_in_the_store_becomes_an_error() {
    let world = World::new(5, 100);
    let mut store = Delegate::new(world.store(delays(0.0)));
    store.is_broken = true;
    let store = Arc::new(store);
    let engine = Engine::new(store, world.config(2)).unwrap();
    engine.start_epoch(0).unwrap();
    let text = next(&engine).unwrap_err().to_string();
    assert!(text.contains("broken on purpose"), "{text}");
    engine.close();
}

#[test]
fn samples_without_fields_are_read_ahead_no_further_than_the_budget() {
    let world = World::new(20_000, 1);
    let mut config = world.config(10);
    config.members = world.members(&[]);
    config.prefetch_bytes = 64 << 10;
    let engine = Engine::new(world.store(FaultPlan::default()), config).unwrap();
    engine.start_epoch(0).unwrap();
    let mut seen = std::collections::HashSet::new();
    while let Some(batch) = next(&engine).unwrap() {
        seen.extend(
            world
                .check(&batch)
                .into_iter()
                .map(|(position, _)| position),
        );
        let snapshot = engine.snapshot().unwrap();
        let ahead = snapshot.gauges.ready_batches * 10 + snapshot.gauges.arrived_samples;
        assert!(ahead <= 256, "{ahead} samples are held");
        assert!(snapshot.gauges.peak_held_bytes <= 64 << 10);
    }
    assert_eq!(seen.len(), 20_000);
}

#[test]
fn a_wait_ends_at_once_when_it_is_interrupted() {
    let world = World::new(20, 60);
    let far_away = FaultPlan {
        delay_ms: (20_000.0, 20_000.0),
        ..FaultPlan::default()
    };
    let engine = Engine::new(world.store(far_away), world.config(4)).unwrap();
    engine.start_epoch(0).unwrap();
    let started = Instant::now();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| next(&engine).unwrap().is_none());
        std::thread::sleep(Duration::from_millis(100));
        engine.interrupt().unwrap();
        assert!(waiting.join().unwrap());
    });
    assert!(next(&engine).unwrap().is_none(), "nor is there a next one");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn after_an_interruption_the_next_start_goes_on() {
    let world = World::new(20, 60);
    let engine = Engine::new(world.store(delays(0.5)), world.config(4)).unwrap();
    engine.start_epoch(0).unwrap();
    for number in [0, 0, 3] {
        engine.interrupt().unwrap();
        assert!(next(&engine).unwrap().is_none());
        assert_eq!(epoch(&world, &engine, number).concat().len(), 20);
    }
}

#[test]
fn sizes_that_no_memory_can_hold_are_refused_or_end_in_a_clear_error() {
    let world = World::new(4, 60);
    let mut config = world.config(1 << 40);
    config.last_batch = LastBatch::Pad;
    let error = Engine::new(world.store(delays(0.0)), config).unwrap_err();
    assert!(error.to_string().contains("batch_size is"), "{error}");

    let sizes: Bytes = (0..4).flat_map(|_| (1_u64 << 60).to_le_bytes()).collect();
    let mut part = world.part(&[0], 0..4);
    part.fields[0].sizes = sizes;
    let members = Members::new(vec![FIELDS[0].into()], vec![part]).unwrap();
    let mut config = EngineConfig::new(DATASET, members, 4, Rank::new(0, 1).unwrap());
    config.prefetch_bytes = u64::MAX;
    let mut store = Delegate::new(world.store(delays(0.0)));
    store.is_near = true;
    let engine = Engine::new(Arc::new(store), config).unwrap();
    engine.start_epoch(0).unwrap();
    let error = next(&engine).unwrap_err();
    assert!(matches!(error, EngineError::NoMemory(_)), "{error}");
}
