//! What has been delivered, and how it is saved.

mod base;
mod codec;
mod merge;

use std::collections::BTreeMap;

pub use base::Base;
pub use codec::FORMAT;
pub use merge::merge;

use crate::order::ALGORITHM;
use crate::plan::{Rank, Runs};

/// Where a run stands, complete enough to go on with another world or batch size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub split_digest: String,
    pub sample_count: u64,
    pub is_shuffled: bool,
    pub seed: u64,
    pub epoch: u64,
    /// Batches of a rank that are acknowledged in this epoch.
    pub steps: u64,
    /// Places of the plan that were done when the run last started.
    pub base: Base,
    /// What one rank has done since then; none in a merged state, whose base is everything.
    pub share: Option<Share>,
}

/// What one rank has done of its own part of the places outside the base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    pub rank: u64,
    pub world_size: u64,
    pub frontier: u64,
    pub holes: Vec<(u64, u64)>,
    /// Whether its last batch is done, which alone may have fewer samples of its own than those of other ranks.
    pub is_end_done: bool,
}

impl State {
    /// Where this state lets a rank go on. A merged state, or one of a world of one, fits any rank; another
    /// fits only the rank that saved it.
    pub fn entry(&self, rank: Rank) -> Result<Entry, StateError> {
        let merged = |base: &Base| Entry {
            epoch: self.epoch,
            base: base.clone(),
            steps: self.steps,
            ..Entry::default()
        };
        match &self.share {
            None => Ok(merged(&self.base)),
            Some(share) if share.world_size == 1 => {
                let alone = merge(std::slice::from_ref(self), false)?;
                Ok(merged(&alone.base))
            }
            Some(share) if (share.rank, share.world_size) == (rank.rank(), rank.world_size()) => {
                Ok(Entry {
                    delivered: share.delivered(),
                    is_end_done: share.is_end_done,
                    ..merged(&self.base)
                })
            }
            Some(share) => Err(StateError::Alone {
                rank: share.rank,
                world_size: share.world_size,
                here: format!("{} of {}", rank.rank(), rank.world_size()),
            }),
        }
    }
}

impl Share {
    pub fn delivered(&self) -> Delivered {
        Delivered {
            frontier: self.frontier,
            holes: self.holes.iter().copied().collect(),
        }
    }
}

/// A state that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    #[error("this is not a saved state of a loader")]
    NotAState,
    #[error(
        "the state has format {found}, this version of Penstock reads {FORMAT}: use the version that saved it"
    )]
    Format { found: u64 },
    #[error("the state is damaged: its digest does not fit; take an older checkpoint")]
    Damaged,
    #[error(
        "the state was saved with the order {found:?}, this version of Penstock has {ALGORITHM:?}"
    )]
    Order { found: String },
    #[error("the state belongs to another {what}: {saved} was saved, this loader has {here}")]
    Other {
        what: &'static str,
        saved: String,
        here: String,
    },
    #[error(
        "the state is of rank {rank} in a world of {world_size} alone, this loader is rank {here}: merge the states of all ranks first"
    )]
    Alone {
        rank: u64,
        world_size: u64,
        here: String,
    },
    #[error("these states cannot be merged: {reason}")]
    Merge { reason: String },
}

/// The slots of one rank that are done in this epoch: a frontier and the holes below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delivered {
    /// One past the highest slot that is done.
    frontier: u64,
    /// Slots below the frontier that are not done: start and length.
    holes: BTreeMap<u64, u64>,
}

impl Delivered {
    pub fn frontier(&self) -> u64 {
        self.frontier
    }

    pub fn holes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.holes.iter().map(|(start, length)| (*start, *length))
    }

    /// Marks `length` slots from `start` on as done.
    pub fn mark(&mut self, start: u64, length: u64) {
        let end = start + length;
        if start > self.frontier {
            self.holes.insert(self.frontier, start - self.frontier);
        }
        self.frontier = self.frontier.max(end);
        let touched: Vec<(u64, u64)> = self
            .holes
            .range(..end)
            .rev()
            .map(|(hole, size)| (*hole, *size))
            .take_while(|(hole, size)| hole + size > start)
            .collect();
        for (hole, size) in touched {
            self.holes.remove(&hole);
            if hole < start {
                self.holes.insert(hole, start - hole);
            }
            if hole + size > end {
                self.holes.insert(end, hole + size - end);
            }
        }
    }

    pub fn to_runs(&self) -> Runs {
        Runs::from_ranges(self.done())
    }

    /// The slots that are done, as ranges.
    pub fn done(&self) -> Vec<(u64, u64)> {
        let mut runs = Vec::with_capacity(self.holes.len() + 1);
        let mut from = 0;
        for (start, length) in self.holes().chain([(self.frontier, 0)]) {
            if start > from {
                runs.push((from, start - from));
            }
            from = start + length;
        }
        runs
    }
}

/// Which batches have been handed out and which of them are acknowledged.
#[derive(Debug, Default)]
pub struct Ledger {
    /// What is acknowledged, from where the epoch was entered on.
    entry: Entry,
    /// Batches that this start still has to deliver; none before the first start.
    steps_left: Option<u64>,
    /// The step of the epoch whose batch may be short.
    last_step: Option<u64>,
    /// Batches that are handed out and not acknowledged, by their number.
    open: BTreeMap<u64, Open>,
    /// The epoch before, as long as some of its batches are not acknowledged although all were handed out.
    before: Option<Box<Self>>,
}

#[derive(Debug)]
struct Open {
    step: u64,
    done: Vec<(u64, u64)>,
}

/// Where an epoch is entered: at its beginning, or in its middle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    pub epoch: u64,
    pub base: Base,
    pub delivered: Delivered,
    /// As in a [`Share`].
    pub is_end_done: bool,
    /// Batches acknowledged before.
    pub steps: u64,
}

/// An acknowledgement of something that was never handed out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("batch {seq} has not been handed out: acknowledge the `seq` of a batch")]
pub struct UnknownBatch {
    pub seq: u64,
}

impl Ledger {
    /// Enters an epoch of which `steps_left` batches are still to be delivered; all of them full, or the last one short.
    pub fn start(&mut self, entry: Entry, steps_left: u64, may_end_short: bool) {
        let before = std::mem::take(self).closing(&entry);
        let last_step = (entry.steps + steps_left).checked_sub(1);
        *self = Self {
            last_step: last_step.filter(|_| may_end_short),
            entry,
            steps_left: Some(steps_left),
            open: BTreeMap::new(),
            before,
        };
    }

    /// What is still owed of this epoch when the next one is begun: batches on their way to their user.
    fn closing(self, next: &Entry) -> Option<Box<Self>> {
        let is_followed = next.epoch == self.entry.epoch + 1;
        let is_handed_out = self.steps_left == Some(self.open.len() as u64);
        (is_followed && is_handed_out && !self.open.is_empty()).then(|| Box::new(self))
    }

    /// The batch of a step of the epoch has been handed out.
    pub fn hand_out(&mut self, seq: u64, step: u64, done: Vec<(u64, u64)>) {
        self.open.insert(seq, Open { step, done });
    }

    /// A batch has reached its user. Of an epoch given up, or a second time, it changes nothing; the answer
    /// is whether it changed something.
    pub fn acknowledge(&mut self, seq: u64, next_seq: u64) -> Result<bool, UnknownBatch> {
        if seq >= next_seq {
            return Err(UnknownBatch { seq });
        }
        let Some(open) = self.open.remove(&seq) else {
            return self.acknowledge_before(seq, next_seq);
        };
        for (start, length) in open.done {
            self.entry.delivered.mark(start, length);
        }
        self.entry.is_end_done |= Some(open.step) == self.last_step;
        self.entry.steps += 1;
        self.steps_left = self.steps_left.map(|left| left.saturating_sub(1));
        Ok(true)
    }

    fn acknowledge_before(&mut self, seq: u64, next_seq: u64) -> Result<bool, UnknownBatch> {
        let Some(before) = &mut self.before else {
            return Ok(false);
        };
        let is_known = before.acknowledge(seq, next_seq)?;
        if before.open.is_empty() {
            self.before = None;
        }
        Ok(is_known)
    }

    /// Where to go on. After the last batch that is the beginning of the next epoch.
    pub fn entry(&self) -> Entry {
        if let Some(before) = &self.before {
            return before.entry();
        }
        if self.steps_left == Some(0) {
            return Entry {
                epoch: self.entry.epoch + 1,
                ..Entry::default()
            };
        }
        self.entry.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn delivered_is_the_set_of_what_was_marked(
            marks in prop::collection::vec((0_u64..200, 1_u64..9), 0..60),
        ) {
            let mut delivered = Delivered::default();
            let mut expected = BTreeSet::new();
            for (start, length) in marks {
                delivered.mark(start, length);
                expected.extend(start..start + length);
            }
            let found: BTreeSet<u64> = delivered
                .done()
                .into_iter()
                .flat_map(|(start, length)| start..start + length)
                .collect();
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(delivered.frontier(), expected.last().map_or(0, |last| last + 1));
        }
    }

    #[test]
    fn batches_count_when_acknowledged_in_any_order() {
        let mut ledger = Ledger::default();
        let entry = Entry {
            epoch: 4,
            ..Entry::default()
        };
        ledger.start(entry, 3, true);
        ledger.hand_out(7, 0, vec![(0, 2)]);
        ledger.hand_out(8, 1, vec![(2, 2)]);
        assert_eq!(ledger.acknowledge(8, 9), Ok(true));
        assert_eq!(ledger.entry.delivered.done(), [(2, 2)]);
        assert_eq!(ledger.acknowledge(8, 9), Ok(false));
        assert_eq!(ledger.acknowledge(3, 9), Ok(false), "of an earlier epoch");
        assert_eq!(ledger.acknowledge(9, 9), Err(UnknownBatch { seq: 9 }));
        assert_eq!(ledger.acknowledge(7, 9), Ok(true));
        assert_eq!(ledger.entry.delivered.done(), [(0, 4)]);
        assert_eq!((ledger.entry().epoch, ledger.entry().steps), (4, 2));
        ledger.hand_out(9, 2, vec![(4, 1)]);
        assert_eq!(ledger.acknowledge(9, 10), Ok(true));
        let next = Entry {
            epoch: 5,
            ..Entry::default()
        };
        assert_eq!(ledger.entry(), next);
    }
}
