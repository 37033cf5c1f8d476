//! Which batch each outcome goes to, decided when it comes: the earliest one with a place that nobody else must have.

use std::collections::VecDeque;

use super::laying::OpenBatch;
use super::reads::Outcome;
use super::tail::Tail;
use crate::plan::{Division, Slot};

/// The batches of an epoch that are not closed yet, and the slots that still have to come.
///
/// Slots are counted in groups of a batch size. A slot of group g may come late, but not behind batch g + displacement:
/// that batch keeps a place for each slot of the group that has not come, so it closes with all of them, and every
/// other place goes to whatever comes first. The last batch needs no such places, because everything is in by then; the
/// few before it share what it would have to wait for, and keep their places together (`Tail`).
/// Repeats that pad go there only, however early they come: all ranks have done the same number of samples after the
/// same step.
#[derive(Debug)]
pub(super) struct Places {
    division: Division,
    displacement: u64,
    tail: Tail,
    /// Batches below are closed.
    first_step: u64,
    /// Batches below have no room: thousands of small samples may come before any batch is closed.
    first_room: u64,
    open: VecDeque<OpenBatch>,
    /// Groups below have come whole.
    first_group: u64,
    /// How many own slots of each group from there on have not come; of later groups none has.
    missing: VecDeque<u64>,
}

impl Places {
    pub fn new(division: Division, displacement: u64) -> Self {
        Self {
            tail: Tail::new(&division, displacement),
            division,
            displacement,
            first_step: 0,
            first_room: 0,
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

    /// The batch for a slot that has been noted.
    fn step_for(&mut self, slot: Slot) -> u64 {
        let last = self.division.steps - 1;
        if slot.is_padding {
            return last;
        }
        // Room comes back only where a place was kept for this very slot.
        let group = slot.index / self.division.batch_size();
        let kept_in = group.saturating_add(self.displacement);
        let from = self.first_room.min(kept_in).max(self.first_step);
        let may_from = self.tail.first_step_for(slot.index).max(from);
        let step = (may_from..last)
            .find(|step| self.has_room(*step))
            .unwrap_or(last);
        // What the tail has kept this slot from still has room for others.
        self.first_room = if may_from == from { step } else { from };
        self.tail.put(slot.index, step);
        step
    }

    /// Whether a batch before the last has a place that is not kept for a slot. Those of the tail keep none: they share.
    fn has_room(&self, step: u64) -> bool {
        let kept = match step.checked_sub(self.displacement) {
            None => 0,
            Some(_) if self.tail.contains(step) => 0,
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::reads::Payload;
    use crate::id::Id;
    use crate::order::Order;
    use crate::plan::{Done, EpochPlan, LastBatch, Rank};
    use crate::retry::Random;

    proptest! {
        #[test]
        fn an_outcome_goes_to_the_earliest_batch_with_room(
            n in 1_u64..200, batch in 1_u64..9, displacement in 0_u64..6, seed: u64, spread in 1_usize..90,
            closes_at in 1_u64..40,
        ) {
            let rank = Rank::new(0, 1).unwrap();
            let plan =
                EpochPlan::new(Order::identity(n), Done::default(), rank, batch, LastBatch::Pad).unwrap();
            let mut places = Places::new(*plan.division(), displacement);
            let mut random = Random::new(seed);
            let mut to_come: VecDeque<Slot> = plan.slots().collect();
            for turn in 0.. {
                let near = random.next_u64() % to_come.len().min(spread) as u64;
                let Some(slot) = to_come.remove(index_of(near)) else { break };
                let last = plan.division().steps - 1;
                places.note(slot);
                let from = places.first_step.max(places.tail.first_step_for(slot.index));
                let earliest = (from..last)
                    .find(|step| places.has_room(*step))
                    .filter(|_| !slot.is_padding);
                let step = places.step_for(slot);
                prop_assert_eq!(step, earliest.unwrap_or(last));
                let place = (displacement == 0).then(|| index_of(slot.index - step * batch));
                let nothing = Payload::Here(Vec::new());
                places.open_mut(step).put(place, Outcome::of(slot, Id::default(), 1, nothing));
                while turn % closes_at == 0 && places.close_next().is_some() {}
                if to_come.is_empty() {
                    break;
                }
            }
            while places.close_next().is_some() {}
            prop_assert_eq!(places.first_step, plan.division().steps);
        }
    }
}
