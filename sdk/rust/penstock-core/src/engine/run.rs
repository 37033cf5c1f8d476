//! One epoch of one rank while it is being read: what to ask for next, what has come, which batch can be cut.

use std::collections::{BTreeMap, VecDeque};

use super::EngineError;
use super::batch::Laid;
use super::donors::Fallback;
use super::failures::Missed;
use super::laying::{Cut, OpenBatch};
use super::places::Places;
use super::reads::Outcome;
use crate::members::Members;
use crate::plan::{EpochPlan, Runs, Slot};
use crate::state::Delivered;

/// Slots that are worked out at once.
const SLOTS_AHEAD: usize = 32;

#[derive(Debug)]
pub(super) struct Run {
    pub generation: u64,
    pub epoch: u64,
    /// The start of the consumer that this run answers; none while it is read ahead.
    pub ticket: Option<u64>,
    /// Why it ends early.
    pub over: Option<Over>,
    pub ready: BTreeMap<u64, Laid>,
    /// Batches that could not be made at once, by step; all is known about their samples now.
    returned: BTreeMap<u64, Cut>,
    pub fallback: Fallback,
    pub published: u64,
    /// Nothing is asked for while it waits for its consumer.
    pub is_parked: bool,
    /// Whether its start began at the beginning of the epoch.
    pub is_whole_epoch: bool,
    /// Own samples of batches that an earlier run of the same start has handed out, read or not.
    pub owed_before: u64,
    failed_before: u64,
    /// Failures by step, where there are any.
    failed: BTreeMap<u64, u64>,
    /// Own slots of batches that the consumer has, those from before this start included.
    handed: Delivered,
    /// Own slots of batches that are laid down for the consumer, as far as is known.
    laid: VecDeque<Vec<(u64, u64)>>,
    plan: EpochPlan,
    /// The next slots to ask for, worked out some at a time.
    upcoming: VecDeque<Slot>,
    /// Slots that have been worked out.
    planned: u64,
    places: Places,
}

/// What goes to the consumer instead of the batch of a step and of all behind it.
#[derive(Debug)]
pub(super) struct Over {
    pub step: u64,
    pub error: EngineError,
    /// Of the batch of that step.
    pub missed: Missed,
}

impl Run {
    pub fn new(generation: u64, epoch: u64, plan: EpochPlan, displacement: u64) -> Self {
        let mut handed = Delivered::default();
        for (start, length) in plan.done().own.ranges() {
            handed.mark(start, length);
        }
        Self {
            generation,
            epoch,
            ticket: None,
            over: None,
            ready: BTreeMap::new(),
            returned: BTreeMap::new(),
            fallback: Fallback::default(),
            published: 0,
            is_parked: false,
            is_whole_epoch: plan.done().base.is_empty() && plan.done().own.is_empty(),
            owed_before: 0,
            failed_before: 0,
            failed: BTreeMap::new(),
            handed,
            laid: VecDeque::new(),
            places: Places::new(*plan.division(), displacement),
            plan,
            upcoming: VecDeque::with_capacity(SLOTS_AHEAD),
            planned: 0,
        }
    }

    pub fn plan(&self) -> &EpochPlan {
        &self.plan
    }

    /// The next slot to ask for; none when all have been, or when the run has failed or waits.
    pub fn upcoming(&mut self, members: &Members) -> Option<Slot> {
        if self.over.is_some() || self.is_parked {
            return None;
        }
        if self.upcoming.is_empty() {
            self.look_ahead(members);
        }
        self.upcoming.front().copied()
    }

    /// In a large subset each member lies on a page of its own that the processor has to look for: it finds those of
    /// several slots side by side.
    fn look_ahead(&mut self, members: &Members) {
        let first = self.planned;
        let slots = (first..first + SLOTS_AHEAD as u64).map_while(|index| self.plan.slot(index));
        self.upcoming.extend(slots);
        self.planned += self.upcoming.len() as u64;
        members.touch(self.upcoming.iter().map(|slot| slot.position));
    }

    /// The upcoming slot has been asked for.
    pub fn advance(&mut self) {
        self.upcoming.pop_front();
    }

    fn admitted_slots(&self) -> u64 {
        self.planned - self.upcoming.len() as u64
    }

    /// Whether the next batch cannot be cut from what has been asked for so far.
    pub fn lacks_slots(&self) -> bool {
        self.places.available(self.admitted_slots()) < self.places.next_batch_len()
    }

    pub fn is_all_admitted(&self) -> bool {
        self.admitted_slots() == self.plan.division().slots && self.over.is_none()
    }

    pub fn set_failures(&mut self, step: u64, count: u64) {
        self.failed.insert(step, count);
    }

    /// Samples of this start up to the end of a step that could not be read.
    pub fn failed_up_to(&self, step: u64) -> u64 {
        let counts = self.failed.range(..=step).map(|(_, count)| count);
        self.failed_before + counts.sum::<u64>()
    }

    /// Own samples of this start.
    pub fn owed(&self) -> u64 {
        self.owed_before + self.plan.division().own
    }

    /// Own samples of this start up to the end of a batch: padding comes behind all of them.
    pub fn owed_up_to(&self, cut: &Cut) -> u64 {
        let before = cut.step * self.plan.division().batch_size();
        let outcomes = before + cut.outcomes.len() as u64;
        self.owed().min(self.owed_before + outcomes)
    }

    /// A batch that could not be made at once.
    pub fn give_back(&mut self, cut: Cut) {
        self.returned.insert(cut.step, cut);
    }

    pub fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// The next of them, when all is known about the batches before it: whether too much has failed must not depend on
    /// which batch was faster. Those before the end are still wanted, those behind it are not.
    pub fn take_returned(&mut self) -> Option<Cut> {
        let (step, _) = self.returned.first_key_value()?;
        let is_behind_end = self.over.as_ref().is_some_and(|over| over.step <= *step);
        let is_next = (self.published..*step).all(|before| self.ready.contains_key(&before));
        if is_behind_end || !is_next || matches!(self.fallback, Fallback::Sought) {
            return None;
        }
        self.returned.pop_first().map(|(_, cut)| cut)
    }

    /// The next batch for the consumer; none comes behind the end.
    pub fn take_ready(&mut self) -> Option<Laid> {
        if self
            .over
            .as_ref()
            .is_some_and(|over| over.step < self.published)
        {
            return None;
        }
        let laid = self.ready.remove(&self.published)?;
        self.published += 1;
        Some(laid)
    }

    /// The end, when all before it has been laid down: once.
    pub fn take_end(&mut self) -> Option<(EngineError, Missed)> {
        let over = self.over.as_mut()?;
        if over.step != self.published {
            return None;
        }
        self.published += 1;
        Some((over.error.clone(), std::mem::take(&mut over.missed)))
    }

    /// A batch has been laid down, and with it `untaken` lie there: the consumer has the ones before.
    pub fn laid_down(&mut self, done: Vec<(u64, u64)>, untaken: usize) {
        self.laid.push_back(done);
        self.mark_taken(untaken);
    }

    fn mark_taken(&mut self, untaken: usize) {
        while self.laid.len() > untaken
            && let Some(done) = self.laid.pop_front()
        {
            for (start, length) in done {
                self.handed.mark(start, length);
            }
        }
    }

    /// Whether the consumer has all batches, when so many still lie there.
    pub fn is_handed_out(&self, untaken: u64) -> bool {
        self.published - untaken.min(self.published) == self.plan.division().steps
    }

    /// Own slots of all that the consumer has, when so many batches still lie there.
    pub fn handed_out(&mut self, untaken: usize) -> Runs {
        self.mark_taken(untaken);
        self.handed.to_runs()
    }

    /// Goes on for a run of which the last `untaken` batches come anew.
    pub fn follow(&mut self, earlier: &Self, untaken: u64) {
        let steps = earlier.published - untaken;
        let division = earlier.plan.division();
        debug_assert_eq!(self.plan.division().steps, division.steps - steps);
        self.ticket = earlier.ticket;
        self.is_whole_epoch = earlier.is_whole_epoch;
        self.owed_before = earlier.owed_before + division.own - self.plan.division().own;
        let taken = earlier.failed.range(..steps).map(|(_, count)| count);
        self.failed_before = earlier.failed_before + taken.sum::<u64>();
    }

    pub fn arrived_len(&self) -> usize {
        self.places.batches().map(OpenBatch::len).sum()
    }

    /// Puts an outcome into the batch that it belongs to, which is returned.
    pub fn answered(&mut self, outcome: Outcome) -> &mut OpenBatch {
        self.places.put(outcome)
    }

    /// The next batch, when enough has come and nothing that is due is missing.
    pub fn cut(&mut self) -> Option<Cut> {
        if self.over.is_some() {
            return None;
        }
        self.places.close_next().map(OpenBatch::into_cut)
    }

    /// The bytes that are given up when the run is dropped; reads and copies under way not included.
    pub fn held_bytes(&self) -> u64 {
        let outcomes = self.places.batches().flat_map(OpenBatch::outcomes);
        let arrived: u64 = outcomes.map(|outcome| outcome.cost_bytes).sum();
        let ready: u64 = self.ready.values().map(Laid::held_bytes).sum();
        let returned: u64 = self.returned.values().map(Cut::cost_bytes).sum();
        arrived + ready + returned
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use bytes::Bytes;

    use super::*;
    use crate::engine::reads::Payload;
    use crate::id::Id;
    use crate::members::Part;
    use crate::order::Order;
    use crate::plan::{Done, LastBatch, Rank};
    use crate::retry::Random;

    fn run(n: u64, batch: u64, displacement: u64, last: LastBatch) -> Run {
        let rank = Rank::new(0, 1).unwrap();
        let order = Order::identity(n);
        let plan = EpochPlan::new(order, Done::default(), rank, batch, last).unwrap();
        Run::new(1, 0, plan, displacement)
    }

    fn members(n: u64) -> Members {
        let length = usize::try_from(n).unwrap() * Id::LENGTH;
        let part = Part {
            ids: Bytes::from(vec![0; length]),
            fields: vec![],
        };
        Members::new(vec![], vec![part]).unwrap()
    }

    fn admit_all(run: &mut Run, n: u64) {
        let members = members(n);
        while run.upcoming(&members).is_some() {
            run.advance();
        }
    }

    fn outcome(slot: Slot) -> Outcome {
        Outcome {
            slot,
            sample_id: Id::default(),
            cost_bytes: 1,
            answer: Ok(Payload::Here(vec![])),
        }
    }

    /// Lets every slot arrive after a random delay (in slots) and returns the slot indices of the batches.
    fn play(mut run: Run, seed: u64, longest: u64) -> Vec<Vec<u64>> {
        let members = members(run.plan().order().len());
        let mut random = Random::new(seed);
        let mut under_way: Vec<(u64, Slot)> = Vec::new();
        let mut batches = Vec::new();
        for now in 0.. {
            if let Some(slot) = run.upcoming(&members) {
                run.advance();
                under_way.push((now + random.next_u64() % longest, slot));
            }
            under_way.sort_unstable_by_key(|(at, _)| *at);
            while under_way.first().is_some_and(|(at, _)| *at <= now) {
                run.answered(outcome(under_way.remove(0).1));
            }
            while let Some(cut) = run.cut() {
                assert_eq!(cut.step, batches.len() as u64);
                batches.push(cut.outcomes.iter().map(|o| o.slot.index).collect());
            }
            if batches.len() as u64 == run.plan().division().steps {
                return batches;
            }
        }
        unreachable!("the loop ends with the last batch")
    }

    proptest! {
        #[test]
        fn every_slot_is_in_one_batch_and_none_is_later_than_allowed(
            n in 1_u64..300, batch in 1_u64..20, displacement in 0_u64..5, seed: u64, longest in 1_u64..400,
            is_padded: bool,
        ) {
            let last = if is_padded { LastBatch::Pad } else { LastBatch::Partial };
            let batches = play(run(n, batch, displacement, last), seed, longest);
            for (step, slots) in (0..).zip(&batches) {
                for slot in slots {
                    prop_assert!(step <= slot / batch + displacement, "slot {} in batch {}", slot, step);
                }
            }
            for behind in 1..batches.len().min(9) {
                let before = batches.len() - behind;
                let end = before as u64 * batch;
                let ahead = batches[..before].concat().iter().filter(|slot| **slot >= end).count() as u64;
                prop_assert!(ahead <= (n - end) / 3, "{} slots ahead of batch {}", ahead, before);
            }
            let slots = if is_padded { n.div_ceil(batch) * batch } else { n };
            let mut all = batches.concat();
            prop_assert!(batches[..batches.len() - 1].concat().iter().all(|slot| *slot < n));
            if displacement == 0 {
                prop_assert_eq!(&all, &(0..slots).collect::<Vec<_>>());
            }
            all.sort_unstable();
            prop_assert_eq!(all, (0..slots).collect::<Vec<_>>());
        }
    }

    #[test]
    fn out_of_order_a_batch_takes_what_came_first() {
        let mut run = run(60, 2, 8, LastBatch::Partial);
        let slots: Vec<Slot> = run.plan().slots().collect();
        admit_all(&mut run, 60);
        for index in [4, 1, 5, 0] {
            run.answered(outcome(slots[index]));
        }
        let first: Vec<u64> = run
            .cut()
            .unwrap()
            .outcomes
            .iter()
            .map(|o| o.slot.index)
            .collect();
        assert_eq!(first, [4, 1]);
        assert!(run.cut().is_some());
        assert!(run.cut().is_none());
    }

    #[test]
    fn a_late_slot_holds_its_batch_up() {
        let mut run = run(60, 2, 1, LastBatch::Partial);
        let slots: Vec<Slot> = run.plan().slots().collect();
        admit_all(&mut run, 60);
        for index in [1, 2, 3, 4, 5] {
            run.answered(outcome(slots[index]));
        }
        assert!(run.cut().is_some(), "batch 0 may close without slot 0");
        assert!(run.cut().is_none(), "batch 1 may not");
        run.answered(outcome(slots[0]));
        let second: Vec<u64> = run
            .cut()
            .unwrap()
            .outcomes
            .iter()
            .map(|o| o.slot.index)
            .collect();
        assert_eq!(second, [3, 0]);
    }
}
