//! Choosing and caring, on lanes whose meters say what the test wants.

use futures::future::BoxFuture;

use super::*;
use crate::lanes::{Arrival, Shard};

const MS: Duration = Duration::from_millis(1);
const SIZE: u64 = 100_000;
const LIMITS: LaneLimits = LaneLimits { least: 1, most: 8 };

/// A lane of a shard; its questions are shards.
#[derive(Debug, Default)]
struct Still {
    shard: Option<Shard>,
    is_full: bool,
    is_broken: Arc<AtomicBool>,
}

impl Lane for Still {
    type Question = u32;
    type Answer = ();
    type Error = String;

    fn ask<'a>(&'a self, _: &'a u32) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn condition(&self) -> Condition {
        if self.is_broken.load(Ordering::Relaxed) {
            Condition::Broken
        } else if self.is_full {
            Condition::Full
        } else {
            Condition::Ready
        }
    }

    fn shard(&self) -> Option<Shard> {
        self.shard
    }

    fn is_home_of(&self, question: &u32) -> bool {
        self.shard.is_none_or(|shard| shard.index == *question)
    }
}

fn on_shard(index: u32, count: u32) -> Still {
    Still {
        shard: Some(Shard { index, count }),
        ..Still::default()
    }
}

fn node(last: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, last], 9042))
}

fn inquiry<'a>(question: &'a u32, owners: &'a [SocketAddr]) -> Inquiry<'a, u32> {
    Inquiry {
        question,
        size_bytes: SIZE,
        owners,
        not: None,
    }
}

/// A meter with one answer behind it.
fn meter(asked_at: Instant, delay: Duration) -> Arc<Meter> {
    let meter = Arc::new(Meter::new(asked_at));
    answer(&meter, asked_at, delay);
    meter
}

fn answer(meter: &Meter, asked_at: Instant, delay: Duration) {
    meter.asked(asked_at, SIZE);
    meter.answered(&Arrival {
        asked_bytes: SIZE,
        bytes: SIZE,
        asked_at,
        head_at: asked_at + delay,
        end_at: asked_at + delay + 2 * MS,
    });
}

/// Opens what the roster asks for, lane after lane.
fn open_all(
    roster: &mut Roster<Still>,
    now: Instant,
    nodes: &[SocketAddr],
    mut lane: impl FnMut(SocketAddr) -> (Still, Arc<Meter>),
) -> usize {
    let openings = roster.look_after(now, nodes);
    for (number, node) in &openings {
        roster.opened(now, *number, Ok(lane(*node)));
    }
    openings.len()
}

#[test]
fn looking_for_a_lane_earns_no_hedge_until_one_is_found() {
    let now = Instant::now();
    let nodes = [node(1)];
    let mut roster = Roster::new(LIMITS);
    let still_opening = roster.look_after(now, &nodes);
    for _ in 0..1000 {
        assert!(roster.choose(now, &inquiry(&0, &nodes)).is_none());
    }
    assert!(!roster.spend_hedge());
    let opened = Ok((Still::default(), meter(now, MS)));
    roster.opened(now, still_opening[0].0, opened);
    for _ in 0..20 {
        assert!(roster.choose(now, &inquiry(&0, &nodes)).is_some());
    }
    assert!(roster.spend_hedge() && !roster.spend_hedge());
}

#[test]
fn a_far_node_gets_its_lanes_before_anything_is_on_its_way() {
    for (delay, lanes) in [(150 * MS, 8), (MS, 1)] {
        let now = Instant::now();
        let nodes = [node(1)];
        let mut roster = Roster::new(LIMITS);
        let mut open = || {
            open_all(&mut roster, now, &nodes, |_| {
                (Still::default(), meter(now, delay))
            })
        };
        let opened: usize = (0..3).map(|_| open()).sum();
        assert_eq!(opened, lanes, "at {delay:?}");
    }
}

#[test]
fn a_lane_that_was_forgotten_gets_a_copy_and_nobody_waits_for_it() {
    let begin = Instant::now();
    let nodes = [node(1), node(2), node(3)];
    let mut roster = Roster::new(LIMITS);
    let now = begin + 10 * PROBE_AFTER;
    let delays = [5 * MS, 5000 * MS, 10 * MS];
    open_all(&mut roster, now, &nodes, |at| {
        let which = nodes.iter().position(|known| *known == at).unwrap();
        let meter = meter(begin, delays[which]);
        if which != 1 {
            answer(&meter, now, delays[which]);
        }
        (Still::default(), meter)
    });
    roster.look_after(now, &nodes);
    let mut probed = 0;
    for _ in 0..200 {
        let first = roster.choose(now, &inquiry(&0, &nodes)).unwrap();
        assert_eq!(first.node, nodes[0], "no read goes to the slow one");
        let only_others = [nodes[0], nodes[2]];
        assert!(roster.probe(&inquiry(&0, &only_others), &first).is_none());
        probed += usize::from(roster.probe(&inquiry(&0, &nodes), &first).is_some());
        let second = roster.choose_other(now, &inquiry(&0, &nodes), first.number);
        assert_eq!(second.unwrap().node, nodes[2]);
    }
    assert_eq!(
        probed, 1,
        "it is looked at once, until the next round of care"
    );
    let mut copies = 0;
    for _ in 0..200 {
        roster.look_after(now, &nodes);
        let first = roster.choose(now, &inquiry(&0, &nodes)).unwrap();
        copies += usize::from(roster.probe(&inquiry(&0, &nodes), &first).is_some());
    }
    assert!(
        (4..=8).contains(&copies),
        "{copies} of 200 reads were copied"
    );
}

#[test]
fn a_full_lane_is_passed_over_and_named_when_there_is_no_other() {
    let now = Instant::now();
    let nodes = [node(1), node(2)];
    let mut roster = Roster::new(LIMITS);
    let lane = |at| {
        let is_full = at == node(1);
        let still = Still {
            is_full,
            ..Still::default()
        };
        (still, meter(now, if is_full { MS } else { 50 * MS }))
    };
    open_all(&mut roster, now, &nodes, lane);
    let chosen = roster.choose(now, &inquiry(&0, &nodes)).unwrap();
    assert_eq!(chosen.node, nodes[1]);
    assert!(roster.is_any_usable());
    roster.look_after(now, &nodes[..1]);
    assert!(roster.choose(now, &inquiry(&0, &nodes)).is_none());
    assert!(!roster.is_any_usable());
    let reason = roster.why_none();
    assert!(reason.contains("as many reads"), "{reason}");
    assert_eq!(roster.stats()[0].state, "full");
}

#[test]
fn a_node_that_lets_in_and_throws_out_is_tried_less_and_less() {
    let begin = Instant::now();
    let nodes = [node(1)];
    let mut roster = Roster::new(LIMITS);
    let mut opened = 0;
    for tick in 0..400 {
        let now = begin + tick * 50 * MS;
        // Logging in has answers too, and every lane breaks before the next round.
        opened += open_all(&mut roster, now, &nodes, |_| {
            let still = Still::default();
            still.is_broken.store(true, Ordering::Relaxed);
            (still, meter(now, MS))
        });
    }
    assert!((8..=20).contains(&opened), "opened {opened} times in 20 s");
    assert!(roster.why_none().contains("before it answered a read"));
}

#[test]
fn a_lane_that_answered_before_it_broke_is_opened_again_at_once() {
    let begin = Instant::now();
    let nodes = [node(1)];
    let mut roster = Roster::new(LIMITS);
    let broken = Arc::new(AtomicBool::new(false));
    for tick in 0..20 {
        let now = begin + tick * 50 * MS;
        let mut last = None;
        let opened = open_all(&mut roster, now, &nodes, |_| {
            let meter = meter(now, MS);
            last = Some(Arc::clone(&meter));
            broken.store(false, Ordering::Relaxed);
            let is_broken = Arc::clone(&broken);
            (
                Still {
                    is_broken,
                    ..Still::default()
                },
                meter,
            )
        });
        assert_eq!(opened, 1);
        answer(&last.unwrap(), now, MS);
        broken.store(true, Ordering::Relaxed);
    }
}

#[test]
fn among_equal_lanes_the_one_on_the_right_shard_is_taken() {
    let now = Instant::now();
    let nodes = [node(1)];
    let mut roster = Roster::new(LIMITS);
    let mut next = 0;
    let mut lane = |_| {
        next += 1;
        (on_shard(next - 1, 4), meter(now, 10 * MS))
    };
    assert_eq!(open_all(&mut roster, now, &nodes, &mut lane), 1);
    assert_eq!(
        open_all(&mut roster, now, &nodes, &mut lane),
        3,
        "one for each"
    );
    assert_eq!(open_all(&mut roster, now, &nodes, &mut lane), 0);
    for shard in 0..4 {
        let chosen = roster.choose(now, &inquiry(&shard, &nodes)).unwrap();
        assert_eq!(chosen.lane.shard.unwrap().index, shard);
    }
    let home = roster.open().find(|(_, open)| open.lane.is_home_of(&2));
    let busy = Arc::clone(&home.unwrap().1.meter);
    busy.asked(now, SIZE);
    let mut choose = |now| roster.choose(now, &inquiry(&2, &nodes)).unwrap();
    let chosen = choose(now + 6 * MS);
    assert_eq!(chosen.lane.shard.unwrap().index, 2, "it ends in time");
    busy.asked(now, 7 * SIZE);
    let chosen = choose(now + 6 * MS);
    assert_ne!(
        chosen.lane.shard.unwrap().index,
        2,
        "the earliest finish stays the rule"
    );
}

#[test]
fn lanes_that_share_a_shard_are_closed_first() {
    let now = Instant::now();
    let nodes = [node(1)];
    let mut roster = Roster::new(LaneLimits { least: 6, most: 8 });
    let mut next = 0;
    open_all(&mut roster, now, &nodes, |_| {
        (on_shard(0, 3), meter(now, MS))
    });
    open_all(&mut roster, now, &nodes, |_| {
        next += 1;
        (on_shard(next % 3, 3), meter(now, MS))
    });
    assert_eq!(roster.stats().len(), 6);
    roster.limits.least = 1;
    roster.look_after(now, &nodes);
    let mut shards: Vec<_> = roster
        .stats()
        .iter()
        .map(|s| s.shard.unwrap().index)
        .collect();
    shards.sort_unstable();
    assert_eq!(shards, [0, 1, 2]);
}
