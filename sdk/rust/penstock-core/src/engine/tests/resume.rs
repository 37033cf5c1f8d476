//! Saving in the middle of an epoch and going on, with other ranks and batch sizes.

use super::*;
use crate::retry::Random;
use crate::state::merge;

/// One stretch of a run: its ranks, its batch size, and how many steps it makes before it is saved.
#[derive(Debug, Clone)]
struct Stretch {
    world_size: u64,
    batch_size: u64,
    steps: u64,
    /// Batches that are taken and lost: handed out, never acknowledged.
    lost: u64,
    is_in_order: bool,
}

fn stretches() -> impl Strategy<Value = Vec<Stretch>> {
    let one = (1_u64..5, 1_u64..9, 0_u64..5, 0_u64..3, any::<bool>());
    let stretch = one.prop_map(
        |(world_size, batch_size, steps, lost, is_in_order)| Stretch {
            world_size,
            batch_size,
            steps,
            lost,
            is_in_order,
        },
    );
    prop::collection::vec(stretch, 1..6)
}

fn engines(world: &World, stretch: &Stretch, last_batch: LastBatch) -> Vec<Engine> {
    let store = world.store(FaultPlan {
        seed: stretch.steps,
        ..delays(2.0)
    });
    (0..stretch.world_size)
        .map(|rank| {
            let mut config = world.config(stretch.batch_size);
            config.rank = Rank::new(rank, stretch.world_size).unwrap();
            config.last_batch = last_batch;
            config.is_in_order = stretch.is_in_order;
            Engine::new(Arc::clone(&store), config).unwrap()
        })
        .collect()
}

/// Takes and acknowledges up to `steps` batches, takes `lost` more, and returns what counts.
fn walk(world: &World, engine: &Engine, steps: u64, lost: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    for step in 0..steps + lost {
        let Some(batch) = next(engine).unwrap() else {
            break;
        };
        let rows = world.check(&batch);
        if step < steps {
            seen.extend(rows.iter().filter(|row| row.1).map(|row| row.0));
            engine.ack(batch.seq).unwrap();
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn merged_states_lose_nothing_and_repeat_nothing(
        n in 1_u64..120, stretches in stretches(), is_padded: bool,
    ) {
        let world = World::new(n, 60);
        let last_batch = if is_padded { LastBatch::Pad } else { LastBatch::Partial };
        let mut saved: Option<State> = None;
        let mut seen = Vec::new();
        let end = Stretch { world_size: 2, batch_size: 3, steps: u64::MAX - 9, lost: 0, is_in_order: false };
        for stretch in stretches.iter().chain([&end]) {
            let mut states = Vec::new();
            for engine in engines(&world, stretch, last_batch) {
                if let Some(state) = &saved {
                    prop_assert_eq!(engine.resume(state).unwrap().epoch, 0);
                }
                engine.start_epoch(0).unwrap();
                seen.extend(walk(&world, &engine, stretch.steps, stretch.lost));
                states.push(State::decode(&engine.state().unwrap().encode()).unwrap());
            }
            let merged = merge(&states, false).unwrap();
            if merged.epoch == 1 {
                prop_assert!(merged.base.is_empty());
                break;
            }
            prop_assert_eq!(merged.base.len(), seen.len() as u64);
            saved = Some(merged);
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..n).collect::<Vec<_>>());
    }

    #[test]
    fn ranks_go_on_alone_with_their_own_states(
        n in 1_u64..120, stretch in stretches(), is_padded: bool, second in 1_u64..9,
    ) {
        let world = World::new(n, 60);
        let last_batch = if is_padded { LastBatch::Pad } else { LastBatch::Partial };
        let first = &stretch[0];
        let mut rest = first.clone();
        rest.batch_size = second;
        let mut seen = Vec::new();
        let mut lengths = HashSet::new();
        let before = engines(&world, first, last_batch);
        for (engine, after) in before.iter().zip(engines(&world, &rest, last_batch)) {
            engine.start_epoch(0).unwrap();
            seen.extend(walk(&world, engine, first.steps, first.lost));
            let state = engine.state().unwrap();
            if state.epoch == 1 {
                continue;
            }
            let resumed = after.resume(&state).unwrap();
            lengths.insert((resumed.steps_done, resumed.steps_left));
            after.start_epoch(0).unwrap();
            seen.extend(walk(&world, &after, u64::MAX, 0));
            prop_assert_eq!(after.state().unwrap().epoch, 1);
        }
        prop_assert!(lengths.len() <= 1, "{:?}", lengths);
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..n).collect::<Vec<_>>());
    }
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
