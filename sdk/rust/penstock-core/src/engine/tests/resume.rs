//! Saving in the middle of an epoch and going on, with other ranks and batch sizes.

use super::*;
use crate::retry::Random;
use crate::state::{State, merge};

/// One stretch of a run: its ranks, its batch size, and how many steps it makes before it is saved.
#[derive(Debug, Clone)]
struct Stretch {
    world_size: u64,
    batch_size: u64,
    steps: u64,
    /// Batches that are taken and lost: handed out, never acknowledged.
    lost: u64,
    is_in_order: bool,
    /// Which of the batches taken are acknowledged where a test leaves some out, as bits.
    acknowledged: u64,
}

fn stretches() -> impl Strategy<Value = Vec<Stretch>> {
    let shape = (1_u64..5, 1_u64..9, 0_u64..5, 0_u64..3, any::<bool>());
    let stretch = (shape, any::<u64>()).prop_map(
        |((world_size, batch_size, steps, lost, is_in_order), acknowledged)| Stretch {
            world_size,
            batch_size,
            steps,
            lost,
            is_in_order,
            acknowledged,
        },
    );
    prop::collection::vec(stretch, 1..6)
}

/// What goes wrong on the way: reads that fail at first, and samples that are not there at all.
#[derive(Debug, Clone)]
struct Trouble {
    seed: u64,
    unavailable_share: f64,
    gone: Vec<u64>,
    on_error: OnError,
}

fn troubles() -> impl Strategy<Value = Trouble> {
    let gone = prop::collection::btree_set(0_u64..40, 0..4);
    let on_error = prop_oneof![
        Just(OnError::Raise),
        Just(OnError::Skip),
        Just(OnError::Replace)
    ];
    (any::<u64>(), 0.0..0.15_f64, gone, on_error).prop_map(
        |(seed, unavailable_share, gone, on_error)| Trouble {
            seed,
            unavailable_share,
            gone: gone.into_iter().collect(),
            on_error,
        },
    )
}

impl Trouble {
    fn world(&self, n: u64) -> World {
        let world = World::new(n, 60);
        self.gone.iter().for_each(|index| world.lose(*index));
        world
    }

    fn faults(&self) -> FaultPlan {
        FaultPlan {
            seed: self.seed,
            unavailable_share: self.unavailable_share,
            faulty_reads: Some(2),
            ..delays(2.0)
        }
    }

    fn engines(&self, world: &World, stretch: &Stretch, last_batch: LastBatch) -> Vec<Engine> {
        let store = world.store(self.faults());
        (0..stretch.world_size)
            .map(|rank| {
                let mut config = world.config(stretch.batch_size);
                config.rank = Rank::new(rank, stretch.world_size).unwrap();
                config.last_batch = last_batch;
                config.is_in_order = stretch.is_in_order;
                config.on_error = self.on_error;
                config.max_failed_share = 1.0;
                Engine::new(Arc::clone(&store), config).unwrap()
            })
            .collect()
    }

    /// Nothing came or was reported twice, nothing that is gone came at all, and what neither came nor was reported are
    /// at most `dropped`.
    fn check(&self, n: u64, seen: &[u64], reported: &[Failure], dropped: u64) {
        let come = seen.iter().map(|index| id("sample", *index));
        let named = reported.iter().map(|failure| failure.sample_id);
        let all: Vec<Id> = come.chain(named).collect();
        let once: HashSet<Id> = all.iter().copied().collect();
        assert_eq!(all.len(), once.len(), "something came or was named twice");
        let gone: HashSet<Id> = self.gone.iter().map(|index| id("sample", *index)).collect();
        for failure in reported {
            let is_gone = gone.contains(&failure.sample_id);
            match &failure.cause {
                Cause::Unread(_) => assert!(is_gone, "it is there"),
                Cause::LostWith(other) => {
                    assert_eq!(self.on_error, OnError::Raise);
                    assert!(!is_gone && gone.contains(other), "{failure:?}");
                }
            }
        }
        assert!(seen.iter().all(|index| !self.gone.contains(index)));
        let missing = n - all.len() as u64;
        assert!(missing <= dropped, "{missing} samples are missing");
    }
}

fn report(engine: &Engine, reported: &mut Vec<Failure>) {
    let failures = engine.failures().unwrap();
    reported.extend(failures.into_iter().filter(|failure| failure.epoch == 0));
}

/// Takes up to `steps` batches, acknowledges those that `is_kept` names, and returns what counts.
fn walk_some(
    world: &World,
    engine: &Engine,
    steps: u64,
    is_kept: impl Fn(u64) -> bool,
) -> Vec<u64> {
    let mut seen = Vec::new();
    for step in 0..steps {
        let (seq, rows) = match next(engine) {
            Ok(None) => break,
            Ok(Some(batch)) => (batch.seq, world.check(&batch)),
            Err(EngineError::Sample { seq, .. }) => (seq, Vec::new()),
            Err(error) => panic!("{error}"),
        };
        if is_kept(step) {
            seen.extend(rows.iter().filter(|row| row.1).map(|row| row.0));
            engine.ack(seq).unwrap();
        }
    }
    seen
}

/// Takes and acknowledges up to `steps` batches, takes `lost` more, and returns what counts.
fn walk(world: &World, engine: &Engine, steps: u64, lost: u64) -> Vec<u64> {
    walk_some(world, engine, steps.saturating_add(lost), |step| {
        step < steps
    })
}

/// What a stretch may leave out at the end of an epoch.
fn most_dropped(stretch: &Stretch, last_batch: LastBatch) -> u64 {
    match last_batch {
        LastBatch::Drop => stretch.batch_size * stretch.world_size - 1,
        _ => 0,
    }
}

proptest! {
    #![proptest_config(crate::soak::cases(24, 1_000))]

    #[test]
    fn merged_states_lose_nothing_and_repeat_nothing(
        n in 40_u64..140, stretches in stretches(), last_batch in policies(), trouble in troubles(),
    ) {
        let world = trouble.world(n);
        let mut saved: Option<State> = None;
        let mut seen = Vec::new();
        let mut reported = Vec::new();
        let mut is_over = false;
        let end = Stretch {
            world_size: 2, batch_size: 3, steps: u64::MAX, lost: 0, is_in_order: false, acknowledged: 0,
        };
        for stretch in stretches.iter().chain([&end]) {
            let mut states = Vec::new();
            for engine in trouble.engines(&world, stretch, last_batch) {
                if let Some(state) = &saved {
                    prop_assert_eq!(engine.resume(state).unwrap().epoch, 0);
                }
                engine.start_epoch(0).unwrap();
                seen.extend(walk(&world, &engine, stretch.steps, stretch.lost));
                report(&engine, &mut reported);
                states.push(State::decode(&engine.state().unwrap().encode()).unwrap());
            }
            let merged = merge(&states, false).unwrap();
            if merged.epoch == 1 {
                prop_assert!(merged.base.is_empty());
                trouble.check(n, &seen, &reported, most_dropped(stretch, last_batch));
                is_over = true;
                break;
            }
            prop_assert_eq!(merged.base.len(), (seen.len() + reported.len()) as u64);
            saved = Some(merged);
        }
        prop_assert!(is_over, "the last stretch has to end the epoch");
    }

    #[test]
    fn ranks_go_on_alone_with_their_own_states_again_and_again(
        n in 40_u64..140, stretches in stretches(), last_batch in policies(), trouble in troubles(),
    ) {
        let world = trouble.world(n);
        let world_size = stretches[0].world_size;
        let mut seen = Vec::new();
        let mut reported = Vec::new();
        let mut is_over = false;
        let mut saved: Vec<Option<State>> = vec![None; usize::try_from(world_size).unwrap()];
        let end = Stretch {
            world_size, batch_size: 2, steps: u64::MAX, lost: 0, is_in_order: false, acknowledged: u64::MAX,
        };
        for stretch in stretches.iter().chain([&end]) {
            let stretch = Stretch { world_size, ..stretch.clone() };
            let mut standings = HashSet::new();
            for (engine, saved) in trouble.engines(&world, &stretch, last_batch).iter().zip(&mut saved) {
                if let Some(state) = saved {
                    let resumed = engine.resume(state).unwrap();
                    standings.insert((resumed.steps_done, resumed.steps_left));
                }
                engine.start_epoch(0).unwrap();
                let is_kept = |step: u64| stretch.acknowledged == u64::MAX || stretch.acknowledged >> step & 1 == 1;
                seen.extend(walk_some(&world, engine, stretch.steps, is_kept));
                report(engine, &mut reported);
                *saved = Some(State::decode(&engine.state().unwrap().encode()).unwrap());
            }
            prop_assert!(standings.len() <= 1, "{:?}", standings);
            let epochs: HashSet<u64> = saved.iter().flatten().map(|state| state.epoch).collect();
            prop_assert_eq!(epochs.len(), 1);
            if epochs.contains(&1) {
                trouble.check(n, &seen, &reported, most_dropped(&stretch, last_batch));
                is_over = true;
                break;
            }
        }
        prop_assert!(is_over, "the last stretch has to end the epoch");
    }
}

#[test]
fn acknowledgements_out_of_order_leave_equal_steps() {
    let world = World::new(19, 60);
    let mut lengths = HashSet::new();
    for rank in 0..2 {
        let mut config = world.config(4);
        config.rank = Rank::new(rank, 2).unwrap();
        config.last_batch = LastBatch::Pad;
        let engine = Engine::new(world.store(delays(0.5)), config).unwrap();
        engine.start_epoch(0).unwrap();
        walk_some(&world, &engine, 3, |step| step != 1);
        let state = engine.state().unwrap();
        let resumed = engine.resume(&state).unwrap();
        lengths.insert((resumed.steps_done, resumed.steps_left));
        engine.start_epoch(0).unwrap();
        assert_eq!(walk(&world, &engine, 9, 0).len(), 4);
        assert_eq!(engine.state().unwrap().epoch, 1);
    }
    assert_eq!(lengths, HashSet::from([(2, 1)]));
}

#[test]
fn a_state_covers_acknowledged_batches_only() {
    let world = World::new(20, 60);
    let engine = Engine::new(world.store(delays(0.5)), world.config(4)).unwrap();
    assert_eq!(engine.state().unwrap().epoch, 0);
    engine.start_epoch(3).unwrap();
    let first = next(&engine).unwrap().unwrap();
    let second = next(&engine).unwrap().unwrap();
    assert_eq!(engine.state().unwrap().share.unwrap().frontier, 0);
    engine.ack(second.seq).unwrap();
    let state = engine.state().unwrap();
    assert_eq!((state.epoch, state.steps), (3, 1));
    assert_eq!(merge(&[state], false).unwrap().base.len(), 4);
    engine.ack(first.seq).unwrap();
    assert_eq!(engine.state().unwrap().steps, 2);
}

#[test]
fn a_state_is_small_and_quick_to_take() {
    let world = World::new(2000, 20);
    let store = world.store(FaultPlan {
        slow_share: 0.3,
        slow_ms: 30.0,
        ..delays(1.0)
    });
    let mut config = world.config(16);
    config.max_displacement = 60;
    let engine = Engine::new(store, config).unwrap();
    engine.start_epoch(0).unwrap();
    walk(&world, &engine, 60, 0);
    let started = Instant::now();
    let text = engine.state().unwrap().encode();
    let taken = started.elapsed();
    let gauges = engine.stats.gauges.snapshot();
    let ahead = gauges.inflight_samples + gauges.arrived_samples + 16 * gauges.ready_batches;
    assert!(
        text.len() as u64 <= 1024 + 6 * ahead.max(1),
        "{} bytes",
        text.len()
    );
    // One millisecond in a release build on a free machine; here it is a debug build on a busy one.
    assert!(taken < Duration::from_millis(300), "{taken:?}");
}

#[test]
fn a_loaded_state_counts_for_its_own_epoch_only() {
    let world = World::new(20, 60);
    let engine = Engine::new(world.store(delays(0.0)), world.config(4)).unwrap();
    engine.start_epoch(2).unwrap();
    walk(&world, &engine, 3, 0);
    let state = engine.state().unwrap();
    let resumed = engine.resume(&state).unwrap();
    let expected = Resumed {
        epoch: 2,
        steps_done: 3,
        steps_left: 2,
    };
    assert_eq!(resumed, expected);
    assert_eq!(
        engine.state().unwrap().steps,
        3,
        "saved again before it starts"
    );
    engine.start_epoch(2).unwrap();
    assert_eq!(next(&engine).unwrap().unwrap().step, 3);
    assert_eq!(walk(&world, &engine, 9, 0).len(), 4);
    engine.resume(&state).unwrap();
    assert_eq!(epoch(&world, &engine, 5).concat().len(), 20);
    assert_eq!(epoch(&world, &engine, 2).concat().len(), 20);
}

#[test]
fn states_of_something_else_are_refused() {
    let world = World::new(20, 60);
    let engine = Engine::new(world.store(delays(0.0)), world.config(4)).unwrap();
    let sound = engine.state().unwrap();
    let refused = |change: &dyn Fn(&mut State)| {
        let mut state = sound.clone();
        change(&mut state);
        engine.resume(&state).unwrap_err().to_string()
    };
    assert!(refused(&|s| s.split_digest = "b3:9".into()).contains("another split: b3:9 was saved"));
    assert!(refused(&|s| s.sample_count = 21).contains("another number of samples: 21"));
    assert!(refused(&|s| s.seed = 5).contains("another seed"));
    assert!(refused(&|s| s.is_shuffled = false).contains("choice of shuffle"));
    let alone = refused(&|s| s.share.as_mut().unwrap().world_size = 4);
    assert!(alone.contains("rank 0 in a world of 4 alone"), "{alone}");
    let beyond = refused(&|s| s.share.as_mut().unwrap().frontier = 21);
    assert!(beyond.contains("do not fit"), "{beyond}");
}

#[test]
fn the_resumed_order_is_that_of_the_epoch() {
    // In order, what is left comes in the same order as without a break.
    let world = World::new(50, 60);
    let mut random = Random::new(3);
    let whole = |steps: u64| {
        let mut config = world.config(4);
        config.is_in_order = true;
        let engine = Engine::new(world.store(delays(1.0)), config).unwrap();
        engine.start_epoch(1).unwrap();
        let seen = walk(&world, &engine, steps, 0);
        (seen, engine.state().unwrap())
    };
    let (all, _) = whole(99);
    let (first, state) = whole(random.next_u64() % 10);
    let mut config = world.config(7);
    config.is_in_order = true;
    let engine = Engine::new(world.store(delays(1.0)), config).unwrap();
    engine.resume(&state).unwrap();
    engine.start_epoch(1).unwrap();
    let rest = walk(&world, &engine, 99, 0);
    assert_eq!([first, rest].concat(), all);
}

#[test]
fn batches_that_are_not_acknowledged_when_the_next_epoch_begins_come_again() {
    let world = World::new(20, 60);
    let engine = Engine::new(world.store(delays(0.5)), world.in_order_config(4)).unwrap();
    engine.start_epoch(0).unwrap();
    let seqs: Vec<u64> = (0..5)
        .map(|_| next(&engine).unwrap().unwrap().seq)
        .collect();
    seqs[..3].iter().for_each(|seq| engine.ack(*seq).unwrap());
    engine.start_epoch(1).unwrap();
    let first = next(&engine).unwrap().unwrap();
    let place = || {
        let state = engine.state().unwrap();
        (state.epoch, state.steps)
    };
    assert_eq!(place(), (0, 3));
    let other = Engine::new(world.store(delays(0.5)), world.in_order_config(4)).unwrap();
    let resumed = other.resume(&engine.state().unwrap()).unwrap();
    assert_eq!((resumed.epoch, resumed.steps_left), (0, 2));
    other.start_epoch(0).unwrap();
    let again = next(&other).unwrap().unwrap();
    assert_eq!(world.check(&again)[0].0, 12);
    engine.ack(first.seq).unwrap();
    engine.ack(seqs[4]).unwrap();
    assert_eq!(place(), (0, 4));
    engine.ack(seqs[3]).unwrap();
    assert_eq!(place(), (1, 1), "all of the epoch before has arrived");
    // Whoever goes somewhere else of his own will is not owed the rest.
    engine.resume(&engine.start_of(7)).unwrap();
    engine.start_epoch(7).unwrap();
    assert_eq!(place(), (7, 0));
}
