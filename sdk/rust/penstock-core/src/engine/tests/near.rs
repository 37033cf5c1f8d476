//! Batches that a store on this machine fills itself, and what happens when it cannot.

use super::*;

fn near_store(world: &World) -> Delegate {
    uneven_store(world, 0.0)
}

/// What it cannot fill at once takes up to so many milliseconds.
fn uneven_store(world: &World, longest_ms: f64) -> Delegate {
    let mut store = Delegate::new(world.store(delays(longest_ms)));
    store.is_near = true;
    store
}

/// Every choice of `on_error` in both forms.
fn choices() -> impl Iterator<Item = (OnError, BatchForm)> {
    let forms = [BatchForm::Arena, BatchForm::List];
    let choices = [OnError::Raise, OnError::Skip, OnError::Replace];
    forms
        .into_iter()
        .flat_map(move |form| choices.map(|on_error| (on_error, form)))
}

fn config(world: &World, on_error: OnError, form: BatchForm) -> EngineConfig {
    let mut config = world.config(4);
    config.on_error = on_error;
    config.form = form;
    config.is_in_order = true;
    config.is_shuffled = false;
    config.max_failed_share = 1.0;
    config.is_next_epoch_prefetched = false;
    config
}

#[test]
fn what_cannot_be_filled_at_once_is_read_again() {
    for (on_error, form) in choices() {
        let world = World::new(30, 200);
        let store = near_store(&world);
        // Once in the middle of a batch, once as its first sample, and one more than once.
        for (index, times) in [(5, 1), (8, 1), (21, 3)] {
            let unfilled = &mut store.unfilled.lock().unwrap();
            unfilled.insert(id("object", index), times);
        }
        let engine = Engine::new(Arc::new(store), config(&world, on_error, form)).unwrap();
        let rows = epoch(&world, &engine, 0).concat();
        assert_eq!(rows, (0..30).map(|i| (i, true)).collect::<Vec<_>>());
        assert!(engine.failures().unwrap().is_empty());
        wait_until(&engine, "empty", |now| now.gauges.held_bytes == 0);
    }
}

#[test]
fn what_is_not_there_is_raised_skipped_or_replaced() {
    for (on_error, form) in choices() {
        let world = World::new(22, 200);
        // The first sample of a batch, and the last of all: replacing needs one that was read before or besides.
        for index in [4, 21] {
            world.lose(index);
        }
        let engine =
            Engine::new(Arc::new(near_store(&world)), config(&world, on_error, form)).unwrap();
        engine.start_epoch(0).unwrap();
        let mut lost = Vec::new();
        let mut lengths = Vec::new();
        let mut valid = Vec::new();
        for seq in 0..6 {
            match next(&engine) {
                Ok(batch) => {
                    let rows = world.check(&batch.unwrap());
                    lengths.push(rows.len());
                    valid.extend(rows.iter().filter(|row| row.1).map(|row| row.0));
                }
                Err(EngineError::Sample { sample, .. }) => lost.push(sample.sample_id),
                Err(error) => panic!("{error}"),
            }
            engine.ack(seq).unwrap();
        }
        assert!(next(&engine).unwrap().is_none());
        assert_eq!(engine.state().unwrap().epoch, 1);
        let failures = engine.failures().unwrap();
        let failed: Vec<Id> = failures
            .iter()
            .filter(|failure| matches!(failure.cause, Cause::Unread(_)))
            .map(|failure| failure.sample_id)
            .collect();
        assert_eq!(failed, [id("sample", 4), id("sample", 21)]);
        let named: HashSet<Id> = failures.iter().map(|failure| failure.sample_id).collect();
        assert_eq!(valid.len() + named.len(), 22);
        assert!(
            valid
                .iter()
                .all(|index| !named.contains(&id("sample", *index)))
        );
        match on_error {
            OnError::Raise => assert_eq!((lost, lengths), (failed, vec![4; 4])),
            OnError::Skip => assert_eq!(lengths, [4, 3, 4, 4, 4, 1]),
            OnError::Replace => assert_eq!(lengths, [4, 4, 4, 4, 4, 2]),
        }
        if on_error != OnError::Raise {
            assert_eq!(valid, (0..21).filter(|i| *i != 4).collect::<Vec<_>>());
        }
        wait_until(&engine, "empty", |now| now.gauges.held_bytes == 0);
    }
}

#[test]
fn an_epoch_given_up_hands_out_all_before_its_end_and_nothing_behind_it() {
    for _ in 0..20 {
        let world = World::new(100, 60);
        (44..56).for_each(|index| world.lose(index));
        let mut config = config(&world, OnError::Skip, BatchForm::Arena);
        config.batch_size = 20;
        config.max_failed_share = 0.0;
        let engine = Engine::new(Arc::new(uneven_store(&world, 3.0)), config).unwrap();
        engine.start_epoch(0).unwrap();
        for step in 0..2 {
            let batch = next(&engine).unwrap().unwrap();
            assert_eq!((batch.step, batch.positions[0]), (step, 20 * step));
        }
        for _ in 0..5 {
            let error = next(&engine).unwrap_err();
            let EngineError::TooManyFailures {
                failed, outcomes, ..
            } = error
            else {
                panic!("{error}");
            };
            assert_eq!((failed, outcomes), (12, 60));
        }
    }
}

#[test]
fn whether_too_much_has_failed_does_not_depend_on_which_batch_was_faster() {
    for _ in 0..20 {
        let world = World::new(400, 20);
        // Six in each of two batches: never more than the share of those up to them.
        (0..6).chain(100..106).for_each(|index| world.lose(index));
        let mut config = config(&world, OnError::Skip, BatchForm::Arena);
        config.batch_size = 100;
        config.max_failed_share = 0.06;
        let engine = Engine::new(Arc::new(uneven_store(&world, 3.0)), config).unwrap();
        let rows = epoch(&world, &engine, 0).concat();
        assert_eq!(rows.len(), 388);
        let counters = engine.stats.counters.snapshot();
        assert_eq!((counters.errors, counters.skipped), (12, 12));
    }
}

#[test]
fn samples_that_are_filled_are_counted_one_by_one() {
    let world = World::new(30, 200);
    let config = config(&world, OnError::Raise, BatchForm::Arena);
    let engine = Engine::new(Arc::new(near_store(&world)), config).unwrap();
    epoch(&world, &engine, 0);
    let snapshot = engine.snapshot().unwrap();
    let count = |wanted| {
        let found = snapshot.stages.iter().find(|(name, _)| *name == wanted);
        found.unwrap().1.count()
    };
    assert_eq!((count("request"), count("verify")), (30, 30));
    assert_eq!(snapshot.counters.requests, 40);
}

#[test]
fn all_batches_read_ahead_are_made_in_the_memory_of_those_before() {
    let world = World::new(192, 8_000);
    let mut config = config(&world, OnError::Raise, BatchForm::Arena);
    config.batch_size = 32;
    config.prefetch_bytes = 2 << 20;
    let engine = Engine::new(Arc::new(near_store(&world)), config).unwrap();
    let mut allocated = HashSet::new();
    for epoch in 0..3 {
        engine.start_epoch(epoch).unwrap();
        let batches: Vec<Batch> = std::iter::from_fn(|| next(&engine).unwrap()).collect();
        assert_eq!(batches.len(), 6);
        allocated.insert(engine.snapshot().unwrap().pool.allocated);
    }
    // A block for each batch and field.
    assert_eq!(allocated, HashSet::from([12]));
}
