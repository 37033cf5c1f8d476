//! How many lanes there should be, and what is done about those that are silent, broken or too many.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Open, PROBE_AFTER, Roster, Slot, Trouble};
use crate::lanes::{Condition, GIVE_UP, Lane, Meter, Shard, hedging};

/// Bytes on their way that one lane is meant for. A connection carries one TCP window a round trip, which is
/// 4 to 6 MB on an ordinary system; half of it leaves room for uneven lanes.
const LANE_BYTES: u64 = 2 << 20;
/// A far node gets so many lanes from the start: opening one takes three round trips, too long to wait for.
const FAR_LANES: usize = 8;
const FAR: Duration = Duration::from_millis(40);
/// A node of several shards gets a lane for each of them, up to this many: it spreads connections over its shards.
const SHARD_LANES: usize = 8;
/// The most bytes on their way are remembered for one to two of these; so long a spare lane is kept.
const PEAK_MEMORY: Duration = Duration::from_secs(15);
/// Silence for so many delays, within these bounds, means that something is wrong.
const SILENT_DELAYS: u32 = 6;
const SILENT_LEAST: Duration = Duration::from_secs(1);
const SILENT_MOST: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);
const PATIENCE_EVERY: Duration = Duration::from_millis(200);

impl Trouble {
    fn count(&mut self, now: Instant) {
        let pause = FIRST_PAUSE * (1 << self.failures.min(5));
        self.failures += 1;
        self.not_before = Some(now + pause.min(LAST_PAUSE));
    }
}

impl<L: Lane> Roster<L> {
    /// One round of care; returns the lanes to be opened.
    pub fn look_after(&mut self, now: Instant, nodes: &[SocketAddr]) -> Vec<(u64, SocketAddr)> {
        self.nodes = nodes.to_vec();
        self.troubles.retain(|node, _| nodes.contains(node));
        self.see_first_answers();
        self.drop_bad(now);
        self.mark_silent(now);
        self.set_patience(now);
        self.see_peak(now);
        self.close_spare();
        self.find_forgotten(now);
        self.open_missing(now)
    }

    fn find_forgotten(&mut self, now: Instant) {
        let forgotten = self
            .open()
            .filter(|(_, open)| open.is_usable() && open.meter.is_forgotten(now, PROBE_AFTER));
        self.forgotten = forgotten.map(|(slot, _)| slot.number).collect();
    }

    /// The first answer to a read on a new lane ends the trouble with its node. To be let in is not enough.
    fn see_first_answers(&mut self) {
        for slot in &mut self.slots {
            if let Some(open) = &mut slot.open
                && !open.has_answered
                && open.meter.reading().answers > open.answers_at_first
            {
                open.has_answered = true;
                self.troubles.remove(&slot.node);
            }
        }
    }

    fn drop_bad(&mut self, now: Instant) {
        let mut failed = HashSet::new();
        let nodes = &self.nodes;
        self.slots.retain(|slot| {
            let is_bad = slot.open.as_ref().is_some_and(|open| {
                let is_broken = open.lane.condition() == Condition::Broken;
                let is_bad = is_broken || open.meter.silence(now) >= GIVE_UP;
                if is_bad && !open.has_answered {
                    failed.insert(slot.node);
                }
                is_bad
            });
            !is_bad && nodes.contains(&slot.node)
        });
        for node in failed {
            self.troubles.entry(node).or_default().count(now);
            self.last_failure = Some(format!(
                "{node}: the connection ended before it answered a read"
            ));
        }
    }

    fn mark_silent(&self, now: Instant) {
        for (_, open) in self.open() {
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
        let delays = self.open().map(|(_, open)| open.meter.recent_delays(now));
        let patience = hedging::patience(&delays.collect::<Vec<_>>());
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
        let readings = self.open().map(|(_, open)| open.meter.reading());
        let outstanding = readings.map(|reading| reading.outstanding_bytes).sum();
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
        let shards = self.open_of(node).filter_map(|open| open.lane.shard());
        let shard_count = shards.map(|shard| shard.count as usize).max().unwrap_or(1);
        let wanted = by_bytes.max(at_least).div_ceil(node_count);
        wanted
            .max(shard_count.min(SHARD_LANES))
            .clamp(self.limits.least, self.limits.most)
    }

    fn close_spare(&mut self) {
        for node in self.nodes.clone() {
            let mut spare = self.open_of(node).count().saturating_sub(self.wanted(node));
            // Those that share a shard with another lane go first; without shards all of them do.
            for is_any in [false, true] {
                let mut number_of = self.lanes_by_shard(node);
                self.slots.retain(|slot| {
                    let Some(open) = slot.open.as_ref().filter(|_| slot.node == node) else {
                        return true;
                    };
                    let alike = number_of.iter_mut().find(|(s, _)| *s == open.lane.shard());
                    let Some((_, alike)) = alike else { return true };
                    let is_idle = open.meter.reading().outstanding == 0;
                    let is_spare = spare > 0 && is_idle && (is_any || *alike > 1);
                    *alike -= usize::from(is_spare);
                    spare -= usize::from(is_spare);
                    !is_spare
                });
            }
        }
    }

    fn lanes_by_shard(&self, node: SocketAddr) -> Vec<(Option<Shard>, usize)> {
        let mut counts = Vec::new();
        for shard in self.open_of(node).map(|open| open.lane.shard()) {
            match counts.iter_mut().find(|(known, _)| *known == shard) {
                Some((_, count)) => *count += 1,
                None => counts.push((shard, 1)),
            }
        }
        counts
    }

    fn open_missing(&mut self, now: Instant) -> Vec<(u64, SocketAddr)> {
        let mut openings = Vec::new();
        for node in self.nodes.clone() {
            let trouble = self.troubles.entry(node).or_default();
            if trouble.not_before.is_some_and(|at| now < at) {
                continue;
            }
            // A node that answers nobody is tried by one connection at a time.
            let is_troubled = trouble.failures > 0;
            let is_answering = self
                .open_of(node)
                .any(|open| open.has_answered || !is_troubled);
            let wanted = if is_answering { self.wanted(node) } else { 1 };
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
        match opened {
            Ok((lane, meter)) => {
                if let Some(rate) = self.usual_rate(node) {
                    meter.expect_rate(rate);
                }
                self.slots[place].open = Some(Open {
                    lane: Arc::new(lane),
                    answers_at_first: meter.reading().answers,
                    meter,
                    standing: Arc::default(),
                    patience: None,
                    has_answered: false,
                });
            }
            Err(reason) => {
                self.troubles.entry(node).or_default().count(now);
                self.last_failure = Some(format!("{node}: {reason}"));
                self.slots.swap_remove(place);
            }
        }
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
}
