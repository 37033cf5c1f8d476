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

/// What an epoch hands out, step by step: the rows of a batch, or the sample that it failed for.
fn steps_of(world: &World, engine: &Engine) -> Vec<Result<Vec<(u64, bool)>, Id>> {
    let mut steps = Vec::new();
    loop {
        let (seq, step) = match next(engine) {
            Ok(None) => return steps,
            Ok(Some(batch)) => (batch.seq, Ok(world.check(&batch))),
            Err(EngineError::Sample { seq, sample }) => (seq, Err(sample.sample_id)),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(seq, steps.len() as u64);
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
            .filter_map(|step| step.as_ref().err())
            .collect();
        assert_eq!(lost, [&id("sample", 7)]);
        let rows: usize = steps.iter().flatten().map(Vec::len).sum();
        assert!(rows == 18 || rows == 20, "all but one batch: {rows} rows");
        let state = engine.state().unwrap();
        assert_eq!((state.epoch, state.steps), (1, 0), "the lost batch counts");
        assert_eq!(
            engine.failures().unwrap()[0].error.sample_id,
            id("sample", 7)
        );
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
                Err(EngineError::Sample { seq, sample }) => {
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
