//! Which lanes there are, which of them a read gets, and how many there should be.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::hedging::{self, Budget};
use super::{Chosen, Lane, LaneLimits, LaneStats, Meter, Outlook};

/// Bytes on their way that one lane is meant for. A connection carries one TCP window a round trip, which is
/// 4 to 6 MB on an ordinary system; half of it leaves room for uneven lanes.
const LANE_BYTES: u64 = 2 << 20;
/// A far node gets so many lanes from the start: opening one takes three round trips, too long to wait for.
const FAR_LANES: usize = 8;
const FAR: Duration = Duration::from_millis(40);
/// The most bytes on their way are remembered for one to two of these; so long a spare lane is kept.
const PEAK_MEMORY: Duration = Duration::from_secs(15);
/// A lane that has had nothing to do for so long gets one read, to see how it is now.
const PROBE_AFTER: Duration = Duration::from_secs(1);
/// Silence for so many delays, within these bounds, means that something is wrong.
const SILENT_DELAYS: u32 = 6;
const SILENT_LEAST: Duration = Duration::from_secs(1);
const SILENT_MOST: Duration = Duration::from_secs(3);
/// How long a read waits for lanes that are being opened, and for silent ones to be heard again.
const OPENING: Duration = Duration::from_secs(2);
const HEARD_AGAIN: Duration = Duration::from_millis(500);
/// A silent lane is given up then; a node that was frozen comes back before.
const GIVE_UP: Duration = Duration::from_secs(12);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);
const PATIENCE_EVERY: Duration = Duration::from_millis(200);

/// What a read that waits may ask about its lane.
#[derive(Debug, Default)]
pub(super) struct Standing {
    is_silent: AtomicBool,
    hedged: AtomicU64,
}

impl Standing {
    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    pub fn count_hedge(&self) {
        self.hedged.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Slot<L> {
    number: u64,
    node: SocketAddr,
    /// None while it is being opened.
    open: Option<Open<L>>,
}

#[derive(Debug)]
struct Open<L> {
    lane: Arc<L>,
    meter: Arc<Meter>,
    standing: Arc<Standing>,
    patience: Option<Duration>,
}

/// How opening lanes to a node has gone.
#[derive(Debug, Default)]
struct Trouble {
    failures: u32,
    not_before: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Roster<L> {
    limits: LaneLimits,
    slots: Vec<Slot<L>>,
    nodes: Vec<SocketAddr>,
    troubles: HashMap<SocketAddr, Trouble>,
    last_number: u64,
    budget: Budget,
    peak_bytes: u64,
    peak_before: u64,
    peak_since: Option<Instant>,
    patience_at: Option<Instant>,
    last_failure: Option<String>,
    is_closed: bool,
}

impl<L: Lane> Roster<L> {
    pub fn new(limits: LaneLimits) -> Self {
        Self {
            limits,
            slots: Vec::new(),
            nodes: Vec::new(),
            troubles: HashMap::new(),
            last_number: 0,
            budget: Budget::default(),
            peak_bytes: 0,
            peak_before: 0,
            peak_since: None,
            patience_at: None,
            last_failure: None,
            is_closed: false,
        }
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub fn close(&mut self) {
        self.is_closed = true;
        self.slots.clear();
    }

    /// How long a read may wait for a lane when none can be used.
    pub fn worth_waiting(&self) -> Duration {
        if self.is_closed || self.slots.is_empty() {
            return Duration::ZERO;
        }
        let is_opening = self.slots.iter().any(|slot| slot.open.is_none());
        if is_opening { OPENING } else { HEARD_AGAIN }
    }

    pub fn is_settled(&self) -> bool {
        self.is_closed
            || self.nodes.iter().all(|node| {
                let has_lane = self.open_of(*node).next().is_some();
                let has_failed = self.troubles.get(node).is_some_and(|t| t.failures > 0);
                has_lane || has_failed
            })
    }

    pub fn why_none(&self) -> String {
        if self.is_closed {
            return "the store is closed".to_owned();
        }
        if self.slots.iter().any(|slot| slot.open.is_some()) {
            return "all connections are silent".to_owned();
        }
        let reason = self.last_failure.as_deref();
        reason.unwrap_or("connections are being opened").to_owned()
    }

    pub fn spend_hedge(&mut self) -> bool {
        self.budget.spend()
    }

    /// The lane for a read: that of an owner with the earliest expected finish. Other nodes can find the bytes
    /// too, but they only hand the question on.
    pub fn choose(
        &mut self,
        now: Instant,
        owners: &[SocketAddr],
        size_bytes: u64,
        not: Option<SocketAddr>,
    ) -> Option<Chosen<L>> {
        self.budget.earn();
        let is_owner = |slot: &Slot<L>| owners.contains(&slot.node);
        let is_other = |slot: &Slot<L>| Some(slot.node) != not;
        self.earliest(now, size_bytes, |slot| is_owner(slot) && is_other(slot))
            .or_else(|| self.earliest(now, size_bytes, is_other))
            .or_else(|| self.earliest(now, size_bytes, |_| true))
    }

    /// A lane for a second try, to another node where there is one.
    pub fn choose_other(
        &mut self,
        now: Instant,
        owners: &[SocketAddr],
        size_bytes: u64,
        number: u64,
    ) -> Option<Chosen<L>> {
        let first = self.slots.iter().find(|slot| slot.number == number);
        let node = first.map(|slot| slot.node);
        let is_other = |slot: &Slot<L>| slot.number != number;
        let is_elsewhere = |slot: &Slot<L>| Some(slot.node) != node;
        self.earliest(now, size_bytes, |slot| {
            is_elsewhere(slot) && owners.contains(&slot.node)
        })
        .or_else(|| self.earliest(now, size_bytes, is_other))
    }

    fn earliest(
        &self,
        now: Instant,
        size_bytes: u64,
        may: impl Fn(&Slot<L>) -> bool,
    ) -> Option<Chosen<L>> {
        let usable = self
            .slots
            .iter()
            .filter(|slot| may(slot))
            .filter_map(|slot| {
                let open = slot.open.as_ref()?;
                let is_usable = !open.standing.is_silent() && !open.lane.is_broken();
                is_usable.then_some((slot, open))
            });
        let seen: Vec<(&Slot<L>, &Open<L>, Outlook)> = usable
            .map(|(slot, open)| (slot, open, open.meter.outlook(now, size_bytes)))
            .collect();
        let delays = seen.iter().map(|(_, _, outlook)| outlook.delay);
        let least_delay = delays.fold(f64::INFINITY, f64::min);
        let finish = |open: &Open<L>, outlook: &Outlook| {
            if open.meter.is_forgotten(now, PROBE_AFTER) {
                return 0.0;
            }
            outlook.finish(least_delay)
        };
        let earliest = |is_proven: bool| {
            let seen = seen.iter().filter(|(_, _, o)| o.is_proven == is_proven);
            let finishes = seen.map(|(slot, open, outlook)| (finish(open, outlook), slot, open));
            finishes.min_by(|(one, ..), (two, ..)| one.total_cmp(two))
        };
        let (finish, slot, open) = earliest(true).or_else(|| earliest(false))?;
        Some(Chosen {
            lane: Arc::clone(&open.lane),
            number: slot.number,
            node: slot.node,
            finish,
            patience: open.patience,
            standing: Arc::clone(&open.standing),
        })
    }

    /// What the lanes of a node have come to, on average.
    fn usual_rate(&self, node: SocketAddr) -> Option<f64> {
        let readings = self.open_of(node).map(|open| open.meter.reading());
        let rates: Vec<f64> = readings
            .filter(|reading| reading.answers > 0)
            .map(|reading| reading.rate)
            .collect();
        #[allow(clippy::cast_precision_loss)] // a few lanes
        let count = rates.len() as f64;
        (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / count)
    }

    fn open_of(&self, node: SocketAddr) -> impl Iterator<Item = &Open<L>> {
        self.slots
            .iter()
            .filter(move |slot| slot.node == node)
            .filter_map(|slot| slot.open.as_ref())
    }

    /// One round of care; returns the lanes to be opened.
    pub fn look_after(&mut self, now: Instant, nodes: &[SocketAddr]) -> Vec<(u64, SocketAddr)> {
        self.nodes = nodes.to_vec();
        self.troubles.retain(|node, _| nodes.contains(node));
        self.slots.retain(|slot| {
            let is_bad = slot
                .open
                .as_ref()
                .is_some_and(|open| open.lane.is_broken() || open.meter.silence(now) >= GIVE_UP);
            !is_bad && nodes.contains(&slot.node)
        });
        self.mark_silent(now);
        self.set_patience(now);
        self.see_peak(now);
        self.close_spare();
        self.open_missing(now)
    }

    fn mark_silent(&self, now: Instant) {
        for open in self.slots.iter().filter_map(|slot| slot.open.as_ref()) {
            let limit = open.meter.reading().delay * SILENT_DELAYS;
            let is_silent = open.meter.silence(now) >= limit.clamp(SILENT_LEAST, SILENT_MOST);
            open.standing.is_silent.store(is_silent, Ordering::Relaxed);
        }
    }

    fn set_patience(&mut self, now: Instant) {
        if self.patience_at.is_some_and(|at| now < at + PATIENCE_EVERY) {
            return;
        }
        self.patience_at = Some(now);
        let open = || self.slots.iter().filter_map(|slot| slot.open.as_ref());
        let delays: Vec<_> = open().map(|open| open.meter.recent_delays(now)).collect();
        let patience = hedging::patience(&delays);
        let open = self.slots.iter_mut().filter_map(|slot| slot.open.as_mut());
        for (open, patience) in open.zip(patience) {
            open.patience = patience;
        }
    }

    fn see_peak(&mut self, now: Instant) {
        let since = *self.peak_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= PEAK_MEMORY {
            self.peak_since = Some(now);
            self.peak_before = self.peak_bytes;
            self.peak_bytes = 0;
        }
        let open = self.slots.iter().filter_map(|slot| slot.open.as_ref());
        let outstanding = open
            .map(|open| open.meter.reading().outstanding_bytes)
            .sum();
        self.peak_bytes = self.peak_bytes.max(outstanding);
    }

    /// How many lanes a node should have.
    fn wanted(&self, node: SocketAddr) -> usize {
        let node_count = self.nodes.len().max(1);
        let bytes = self.peak_bytes.max(self.peak_before);
        let by_bytes = usize::try_from(bytes.div_ceil(LANE_BYTES)).unwrap_or(usize::MAX);
        let is_far = self
            .open_of(node)
            .any(|open| open.meter.reading().delay >= FAR);
        let at_least = if is_far { FAR_LANES } else { 1 };
        let wanted = by_bytes.max(at_least).div_ceil(node_count);
        wanted.clamp(self.limits.least, self.limits.most)
    }

    fn close_spare(&mut self) {
        for node in self.nodes.clone() {
            let wanted = self.wanted(node);
            let mut open_count = self.open_of(node).count();
            self.slots.retain(|slot| {
                let is_idle = slot.node == node
                    && slot
                        .open
                        .as_ref()
                        .is_some_and(|o| o.meter.reading().outstanding == 0);
                let is_spare = is_idle && open_count > wanted;
                open_count -= usize::from(is_spare);
                !is_spare
            });
        }
    }

    fn open_missing(&mut self, now: Instant) -> Vec<(u64, SocketAddr)> {
        let mut openings = Vec::new();
        for node in self.nodes.clone() {
            let trouble = self.troubles.entry(node).or_default();
            if trouble.not_before.is_some_and(|at| now < at) {
                continue;
            }
            // A node that answers nobody is tried by one connection at a time.
            let has_open = self.open_of(node).next().is_some();
            let wanted = if has_open { self.wanted(node) } else { 1 };
            let have = self.slots.iter().filter(|slot| slot.node == node).count();
            for _ in have..wanted {
                self.last_number += 1;
                let number = self.last_number;
                self.slots.push(Slot {
                    number,
                    node,
                    open: None,
                });
                openings.push((number, node));
            }
        }
        openings
    }

    pub fn opened(&mut self, now: Instant, number: u64, opened: Result<(L, Arc<Meter>), String>) {
        let Some(place) = self.slots.iter().position(|slot| slot.number == number) else {
            return;
        };
        let node = self.slots[place].node;
        let trouble = self.troubles.entry(node).or_default();
        match opened {
            Ok((lane, meter)) => {
                *trouble = Trouble::default();
                if let Some(rate) = self.usual_rate(node) {
                    meter.expect_rate(rate);
                }
                self.slots[place].open = Some(Open {
                    lane: Arc::new(lane),
                    meter,
                    standing: Arc::default(),
                    patience: None,
                });
            }
            Err(reason) => {
                let pause = FIRST_PAUSE * (1 << trouble.failures.min(5));
                trouble.failures += 1;
                trouble.not_before = Some(now + pause.min(LAST_PAUSE));
                self.last_failure = Some(format!("{node}: {reason}"));
                self.slots.swap_remove(place);
            }
        }
    }

    pub fn stats(&self) -> Vec<LaneStats> {
        let open = self
            .slots
            .iter()
            .filter_map(|slot| Some((slot, slot.open.as_ref()?)));
        open.map(|(slot, open)| LaneStats {
            node: slot.node,
            state: if open.standing.is_silent() {
                "silent"
            } else {
                "open"
            },
            reading: open.meter.reading(),
            hedged: open.standing.hedged.load(Ordering::Relaxed),
        })
        .collect()
    }
}
