//! Samples that cannot be read: what they cost, and what they do not.

use super::*;
use crate::state::{State, merge};

impl World {
    pub fn lose(&self, index: u64) {
        let store = self.store(FaultPlan::default());
        let lost = vec![id("object", index)];
        let deleted = store.delete(Table::Samples, DATASET, lost);
        process::runtime().unwrap().block_on(deleted).unwrap();
    }
}

/// The sample that a batch failed for, and those besides.
type Failed = (Id, Vec<Id>);

/// What an epoch hands out, step by step: the rows of a batch, or what it lost instead.
fn steps_of(world: &World, engine: &Engine) -> Vec<Result<Vec<(u64, bool)>, Failed>> {
    let mut steps = Vec::new();
    let mut first = None;
    loop {
        let (seq, step) = match next(engine) {
            Ok(None) => return steps,
            Ok(Some(batch)) => (batch.seq, Ok(world.check(&batch))),
            Err(EngineError::Sample {
                seq,
                sample,
                besides,
            }) => (seq, Err((sample.sample_id, besides.to_vec()))),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(seq, *first.get_or_insert(seq) + steps.len() as u64);
        engine.ack(seq).unwrap();
        steps.push(step);
    }
}

#[test]
fn a_lost_sample_costs_its_batch_and_no_other() {
    for is_in_order in [true, false] {
        let world = World::new(22, 100);
        world.lose(7);
        let mut config = world.config(4);
        config.is_in_order = is_in_order;
        let engine = Engine::new(world.store(delays(1.0)), config).unwrap();
        engine.start_epoch(0).unwrap();
        let steps = steps_of(&world, &engine);
        assert_eq!(steps.len(), 6);
        let lost: Vec<&Id> = steps
            .iter()
            .filter_map(|step| Some(&step.as_ref().err()?.0))
            .collect();
        assert_eq!(lost, [&id("sample", 7)]);
        let rows: usize = steps.iter().flatten().map(Vec::len).sum();
        assert!(rows == 18 || rows == 20, "all but one batch: {rows} rows");
        assert_eq!(engine.stats.counters.snapshot().lost, 21 - rows as u64);
        let state = engine.state().unwrap();
        assert_eq!((state.epoch, state.steps), (1, 0), "the lost batch counts");
        assert_eq!(engine.failures().unwrap()[0].sample_id, id("sample", 7));
        assert!(next(&engine).unwrap().is_none(), "and the epoch is over");
    }
}

#[test]
fn states_after_a_lost_batch_merge_and_go_on() {
    let world = World::new(30, 60);
    world.lose(3);
    let mut states: Vec<State> = Vec::new();
    let mut seen = Vec::new();
    let mut failed = Vec::new();
    for rank in 0..2 {
        let mut config = world.config(4);
        config.rank = Rank::new(rank, 2).unwrap();
        config.is_in_order = true;
        config.is_shuffled = false;
        let engine = Engine::new(world.store(delays(0.5)), config).unwrap();
        engine.start_epoch(0).unwrap();
        for _ in 0..2 {
            let seq = match next(&engine) {
                Err(EngineError::Sample { seq, sample, .. }) => {
                    failed.push((rank, sample.sample_id));
                    seq
                }
                other => {
                    let batch = other.unwrap().unwrap();
                    seen.extend(world.check(&batch).iter().map(|row| row.0));
                    batch.seq
                }
            };
            engine.ack(seq).unwrap();
        }
        states.push(engine.state().unwrap());
    }
    assert_eq!(failed, [(1, id("sample", 3))]);
    let merged = merge(&states, false).unwrap();
    assert_eq!((merged.steps, merged.base.len()), (2, 16));
    seen.sort_unstable();
    assert_eq!(seen, [0, 2, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15]);
}

#[test]
fn all_of_an_epoch_comes_or_is_named_in_the_errors_and_in_the_report() {
    for is_in_order in [true, false] {
        let world = World::new(50, 60);
        let gone = [3, 4, 20, 49];
        for index in gone {
            world.lose(index);
        }
        let mut come = Vec::new();
        let mut in_errors = Vec::new();
        let mut in_report = Vec::new();
        for rank in 0..3 {
            let mut config = world.config(4);
            config.rank = Rank::new(rank, 3).unwrap();
            // The 50 samples leave a rank with padding, which is owed to nobody.
            config.last_batch = LastBatch::Pad;
            config.is_in_order = is_in_order;
            let engine = Engine::new(world.store(delays(1.0)), config).unwrap();
            engine.start_epoch(0).unwrap();
            for step in steps_of(&world, &engine) {
                match step {
                    Ok(rows) => {
                        let valid = rows.iter().filter(|row| row.1);
                        come.extend(valid.map(|row| id("sample", row.0)));
                    }
                    Err((sample, besides)) => {
                        in_errors.push(sample);
                        in_errors.extend(besides);
                    }
                }
            }
            let failures = engine.failures().unwrap();
            let of_epoch = failures.iter().filter(|failure| failure.epoch == 0);
            in_report.extend(of_epoch.map(|failure| failure.sample_id));
        }
        for named in [&mut in_errors, &mut in_report] {
            named.sort_unstable();
        }
        assert_eq!(in_errors, in_report);
        assert!(gone.iter().all(|i| in_report.contains(&id("sample", *i))));
        let mut all = [come, in_report].concat();
        all.sort_unstable();
        let mut expected: Vec<Id> = (0..50).map(|index| id("sample", index)).collect();
        expected.sort_unstable();
        assert_eq!(all, expected);
    }
}

#[test]
fn what_is_not_acknowledged_is_not_reported_and_may_still_come() {
    let world = World::new(16, 60);
    world.lose(1);
    let config = world.in_order_config(4);
    let engine = Engine::new(world.store(delays(0.5)), config).unwrap();
    engine.start_epoch(0).unwrap();
    let state = engine.state().unwrap();
    let error = next(&engine).unwrap_err();
    let text = error.to_string();
    assert!(
        text.ends_with("the 3 other samples of its batch are lost with it"),
        "{text}"
    );
    assert!(engine.failures().unwrap().is_empty());
    // It turns out to be there after all.
    world.write();
    engine.resume(&state).unwrap();
    engine.start_epoch(0).unwrap();
    let steps = steps_of(&world, &engine);
    assert_eq!(steps.iter().flatten().flatten().count(), 16);
    assert!(engine.failures().unwrap().is_empty());
}

#[test]
fn an_epoch_that_is_left_keeps_what_is_acknowledged_later() {
    let world = World::new(8, 60);
    world.lose(5);
    let config = world.in_order_config(4);
    let engine = Engine::new(world.store(delays(0.5)), config).unwrap();
    engine.start_epoch(0).unwrap();
    let first = next(&engine).unwrap().unwrap();
    assert!(next(&engine).is_err());
    engine.start_epoch(1).unwrap();
    engine.ack(first.seq).unwrap();
    assert!(engine.failures().unwrap().is_empty());
    engine.ack(first.seq + 1).unwrap();
    let named = |epoch: u64| {
        let failures = engine.failures().unwrap();
        failures.iter().filter(|f| f.epoch == epoch).count()
    };
    assert_eq!((named(0), named(1)), (4, 0));
}

#[test]
fn too_many_failures_stay() {
    let world = World::new(100, 100);
    let mut config = world.config(10);
    config.on_error = OnError::Skip;
    let engine = Engine::new(world.store(missing(0.5)), config).unwrap();
    engine.start_epoch(0).unwrap();
    for _ in 0..3 {
        let error = loop {
            match next(&engine) {
                Ok(batch) => assert!(batch.is_some(), "the epoch ended"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, EngineError::TooManyFailures { .. }));
    }
}

#[test]
fn replacements_are_the_same_in_every_run_and_after_a_resume() {
    for is_near in [true, false] {
        let world = World::new(24, 60);
        for index in [0, 7, 8, 20, 23] {
            world.lose(index);
        }
        let engine = || {
            let mut config = world.in_order_config(1);
            config.on_error = OnError::Replace;
            let mut store = Delegate::new(world.store(delays(2.0)));
            store.is_near = is_near;
            Engine::new(Arc::new(store), config).unwrap()
        };
        let expected: Vec<(u64, bool)> = (0..24)
            .map(|index| match index {
                0 | 7 | 8 | 20 | 23 => (1, false),
                _ => (index, true),
            })
            .collect();
        for _ in 0..5 {
            let engine = engine();
            assert_eq!(epoch(&world, &engine, 0).concat(), expected);
            assert_eq!(epoch(&world, &engine, 1).concat(), expected);
            assert_eq!(engine.stats.counters.snapshot().replaced, 10);
        }
        let halted = engine();
        halted.start_epoch(0).unwrap();
        for row in &expected[..8] {
            let batch = next(&halted).unwrap().unwrap();
            assert_eq!(world.check(&batch), [*row]);
            halted.ack(batch.seq).unwrap();
        }
        let resumed = engine();
        resumed.resume(&halted.state().unwrap()).unwrap();
        resumed.start_epoch(0).unwrap();
        let rest = steps_of(&world, &resumed);
        let rest: Vec<_> = rest.into_iter().flat_map(Result::unwrap).collect();
        assert_eq!(rest, expected[8..]);
    }
}

#[test]
fn a_batch_is_lost_when_nothing_of_its_epoch_can_stand_in() {
    let world = World::new(100, 20);
    (0..80).for_each(|index| world.lose(index));
    let mut config = world.in_order_config(4);
    config.on_error = OnError::Replace;
    config.max_failed_share = 1.0;
    let engine = Engine::new(world.store(delays(0.2)), config).unwrap();
    engine.start_epoch(0).unwrap();
    let steps = steps_of(&world, &engine);
    let (lost, come) = steps.split_at(20);
    assert!(lost.iter().all(Result::is_err));
    assert_eq!(come.iter().flatten().flatten().count(), 20);
}

#[test]
fn what_fails_while_it_is_only_read_ahead_is_not_reported() {
    let world = World::new(60, 60);
    let mut config = world.in_order_config(10);
    config.on_error = OnError::Skip;
    config.max_failed_share = 0.0;
    // Half an epoch: the next one is not read before some of this one has been taken.
    config.prefetch_bytes = 30 * 350;
    let engine = Engine::new(world.store(delays(0.2)), config).unwrap();
    engine.start_epoch(0).unwrap();
    for _ in 0..3 {
        let batch = next(&engine).unwrap().unwrap();
        assert_eq!(batch.len(), 10);
        engine.ack(batch.seq).unwrap();
    }
    (0..30).for_each(|index| world.lose(index));
    let steps = steps_of(&world, &engine);
    assert_eq!(steps.iter().flatten().flatten().count(), 30);
    wait_until(&engine, "read ahead", |now| {
        now.counters.requests > 80 && now.gauges.inflight_samples == 0
    });
    assert!(engine.failures().unwrap().is_empty());
    engine.start_epoch(1).unwrap();
    let error = loop {
        match next(&engine) {
            Ok(batch) => assert!(batch.is_some(), "the epoch ended"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, EngineError::TooManyFailures { .. }));
    assert!(!engine.failures().unwrap().is_empty());
}

/// The samples of rows that are no padding and no replacement.
fn valid(rows: &[(u64, bool)]) -> Vec<u64> {
    let valid = rows.iter().filter(|row| row.1);
    valid.map(|row| row.0).collect()
}

#[test]
fn a_batch_that_waits_for_a_stand_in_comes_before_the_end_of_an_epoch_given_up() {
    let world = World::new(20, 60);
    (0..10).for_each(|index| world.lose(index));
    let mut config = world.in_order_config(5);
    config.on_error = OnError::Replace;
    // The search for a stand-in takes longer than the next batch.
    let engine = Engine::new(world.store(delays(5.0)), config).unwrap();
    engine.start_epoch(0).unwrap();
    let batch = next(&engine).unwrap().unwrap();
    assert_eq!(world.check(&batch), [(10, false); 5]);
    for _ in 0..2 {
        let error = next(&engine).unwrap_err();
        assert!(error.to_string().starts_with("10 of 10 samples"), "{error}");
    }
}

#[test]
fn an_epoch_of_which_nothing_can_stand_in_ends_all_the_same() {
    let world = World::new(2, 60);
    (0..2).for_each(|index| world.lose(index));
    let mut config = world.in_order_config(1);
    config.on_error = OnError::Replace;
    config.max_failed_share = 1.0;
    let engine = Engine::new(world.store(delays(5.0)), config).unwrap();
    engine.start_epoch(0).unwrap();
    assert!(matches!(next(&engine), Err(EngineError::Sample { .. })));
    let error = next(&engine).unwrap_err();
    assert!(
        matches!(error, EngineError::TooManyFailures { .. }),
        "{error}"
    );
}

#[test]
fn one_search_serves_all_batches_without_a_sound_sample() {
    let world = World::new(12, 60);
    // Each of these has its two fields in one object.
    for index in [1, 2, 4, 5, 7, 8] {
        world.lose(index);
    }
    let mut config = world.config(1);
    config.on_error = OnError::Replace;
    config.is_shuffled = false;
    config.is_next_epoch_prefetched = false;
    let engine = Engine::new(world.store(delays(3.0)), config).unwrap();
    let batches = epoch(&world, &engine, 0).concat();
    assert_eq!(batches.len(), 12);
    assert_eq!(batches.iter().filter(|row| **row == (0, false)).count(), 6);
    // Four samples lie in two objects each; the first of all is read once more to stand in.
    assert_eq!(engine.stats.counters.snapshot().requests, 16 + 2);
}

#[test]
fn padding_that_cannot_be_read_is_no_failure_of_its_own() {
    for on_error in [OnError::Skip, OnError::Replace] {
        let world = World::new(20, 60);
        world.lose(4);
        let mut come = Vec::new();
        for rank in 0..4 {
            let mut config = world.in_order_config(64);
            config.rank = Rank::new(rank, 4).unwrap();
            config.last_batch = LastBatch::Pad;
            config.on_error = on_error;
            let engine = Engine::new(world.store(delays(0.5)), config).unwrap();
            // Rank 0 has five samples, and repeats the bad one a dozen times.
            let rows = epoch(&world, &engine, 0).concat();
            let is_short = on_error == OnError::Skip && rank == 0;
            assert_eq!(rows.len() < 64, is_short, "{} rows", rows.len());
            come.extend(valid(&rows));
            let failed = engine.failures().unwrap();
            let failed: Vec<Id> = failed.iter().map(|failure| failure.sample_id).collect();
            let expected: &[Id] = if rank == 0 { &[id("sample", 4)] } else { &[] };
            assert_eq!(failed, expected);
        }
        come.sort_unstable();
        assert!(come.iter().copied().eq((0..20).filter(|index| *index != 4)));
    }
}

#[test]
fn padding_that_cannot_be_read_takes_no_batch_with_it() {
    for is_near in [true, false] {
        let world = World::new(6, 60);
        world.lose(0);
        let mut config = world.in_order_config(4);
        config.last_batch = LastBatch::Pad;
        let mut store = Delegate::new(world.store(delays(0.5)));
        store.is_near = is_near;
        let engine = Engine::new(Arc::new(store), config).unwrap();
        engine.start_epoch(0).unwrap();
        let steps = steps_of(&world, &engine);
        assert!(steps[0].is_err());
        let rows = [(4, true), (5, true), (1, false)];
        assert_eq!(steps[1], Ok(rows.to_vec()), "without the repeat of 0");
    }
}

#[test]
fn a_rank_without_samples_of_its_own_does_not_fail_for_another() {
    for on_error in [OnError::Raise, OnError::Skip, OnError::Replace] {
        let world = World::new(1, 60);
        world.lose(0);
        let mut config = world.config(4);
        config.rank = Rank::new(1, 2).unwrap();
        config.last_batch = LastBatch::Pad;
        config.on_error = on_error;
        let engine = Engine::new(world.store(delays(0.5)), config).unwrap();
        assert_eq!(epoch(&world, &engine, 0), [[]]);
        assert!(engine.failures().unwrap().is_empty());
    }
}

#[test]
fn errors_that_nobody_takes_count_against_the_budget() {
    let world = World::new(4_000, 0);
    let mut config = world.config(4);
    config.prefetch_bytes = 40 * 256;
    let engine = Engine::new(world.store(missing(1.0)), config).unwrap();
    engine.start_epoch(0).unwrap();
    let mut requests = 0;
    wait_until(&engine, "at rest", |now| {
        std::thread::sleep(Duration::from_millis(100));
        now.counters.requests == std::mem::replace(&mut requests, now.counters.requests)
            && requests > 0
    });
    // An object for each sample, and one more for every third.
    assert!(requests <= 60, "{requests} reads ahead of a consumer");
    let held = || engine.snapshot().unwrap().gauges.held_bytes;
    assert_eq!(held(), 40 * 256);
    assert_eq!(steps_of(&world, &engine).len(), 1_000);
}
