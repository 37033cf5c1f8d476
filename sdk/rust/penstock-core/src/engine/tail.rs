//! The last batches of an epoch share the wait for its stragglers.
//!
//! A batch in the middle of an epoch takes what comes first and waits for nobody; the last one has to wait for every
//! slot that is left, and what it waits for would all be one pause, of more than a batch time where batches come
//! fast. So the batches before it take their share: fewer and fewer slots may be in a batch ahead of their turn, and
//! each of them waits a little for those whose turn it is.

use crate::plan::Division;

/// The batches before the last one that share the wait. What comes later than they can bear is a fault and no lag: to
/// begin earlier would only keep a consumer waiting that is busy with the batches before.
const TAIL_STEPS: u64 = 8;
/// One in so many of the slots that are left behind a batch may be in it or before it, ahead of their turn: so the
/// wait grows by one part in so many of a batch time, from batch to batch.
const SHARE: u64 = 3;

#[derive(Debug)]
pub(super) struct Tail {
    first_step: u64,
    steps: Vec<TailStep>,
}

#[derive(Debug)]
struct TailStep {
    /// Slots below may not come in a later batch.
    due: u64,
    /// How many others may be in this batch and those before it, and how many are.
    most_ahead: u64,
    ahead: u64,
}

impl Tail {
    /// Never stricter than batches that a slot may come late by let it be.
    pub fn new(division: &Division, displacement: u64) -> Self {
        let last = division.steps.saturating_sub(1);
        let first_step = last.saturating_sub(TAIL_STEPS);
        let steps = (first_step..last).map(|step| {
            let end = (step + 1).saturating_mul(division.batch_size());
            let left = division.own.saturating_sub(end);
            let bearable = displacement.saturating_mul(division.batch_size());
            let most_ahead = (left / SHARE).min(bearable).min(end);
            TailStep {
                due: end - most_ahead,
                most_ahead,
                ahead: 0,
            }
        });
        Self {
            first_step,
            steps: steps.collect(),
        }
    }

    pub fn contains(&self, step: u64) -> bool {
        step >= self.first_step
    }

    /// The first batch that a slot may go to: all places before it must be for slots that are due there.
    pub fn first_step_for(&self, index: u64) -> u64 {
        let is_taken = |tail: &TailStep| tail.due <= index && tail.ahead == tail.most_ahead;
        let taken = self.steps.iter().rposition(is_taken);
        taken.map_or(0, |place| self.first_step + place as u64 + 1)
    }

    /// A slot has gone to this batch.
    pub fn put(&mut self, index: u64, step: u64) {
        for (tail_step, tail) in (self.first_step..).zip(&mut self.steps) {
            if tail_step >= step && tail.due <= index {
                tail.ahead += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::places::Places;
    use crate::engine::reads::{Outcome, Payload};
    use crate::id::Id;
    use crate::order::Order;
    use crate::plan::{Done, EpochPlan, LastBatch, Rank};

    const BATCH: u64 = 64;

    /// How long after the one before it each batch is closed, when a slot is asked for in every unit of time and comes after
    /// that, one in eight of them `late` units later.
    fn gaps(steps: u64, late: u64) -> Vec<u64> {
        let rank = Rank::new(0, 1).unwrap();
        let order = Order::identity(steps * BATCH);
        let plan = EpochPlan::new(order, Done::default(), rank, BATCH, LastBatch::Partial).unwrap();
        let late_by = |index| if index % 8 == 7 { late } else { 0 };
        let arrive = plan
            .slots()
            .map(|slot| (slot.index + late_by(slot.index), slot));
        let mut arrivals: Vec<_> = arrive.collect();
        arrivals.sort_by_key(|(at, _)| *at);
        let mut places = Places::new(*plan.division(), 8);
        let mut closed_at = Vec::new();
        for (at, slot) in arrivals {
            let nothing = Payload::Here(Vec::new());
            places.put(Outcome::of(slot, Id::default(), 1, nothing));
            while places.close_next().is_some() {
                closed_at.push(at);
            }
        }
        assert_eq!(closed_at.len() as u64, steps);
        closed_at.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn the_last_batches_share_the_wait_for_what_comes_late() {
        let gaps = gaps(40, 2 * BATCH);
        assert!(gaps.iter().all(|gap| *gap <= BATCH + BATCH / 2), "{gaps:?}");
        let waited = gaps.iter().sum::<u64>() - gaps.len() as u64 * BATCH;
        assert!(waited > BATCH, "{gaps:?}");
    }

    #[test]
    fn before_them_no_batch_waits_for_what_comes_late() {
        let gaps = gaps(40, 2 * BATCH);
        let (middle, _) = gaps[8..].split_at(20);
        assert!(
            middle.iter().all(|gap| gap.abs_diff(BATCH) <= 8),
            "{gaps:?}"
        );
    }
}
