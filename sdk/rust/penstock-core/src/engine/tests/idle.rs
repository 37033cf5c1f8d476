//! A consumer that goes away for a while.

use super::*;

const IDLE: Duration = Duration::from_millis(200);

/// Takes all batches that are left, with pauses before the given steps, and checks that the numbers go on.
fn walk(world: &World, engine: &Engine, pauses: &[u64]) -> Vec<Vec<(u64, bool)>> {
    let mut batches: Vec<Vec<(u64, bool)>> = Vec::new();
    let mut parks = 0;
    loop {
        let step = batches.len() as u64;
        if pauses.contains(&step) {
            parks += 1;
            wait_until(engine, "parked", |now| {
                now.counters.parks == parks
                    && now.gauges.held_bytes == 0
                    && now.gauges.ready_batches == 0
                    && now.pool.idle_bytes == 0
            });
        }
        let Some(batch) = next(engine).unwrap() else {
            return batches;
        };
        assert_eq!((batch.step, batch.seq), (step, step));
        batches.push(world.check(&batch));
        if step % 3 != 1 {
            engine.ack(batch.seq).unwrap();
        }
    }
}

#[test]
fn an_idle_consumer_gets_its_memory_back_and_then_the_rest() {
    let choices = [
        (true, LastBatch::Pad),
        (false, LastBatch::Pad),
        (true, LastBatch::Partial),
        (false, LastBatch::Drop),
    ];
    for (is_in_order, last_batch) in choices {
        let world = World::new(301, 3000);
        let engine = |idle| {
            let mut config = world.config(8);
            config.is_in_order = is_in_order;
            config.last_batch = last_batch;
            config.rank = Rank::new(1, 2).unwrap();
            config.idle = idle;
            let engine = Engine::new(world.store(delays(2.0)), config).unwrap();
            engine.start_epoch(0).unwrap();
            engine
        };
        let paused = engine(IDLE);
        // Before the first batch, after a few, and before the last.
        let steps = paused.steps();
        let batches = walk(&world, &paused, &[0, 3, steps - 1]);
        let whole = walk(&world, &engine(Duration::from_secs(60)), &[]);
        assert_eq!(batches.len() as u64, steps);
        if is_in_order {
            assert_eq!(batches, whole);
        }
        let sorted = |batches: Vec<Vec<(u64, bool)>>| {
            let mut rows: Vec<u64> = batches
                .concat()
                .iter()
                .filter(|row| row.1)
                .map(|row| row.0)
                .collect();
            rows.sort_unstable();
            rows
        };
        assert_eq!(sorted(batches), sorted(whole));
    }
}

#[test]
fn the_state_of_an_idle_loader_is_that_of_what_was_handed_out() {
    let world = World::new(120, 300);
    let mut config = world.config(8);
    config.idle = IDLE;
    let engine = Engine::new(world.store(delays(1.0)), config).unwrap();
    engine.start_epoch(4).unwrap();
    for _ in 0..3 {
        let batch = next(&engine).unwrap().unwrap();
        engine.ack(batch.seq).unwrap();
    }
    let before = engine.state().unwrap();
    wait_until(&engine, "parked", |now| now.counters.parks == 1);
    assert_eq!(engine.state().unwrap(), before);
    engine.start_epoch(5).unwrap();
    let batches = epoch(&world, &engine, 5);
    assert_eq!(batches.concat().len(), 120);
}

#[test]
fn failures_before_and_behind_a_pause_are_reported_once() {
    let world = World::new(80, 100);
    for index in [2, 3, 50, 70] {
        world.lose(index);
    }
    let mut config = world.config(8);
    config.idle = IDLE;
    config.is_in_order = true;
    config.is_shuffled = false;
    config.on_error = OnError::Skip;
    let engine = Engine::new(world.store(delays(1.0)), config).unwrap();
    engine.start_epoch(0).unwrap();
    let lengths: Vec<usize> = walk(&world, &engine, &[2, 7])
        .iter()
        .map(Vec::len)
        .collect();
    assert_eq!(lengths, [6, 8, 8, 8, 8, 8, 7, 8, 7, 8]);
    let failures = engine.failures().unwrap();
    let of_epoch = failures.iter().filter(|failure| failure.epoch == 0);
    assert_eq!(of_epoch.count(), 4);
}

#[test]
fn the_bad_rest_of_an_epoch_is_not_all_of_it_because_somebody_paused() {
    let world = World::new(8, 100);
    let engine = || {
        let mut config = world.in_order_config(1);
        config.idle = IDLE;
        config.on_error = OnError::Skip;
        Engine::new(world.store(delays(0.5)), config).unwrap()
    };
    let first = engine();
    first.start_epoch(0).unwrap();
    for _ in 0..6 {
        let batch = next(&first).unwrap().unwrap();
        first.ack(batch.seq).unwrap();
    }
    (6..8).for_each(|index| world.lose(index));
    let rest = engine();
    rest.resume(&first.state().unwrap()).unwrap();
    rest.start_epoch(0).unwrap();
    for parks in 0..2 {
        wait_until(&rest, "parked", |now| now.counters.parks > parks);
        assert_eq!(next(&rest).unwrap().unwrap().len(), 0);
    }
    assert!(next(&rest).unwrap().is_none());
}

#[test]
fn a_consumer_that_waits_is_not_idle() {
    let world = World::new(12, 100);
    let mut config = world.config(4);
    // It asks every 50 ms: the rest is room for a machine that stalls.
    config.idle = Duration::from_millis(500);
    let slow = FaultPlan {
        delay_ms: (1600.0, 1600.0),
        ..FaultPlan::default()
    };
    let engine = Engine::new(world.store(slow), config).unwrap();
    engine.start_epoch(0).unwrap();
    next(&engine).unwrap().unwrap();
    assert_eq!(engine.snapshot().unwrap().counters.parks, 0);
}
