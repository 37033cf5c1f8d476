//! Which lanes there are, and which of them a read gets.

mod care;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::hedging::{self, Budget};
use super::outlook::Usual;
use super::{Chosen, Condition, Inquiry, Lane, LaneLimits, LaneStats, Meter, Outlook};

/// A lane that has had nothing to do for so long gets a copy of a read, to see how it is now. Whoever reads does not
/// wait for it: most likely the lane got nothing because it is slow.
const PROBE_AFTER: Duration = Duration::from_secs(1);
/// Share of all reads that may be copied for this.
const PROBE_SHARE: f64 = 0.02;
/// A lane that would have much more on its way than it has lately carried is expected to take so many times longer.
const UNPROVEN: f64 = 2.0;
/// What the detour inside a node counts for when a lane does not end where the answer lies: less than the queue of one
/// ordinary answer, so that it decides between lanes that are about equal.
const DETOUR_SECONDS: f64 = 0.001;
/// How long a read waits for lanes that are being opened, and for silent ones to be heard again.
const OPENING: Duration = Duration::from_secs(2);
const HEARD_AGAIN: Duration = Duration::from_millis(500);

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
    /// Answers that opening it took.
    answers_at_first: u64,
    /// Whether it has answered a read: a node may let everybody in and then throw them out.
    has_answered: bool,
}

impl<L: Lane> Open<L> {
    fn is_usable(&self) -> bool {
        !self.standing.is_silent() && self.lane.condition() == Condition::Ready
    }
}

/// How getting lanes to a node that answer has gone.
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
    hedges: Budget,
    probes: Budget,
    /// Lanes that it is time to look at.
    forgotten: Vec<u64>,
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
            hedges: Budget::of(hedging::SHARE),
            probes: Budget::of(PROBE_SHARE),
            forgotten: Vec::new(),
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

    pub fn is_any_usable(&self) -> bool {
        self.open().any(|(_, open)| open.is_usable())
    }

    pub fn why_none(&self) -> String {
        if self.is_closed {
            return "the store is closed".to_owned();
        }
        let mut conditions = self.open().map(|(_, open)| open.lane.condition());
        if conditions.any(|condition| condition == Condition::Full) {
            return "all connections have as many reads on their way as they can".to_owned();
        }
        if self.open().next().is_some() {
            return "all connections are silent".to_owned();
        }
        let reason = self.last_failure.as_deref();
        reason.unwrap_or("connections are being opened").to_owned()
    }

    pub fn spend_hedge(&mut self) -> bool {
        self.hedges.spend()
    }

    /// The lane for a read: that of an owner with the earliest expected finish. Other nodes can find the bytes
    /// too, but they only hand the question on.
    pub fn choose(
        &mut self,
        now: Instant,
        inquiry: &Inquiry<'_, L::Question>,
    ) -> Option<Chosen<L>> {
        let is_owner = |slot: &Slot<L>| inquiry.owners.contains(&slot.node);
        let is_other = |slot: &Slot<L>| Some(slot.node) != inquiry.not;
        let chosen = self
            .earliest(now, inquiry, |slot| is_owner(slot) && is_other(slot))
            .or_else(|| self.earliest(now, inquiry, is_other))
            .or_else(|| self.earliest(now, inquiry, |_| true));
        if chosen.is_some() {
            self.hedges.earn();
            self.probes.earn();
        }
        chosen
    }

    /// A lane that shall get a copy of this read, besides the one that was chosen for it.
    pub fn probe(
        &mut self,
        inquiry: &Inquiry<'_, L::Question>,
        chosen: &Chosen<L>,
    ) -> Option<Arc<L>> {
        let may_probe =
            |slot: &Slot<L>| slot.number != chosen.number && inquiry.owners.contains(&slot.node);
        let place = self.forgotten.iter().position(|number| {
            let slot = self.slots.iter().find(|slot| slot.number == *number);
            slot.is_some_and(may_probe)
        })?;
        if !self.probes.spend() {
            return None;
        }
        let number = self.forgotten.swap_remove(place);
        let mut open = self.open();
        let (_, open) = open.find(|(slot, _)| slot.number == number)?;
        Some(Arc::clone(&open.lane))
    }

    /// A lane for a second try, to another node where there is one.
    pub fn choose_other(
        &self,
        now: Instant,
        inquiry: &Inquiry<'_, L::Question>,
        number: u64,
    ) -> Option<Chosen<L>> {
        let first = self.slots.iter().find(|slot| slot.number == number);
        let node = first.map(|slot| slot.node);
        let is_other = |slot: &Slot<L>| slot.number != number;
        let is_elsewhere = |slot: &Slot<L>| Some(slot.node) != node;
        self.earliest(now, inquiry, |slot| {
            is_elsewhere(slot) && inquiry.owners.contains(&slot.node)
        })
        .or_else(|| self.earliest(now, inquiry, is_other))
    }

    fn earliest(
        &self,
        now: Instant,
        inquiry: &Inquiry<'_, L::Question>,
        may: impl Fn(&Slot<L>) -> bool,
    ) -> Option<Chosen<L>> {
        let usable = self
            .open()
            .filter(|(slot, open)| may(slot) && open.is_usable());
        let seen: Vec<(&Slot<L>, &Open<L>, Outlook)> = usable
            .map(|(slot, open)| (slot, open, open.meter.outlook(now, inquiry.size_bytes)))
            .collect();
        let usual = Usual::of(seen.iter().map(|(_, _, outlook)| outlook))?;
        let ranked = seen.iter().map(|(slot, open, outlook)| {
            let is_detour = !open.lane.is_home_of(inquiry.question);
            let detour = if is_detour { DETOUR_SECONDS } else { 0.0 };
            let finish = outlook.finish(&usual) + detour;
            let doubt = if outlook.is_proven { 1.0 } else { UNPROVEN };
            (doubt * finish, finish, slot, open, outlook)
        });
        let (_, finish, slot, open, outlook) =
            ranked.min_by(|(one, ..), (two, ..)| one.total_cmp(two))?;
        Some(Chosen {
            lane: Arc::clone(&open.lane),
            number: slot.number,
            node: slot.node,
            finish,
            answered_until: outlook.answered_until,
            patience: open.patience,
            standing: Arc::clone(&open.standing),
        })
    }

    fn open(&self) -> impl Iterator<Item = (&Slot<L>, &Open<L>)> {
        let slots = self.slots.iter();
        slots.filter_map(|slot| Some((slot, slot.open.as_ref()?)))
    }

    fn open_of(&self, node: SocketAddr) -> impl Iterator<Item = &Open<L>> {
        self.open()
            .filter(move |(slot, _)| slot.node == node)
            .map(|(_, open)| open)
    }

    pub fn stats(&self) -> Vec<LaneStats> {
        let stats = self.open().map(|(slot, open)| LaneStats {
            node: slot.node,
            state: match open.lane.condition() {
                Condition::Broken => "broken",
                _ if open.standing.is_silent() => "silent",
                Condition::Full => "full",
                Condition::Ready => "open",
            },
            reading: open.meter.reading(),
            hedged: open.standing.hedged.load(Ordering::Relaxed),
            answer_times: open.meter.answer_times(),
            patience: open.patience,
            shard: open.lane.shard(),
        });
        stats.collect()
    }
}

#[cfg(test)]
mod tests;
