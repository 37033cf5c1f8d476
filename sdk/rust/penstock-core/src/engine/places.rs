//! Which batch each outcome goes to, decided when it comes: the earliest one with a place that nobody else must have.

use std::collections::VecDeque;

use super::laying::OpenBatch;
use super::reads::Outcome;
use crate::plan::{Division, Slot};

/// The batches of an epoch that are not closed yet, and the slots that still have to come.
///
/// Slots are counted in groups of a batch size. A slot of group g may come late, but not behind batch g + displacement:
/// that batch keeps a place for each slot of the group that has not come, so it closes with all of them, and every
/// other place goes to whatever comes first. The last batch needs no such places, because everything is in by then.
/// Repeats that pad go there only, however early they come: all ranks have done the same number of samples after the
/// same step.
#[derive(Debug)]
pub(super) struct Places {
    division: Division,
    displacement: u64,
    /// Batches below are closed.
    first_step: u64,
    open: VecDeque<OpenBatch>,
    /// Groups below have come whole.
    first_group: u64,
    /// How many own slots of each group from there on have not come; of later groups none has.
    missing: VecDeque<u64>,
}

impl Places {
    pub fn new(division: Division, displacement: u64) -> Self {
        Self {
            division,
            displacement,
            first_step: 0,
            open: VecDeque::new(),
            first_group: 0,
            missing: VecDeque::new(),
        }
    }

    /// Puts an outcome in its place. Returns the batch it is in.
    pub fn put(&mut self, outcome: Outcome) -> &mut OpenBatch {
        self.note(outcome.slot);
        let step = self.step_for(outcome.slot);
        // Kept in order, the place of a slot in its batch is known; else it is the next one.
        let place = (self.displacement == 0)
            .then(|| index_of(outcome.slot.index - step * self.division.batch_size()));
        let batch = self.open_mut(step);
        batch.put(place, outcome);
        batch
    }

    fn note(&mut self, slot: Slot) {
        if slot.is_padding {
            return;
        }
        let group = slot.index / self.division.batch_size();
        while self.first_group + self.missing.len() as u64 <= group {
            let next = self.first_group + self.missing.len() as u64;
            self.missing.push_back(self.group_len(next));
        }
        self.missing[index_of(group - self.first_group)] -= 1;
        while self.missing.front() == Some(&0) {
            self.missing.pop_front();
            self.first_group += 1;
        }
    }

    /// How many own slots a group has.
    fn group_len(&self, group: u64) -> u64 {
        let start = group.saturating_mul(self.division.batch_size());
        let behind = self.division.own.saturating_sub(start);
        behind.min(self.division.batch_size())
    }

    fn step_for(&self, slot: Slot) -> u64 {
        let last = self.division.steps - 1;
        if slot.is_padding {
            return last;
        }
        (self.first_step..last)
            .find(|step| self.has_room(*step))
            .unwrap_or(last)
    }

    /// Whether a batch before the last has a place that is not kept for a slot.
    fn has_room(&self, step: u64) -> bool {
        let kept = match step.checked_sub(self.displacement) {
            None => 0,
            Some(group) if group < self.first_group => 0,
            Some(group) => match self.missing.get(index_of(group - self.first_group)) {
                Some(missing) => *missing,
                None => self.group_len(group),
            },
        };
        let open = self.open.get(index_of(step - self.first_step));
        let taken = open.map_or(0, OpenBatch::len) as u64;
        taken + kept < self.division.batch_len(step)
    }

    fn open_mut(&mut self, step: u64) -> &mut OpenBatch {
        while self.first_step + self.open.len() as u64 <= step {
            let next = self.first_step + self.open.len() as u64;
            let batch_len = index_of(self.division.batch_len(next));
            self.open.push_back(OpenBatch::new(next, batch_len));
        }
        &mut self.open[index_of(step - self.first_step)]
    }

    /// The next batch, when all of its places are taken.
    pub fn close_next(&mut self) -> Option<OpenBatch> {
        if self.first_step >= self.division.steps {
            return None;
        }
        // On several ranks the last batch may have no places at all.
        let batch = self.open_mut(self.first_step);
        if !batch.is_full() {
            return None;
        }
        let batch = self.open.pop_front();
        self.first_step += 1;
        batch
    }

    /// How many of `admitted` slots the next batch could be made of: those in later batches are not among them.
    pub fn available(&self, admitted: u64) -> u64 {
        let closed = self.first_step.saturating_mul(self.division.batch_size());
        let later: usize = self.open.iter().skip(1).map(OpenBatch::len).sum();
        admitted - closed.min(admitted) - (later as u64).min(admitted)
    }

    pub fn next_batch_len(&self) -> u64 {
        self.division.batch_len(self.first_step)
    }

    pub fn batches(&self) -> impl Iterator<Item = &OpenBatch> {
        self.open.iter()
    }
}

fn index_of(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
