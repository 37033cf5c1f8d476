//! Lanes on a simulated network, on tokio's paused clock.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use super::*;

const SIZE: u64 = 100_000;

/// How a node behaves at the moment.
#[derive(Debug, Clone, Copy)]
struct Behaviour {
    delay: Duration,
    rate: f64,
    state: NodeState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeState {
    Healthy,
    Silent,
    Down,
    /// It takes connections and ends them at the first read.
    Resetting,
    Full,
}

const HEALTHY: Behaviour = Behaviour {
    delay: Duration::from_millis(50),
    rate: 50e6,
    state: NodeState::Healthy,
};

const DOWN: Behaviour = Behaviour {
    state: NodeState::Down,
    ..HEALTHY
};

#[derive(Debug, Default)]
struct World {
    behaviours: Mutex<HashMap<SocketAddr, Behaviour>>,
    asked: Mutex<HashMap<SocketAddr, u64>>,
    opened: AtomicU64,
    /// How often somebody has looked at a lane.
    looks: AtomicU64,
}

impl World {
    fn set(&self, node: SocketAddr, behaviour: Behaviour) {
        self.behaviours.lock().unwrap().insert(node, behaviour);
    }

    fn get(&self, node: SocketAddr) -> Behaviour {
        self.behaviours.lock().unwrap()[&node]
    }

    fn take_asked(&self) -> HashMap<SocketAddr, u64> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

#[derive(Debug)]
struct SimulatedLane {
    node: SocketAddr,
    world: Arc<World>,
    meter: Arc<Meter>,
    free_at: Mutex<Instant>,
    is_broken: AtomicBool,
}

impl Lane for SimulatedLane {
    /// The size of the answer.
    type Question = u64;
    type Answer = SocketAddr;
    type Error = String;

    fn ask<'a>(&'a self, size: &'a u64) -> BoxFuture<'a, Result<SocketAddr, String>> {
        let size = *size;
        Box::pin(async move {
            *self
                .world
                .asked
                .lock()
                .unwrap()
                .entry(self.node)
                .or_default() += 1;
            let asked_at = now();
            self.meter.asked(asked_at, size);
            let behaviour = self.world.get(self.node);
            if matches!(behaviour.state, NodeState::Down | NodeState::Resetting) {
                self.is_broken.store(true, Ordering::Relaxed);
                self.meter.failed(size);
                return Err("reset".to_owned());
            }
            let (head_at, end_at) = {
                let mut free_at = self.free_at.lock().unwrap();
                let head_at = (asked_at + behaviour.delay).max(*free_at);
                #[allow(clippy::cast_precision_loss)]
                let transfer = Duration::from_secs_f64(size as f64 / behaviour.rate);
                *free_at = head_at + transfer;
                (head_at, *free_at)
            };
            // On its own: the answer comes also when nobody waits for it any more.
            let (world, meter, node) =
                (Arc::clone(&self.world), Arc::clone(&self.meter), self.node);
            let arrival = tokio::spawn(async move {
                while now() < end_at {
                    tokio::time::sleep_until(end_at.min(now() + TICK).into()).await;
                    if now() > head_at && world.get(node).state != NodeState::Silent {
                        meter.heard(now());
                    }
                }
                while world.get(node).state == NodeState::Silent {
                    sleep(Duration::from_millis(10)).await;
                }
                meter.heard(now());
                meter.answered(&Arrival {
                    asked_bytes: size,
                    bytes: size,
                    asked_at,
                    head_at,
                    end_at,
                });
            });
            arrival.await.map_err(|error| error.to_string())?;
            Ok(self.node)
        })
    }

    fn condition(&self) -> Condition {
        self.world.looks.fetch_add(1, Ordering::Relaxed);
        if self.is_broken.load(Ordering::Relaxed) {
            Condition::Broken
        } else if self.world.get(self.node).state == NodeState::Full {
            Condition::Full
        } else {
            Condition::Ready
        }
    }
}

#[derive(Debug)]
struct SimulatedConnector {
    nodes: Vec<SocketAddr>,
    world: Arc<World>,
}

impl Connector for SimulatedConnector {
    type Lane = SimulatedLane;

    fn nodes(&self) -> Vec<SocketAddr> {
        self.nodes.clone()
    }

    fn connect(&self, node: SocketAddr) -> Opening<SimulatedLane> {
        let world = Arc::clone(&self.world);
        Box::pin(async move {
            let behaviour = world.get(node);
            sleep(2 * behaviour.delay).await;
            if matches!(behaviour.state, NodeState::Down | NodeState::Silent) {
                return Err("nothing listens".to_owned());
            }
            world.opened.fetch_add(1, Ordering::Relaxed);
            let meter = Arc::new(Meter::new(now()));
            let lane = SimulatedLane {
                node,
                world,
                meter: Arc::clone(&meter),
                free_at: Mutex::new(now()),
                is_broken: AtomicBool::new(false),
            };
            Ok((lane, meter))
        })
    }
}

fn node(last: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, last], 9042))
}

const LIMITS: LaneLimits = LaneLimits { least: 2, most: 8 };

async fn three_nodes() -> (Arc<World>, Arc<Lanes<SimulatedConnector>>, Vec<SocketAddr>) {
    nodes_that_are([HEALTHY; 3]).await
}

async fn nodes_that_are(
    behaviours: [Behaviour; 3],
) -> (Arc<World>, Arc<Lanes<SimulatedConnector>>, Vec<SocketAddr>) {
    let world = Arc::new(World::default());
    let nodes: Vec<SocketAddr> = (1..=3).map(node).collect();
    for (node, behaviour) in nodes.iter().zip(behaviours) {
        world.set(*node, behaviour);
    }
    let connector = SimulatedConnector {
        nodes: nodes.clone(),
        world: Arc::clone(&world),
    };
    let lanes = Lanes::start(connector, LIMITS);
    lanes.settled().await;
    (world, lanes, nodes)
}

/// Keeps so many reads on their way for a while; returns how many were answered and the longest wait.
async fn load(
    lanes: &Arc<Lanes<SimulatedConnector>>,
    owners: &[SocketAddr],
    at_once: usize,
    seconds: u64,
) -> (u64, Duration) {
    load_of(lanes, owners, SIZE, at_once, seconds).await
}

async fn load_of(
    lanes: &Arc<Lanes<SimulatedConnector>>,
    owners: &[SocketAddr],
    size: u64,
    at_once: usize,
    seconds: u64,
) -> (u64, Duration) {
    let end = now() + Duration::from_secs(seconds);
    let readers = (0..at_once).map(|_| async {
        let (mut count, mut longest) = (0, Duration::ZERO);
        while now() < end {
            let started = now();
            match lanes.ask(owners, size, None, &size).await {
                Ok(_) => count += 1,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
            longest = longest.max(now() - started);
        }
        (count, longest)
    });
    let results = futures::future::join_all(readers).await;
    let longest = results.iter().map(|(_, longest)| *longest).max();
    (
        results.iter().map(|(count, _)| count).sum(),
        longest.unwrap_or_default(),
    )
}

/// How many reads the first node gets of how many, once it is as healthy as the others and has had this long.
async fn reads_after_recovery(
    (world, lanes, nodes): &(Arc<World>, Arc<Lanes<SimulatedConnector>>, Vec<SocketAddr>),
    at_once: usize,
    recovery_seconds: u64,
    seconds: u64,
) -> (u64, u64) {
    world.set(nodes[0], HEALTHY);
    load(lanes, nodes, at_once, recovery_seconds).await;
    world.take_asked();
    let (count, _) = load(lanes, nodes, at_once, seconds).await;
    (world.take_asked()[&nodes[0]], count)
}

#[tokio::test(start_paused = true)]
async fn healthy_lanes_share_the_reads() {
    let (world, lanes, nodes) = three_nodes().await;
    let (count, _) = load(&lanes, &nodes, 60, 5).await;
    let asked = world.take_asked();
    for node in &nodes {
        let share = asked[node] * 3 * 100 / count;
        assert!((70..=130).contains(&share), "{node}: {share} %");
    }
}

#[tokio::test(start_paused = true)]
async fn only_owners_are_asked_while_they_can_be_reached() {
    let (world, lanes, nodes) = three_nodes().await;
    load(&lanes, &nodes[..2], 10, 2).await;
    assert!(!world.take_asked().contains_key(&nodes[2]));
    for node in &nodes[..2] {
        world.set(*node, DOWN);
    }
    load(&lanes, &nodes[..2], 10, 2).await;
    let (count, _) = load(&lanes, &nodes[..2], 10, 2).await;
    assert!(count > 100, "the third node hands questions on: {count}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_lane_gets_little_and_its_share_again_when_it_recovers() {
    let cluster = three_nodes().await;
    let (world, lanes, nodes) = &cluster;
    load(lanes, nodes, 60, 3).await;
    for slow in [
        Behaviour {
            delay: Duration::from_millis(250),
            ..HEALTHY
        },
        Behaviour {
            rate: 2e6,
            ..HEALTHY
        },
    ] {
        world.set(nodes[0], slow);
        load(lanes, nodes, 60, 5).await;
        world.take_asked();
        let (count, longest) = load(lanes, nodes, 60, 10).await;
        let share = world.take_asked()[&nodes[0]] * 100 / count;
        assert!(share <= 12, "{slow:?} had {share} %");
        // To see how it is, it gets copies: whoever reads does not wait for them.
        assert!(
            longest < Duration::from_millis(200),
            "{slow:?} held a read up for {longest:?}"
        );
        assert!(lanes.extra().probes.load(Ordering::Relaxed) > 0);
        let (own, count) = reads_after_recovery(&cluster, 60, 6, 5).await;
        let share = own * 100 / count;
        assert!(share >= 20, "after {slow:?} it has {share} %");
    }
}

#[tokio::test(start_paused = true)]
async fn reads_on_a_lane_that_falls_silent_are_asked_for_elsewhere() {
    let cluster = three_nodes().await;
    let (world, lanes, nodes) = &cluster;
    load(lanes, nodes, 60, 3).await;
    world.set(
        nodes[0],
        Behaviour {
            state: NodeState::Silent,
            ..HEALTHY
        },
    );
    let (count, longest) = load(lanes, nodes, 60, 8).await;
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    assert!(count > 3000, "{count}");
    let (own, _) = reads_after_recovery(&cluster, 60, 2, 2).await;
    assert!(own > 100, "{own}");
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_is_tried_gently_and_used_again() {
    let cluster = three_nodes().await;
    let (world, lanes, nodes) = &cluster;
    world.set(nodes[0], DOWN);
    load(lanes, nodes, 20, 20).await;
    let (own, _) = reads_after_recovery(&cluster, 20, 5, 2).await;
    assert!(own > 50, "{own}");
}

#[tokio::test(start_paused = true)]
async fn nobody_answers_is_said_soon() {
    let (world, lanes, nodes) = three_nodes().await;
    for node in &nodes {
        world.set(*node, DOWN);
    }
    load(&lanes, &nodes, 6, 2).await;
    let started = now();
    let error = lanes.ask(&nodes, SIZE, None, &SIZE).await.unwrap_err();
    assert!(now() - started < Duration::from_secs(4));
    assert!(error.to_string().contains("nothing listens"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn lanes_grow_with_the_bytes_on_their_way_and_shrink_again() {
    let (_, lanes, nodes) = three_nodes().await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(lanes.stats().len(), 6);
    load(&lanes, &nodes, 400, 5).await;
    let many = lanes.stats().len();
    assert!((18..=24).contains(&many), "{many}");
    load(&lanes, &nodes, 4, 60).await;
    assert!(lanes.stats().len() <= 9, "{}", lanes.stats().len());
}

#[tokio::test(start_paused = true)]
async fn hedges_keep_their_budget() {
    let (world, lanes, nodes) = three_nodes().await;
    let (before, _) = load(&lanes, &nodes, 30, 3).await;
    world.set(
        nodes[0],
        Behaviour {
            delay: Duration::from_millis(400),
            ..HEALTHY
        },
    );
    let (after, _) = load(&lanes, &nodes, 30, 10).await;
    let (count, hedges) = (before + after, lanes.extra().hedges.load(Ordering::Relaxed));
    assert!(hedges > 0);
    // The last thirty had been asked for, but not answered.
    assert!(hedges <= (count + 30) / 20, "{hedges} of {count}");
}

#[tokio::test(start_paused = true)]
async fn when_all_stand_still_for_a_moment_nothing_is_asked_for_twice() {
    let (world, lanes, nodes) = three_nodes().await;
    load(&lanes, &nodes, 60, 3).await;
    let set_all = |behaviour| nodes.iter().for_each(|node| world.set(*node, behaviour));
    let before = lanes.extra().hedges.load(Ordering::Relaxed);
    let stalls = async {
        for _ in 0..10 {
            sleep(Duration::from_millis(500)).await;
            set_all(Behaviour {
                state: NodeState::Silent,
                ..HEALTHY
            });
            sleep(Duration::from_millis(100)).await;
            set_all(HEALTHY);
        }
    };
    let ((count, _), ()) = tokio::join!(load(&lanes, &nodes, 60, 6), stalls);
    let hedges = lanes.extra().hedges.load(Ordering::Relaxed) - before;
    assert!(hedges * 1000 <= count, "{hedges} of {count}");
}

#[tokio::test(start_paused = true)]
async fn lanes_carry_samples_that_are_larger_than_what_any_has_proven() {
    const LARGE: u64 = 1_000_000;
    let (world, lanes, nodes) = three_nodes().await;
    load_of(&lanes, &nodes, LARGE, 48, 10).await;
    let stats = lanes.stats();
    assert!(stats.len() >= 18, "{} lanes", stats.len());
    let least = stats.iter().map(|lane| lane.reading.answers).min();
    assert!(least >= Some(20), "{least:?} answers on one of the lanes");
    world.set(nodes[0], DOWN);
    load_of(&lanes, &nodes, LARGE, 48, 3).await;
    world.set(nodes[0], HEALTHY);
    load_of(&lanes, &nodes, LARGE, 48, 6).await;
    world.take_asked();
    let (count, _) = load_of(&lanes, &nodes, LARGE, 48, 5).await;
    let share = world.take_asked()[&nodes[0]] * 100 / count;
    assert!(share >= 20, "the node that came back has {share} %");
}

#[tokio::test(start_paused = true)]
async fn an_error_is_not_held_back_by_a_lane_that_is_silent() {
    let (world, lanes, nodes) = three_nodes().await;
    load(&lanes, &nodes, 10, 1).await;
    let frozen = Behaviour {
        state: NodeState::Silent,
        ..HEALTHY
    };
    world.set(nodes[0], frozen);
    for node in &nodes[1..] {
        world.set(*node, DOWN);
    }
    let started = now();
    let asked = lanes.ask(&nodes[..1], SIZE, None, &SIZE).await;
    let error = asked.unwrap_err().to_string();
    assert!(error.contains("reset"), "{error}");
    let waited = now() - started;
    assert!(waited < Duration::from_secs(3), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_ends_every_connection_is_opened_gently() {
    let (world, lanes, nodes) = three_nodes().await;
    let resetting = Behaviour {
        delay: Duration::from_millis(1),
        state: NodeState::Resetting,
        ..HEALTHY
    };
    world.set(nodes[0], resetting);
    let before = world.opened.load(Ordering::Relaxed);
    load(&lanes, &nodes, 20, 20).await;
    let opened = world.opened.load(Ordering::Relaxed) - before;
    assert!(opened < 30, "opened {opened} times");
    world.set(nodes[0], HEALTHY);
    load(&lanes, &nodes, 20, 5).await;
    world.take_asked();
    load(&lanes, &nodes, 20, 2).await;
    assert!(world.take_asked()[&nodes[0]] > 50);
}

#[tokio::test(start_paused = true)]
async fn reads_without_a_lane_wait_until_they_are_told() {
    let (world, lanes, nodes) = three_nodes().await;
    let full = Behaviour {
        state: NodeState::Full,
        ..HEALTHY
    };
    for node in &nodes {
        world.set(*node, full);
    }
    sleep(Duration::from_millis(200)).await;
    let before = world.looks.load(Ordering::Relaxed);
    let started = now();
    let waiting = (0..1000).map(|_| lanes.ask(&nodes, SIZE, None, &SIZE));
    let recover = async {
        sleep(Duration::from_millis(450)).await;
        let looks = world.looks.load(Ordering::Relaxed) - before;
        for node in &nodes {
            world.set(*node, HEALTHY);
        }
        looks
    };
    let (answers, looks) = futures::join!(futures::future::join_all(waiting), recover);
    // A read looks at six lanes up to three times, and does so once or twice in this time.
    assert!(looks < 1000 * 6 * 3 * 4, "{looks} looks");
    assert!(answers.iter().all(Result::is_ok));
    assert!(now() - started < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_is_waited_for_while_its_bytes_come() {
    const LARGE: u64 = 20 << 20;
    let slow = Behaviour {
        rate: 500e3,
        ..HEALTHY
    };
    // 42 seconds: alone, or with a copy of it on a second lane that is no faster.
    for warm_up_seconds in [0, 3] {
        let (world, lanes, nodes) = three_nodes().await;
        load(&lanes, &nodes, 30, warm_up_seconds).await;
        for node in &nodes {
            world.set(*node, slow);
        }
        let asked = lanes.ask(&nodes, LARGE, None, &LARGE).await;
        assert!(asked.is_ok(), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_noticed_after_the_time_that_its_size_may_take() {
    const LARGE: u64 = 20 << 20;
    // Bytes come, but the answer that is waited for is not among them.
    let lost = Behaviour {
        rate: 1e3,
        ..HEALTHY
    };
    for (size, patience_seconds) in [(SIZE, 15), (LARGE, 15 + 80), (0, 15 + 256)] {
        let (_, lanes, nodes) = nodes_that_are([lost; 3]).await;
        let started = now();
        let error = lanes.ask(&nodes, size, None, &LARGE).await.unwrap_err();
        assert!(error.to_string().contains("does not answer"), "{error}");
        let waited = (now() - started).as_secs();
        assert_eq!(waited, patience_seconds, "{size} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_frozen_node_does_not_hold_up_the_start() {
    let frozen = Behaviour {
        delay: Duration::from_millis(2500),
        state: NodeState::Silent,
        ..HEALTHY
    };
    let started = now();
    let (_, lanes, nodes) = nodes_that_are([frozen, HEALTHY, HEALTHY]).await;
    let waited = now() - started;
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    assert!(lanes.ask(&nodes, SIZE, None, &SIZE).await.is_ok());
    // Where no node has a lane yet, the first one is waited for.
    let started = now();
    nodes_that_are([frozen; 3]).await;
    assert!(now() - started >= Duration::from_secs(5));
}
