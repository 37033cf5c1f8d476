//! Which samples a rank reads in an epoch, in which order, and in how many steps: pure functions,
//! equal on every rank, known before the first request.

use std::fmt;

use crate::order::Order;

/// What happens when the samples do not fill the last batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastBatch {
    /// The last positions of the plan are left out; every batch is full.
    Drop,
    /// The last batch is short; on several ranks it may be empty.
    Partial,
    /// Flagged repeats fill it; every batch is full.
    Pad,
}

impl LastBatch {
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "drop" => Some(Self::Drop),
            "partial" => Some(Self::Partial),
            "pad" => Some(Self::Pad),
            _ => None,
        }
    }
}

/// A plan was asked for that cannot exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    #[error("batch_size is 0: a batch holds at least one sample")]
    BatchSize,
    #[error("world_size is 0: there is at least one rank")]
    WorldSize,
    #[error(
        "rank {rank} is outside a world of {world_size}: ranks count from 0 to {}",
        world_size - 1
    )]
    Rank { rank: u64, world_size: u64 },
    #[error("positions done before ({done}) do not fit a subset of {sample_count} samples")]
    Base { done: String, sample_count: u64 },
}

/// Who this process is among those that share an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    rank: u64,
    world_size: u64,
}

impl Rank {
    pub fn new(rank: u64, world_size: u64) -> Result<Self, PlanError> {
        if world_size == 0 {
            return Err(PlanError::WorldSize);
        }
        if rank >= world_size {
            return Err(PlanError::Rank { rank, world_size });
        }
        Ok(Self { rank, world_size })
    }

    pub fn rank(self) -> u64 {
        self.rank
    }

    pub fn world_size(self) -> u64 {
        self.world_size
    }

    /// How many of `length` places fall to this rank when dealt out one by one.
    pub fn share(self, length: u64) -> u64 {
        (length + self.world_size - 1 - self.rank) / self.world_size
    }
}

/// How a list of places is divided into steps. The same on all ranks except for `slots` and `own`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// Batches of this rank, equal on all ranks.
    pub steps: u64,
    /// Places of this rank over all steps, repeats of `pad` included.
    pub slots: u64,
    /// Places of this rank that are its own: from here on slots repeat.
    pub own: u64,
    batch_size: u64,
}

impl Division {
    /// Divides `length` places, some of which this rank has done before: as many as every other one, because they were
    /// at the same step; or, when the last batch is among them, all but as many as every other one.
    pub fn new(
        length: u64,
        rank: Rank,
        done: &Done,
        batch_size: u64,
        last_batch: LastBatch,
    ) -> Result<Self, PlanError> {
        if batch_size == 0 {
            return Err(PlanError::BatchSize);
        }
        let own = rank.share(length).saturating_sub(done.own.len());
        // What is left on the ranks that have the fewest and the most.
        let [least, most] = if done.is_end_done {
            [own, own]
        } else {
            [length / rank.world_size, length.div_ceil(rank.world_size)]
                .map(|share| share.saturating_sub(done.own.len()))
        };
        let (steps, slots) = match last_batch {
            LastBatch::Drop => {
                let steps = least / batch_size;
                (steps, steps * batch_size)
            }
            LastBatch::Partial => (most.div_ceil(batch_size), own),
            LastBatch::Pad => {
                let steps = most.div_ceil(batch_size);
                (steps, steps * batch_size)
            }
        };
        Ok(Self {
            steps,
            slots,
            own: own.min(slots),
            batch_size,
        })
    }

    pub fn batch_size(&self) -> u64 {
        self.batch_size
    }

    /// Outcomes that close batch `step`.
    pub fn batch_len(&self, step: u64) -> u64 {
        self.slots
            .saturating_sub(step.saturating_mul(self.batch_size))
            .min(self.batch_size)
    }
}

/// A set of places as sorted, disjoint, non-adjacent runs: what has been done before a resume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runs {
    /// (first place, length, places of the complement below the run)
    runs: Vec<(u64, u64, u64)>,
    total: u64,
}

impl Runs {
    /// Sorts and joins what it is given; overlaps are allowed.
    pub fn from_ranges(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut sorted: Vec<(u64, u64)> = ranges.into_iter().filter(|r| r.1 > 0).collect();
        sorted.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (start, length) in sorted {
            let end = start.saturating_add(length);
            match joined.last_mut() {
                Some((first, len)) if *first + *len >= start => *len = (*len).max(end - *first),
                _ => joined.push((start, end - start)),
            }
        }
        let mut total = 0;
        let runs = joined
            .into_iter()
            .map(|(start, length)| {
                let run = (start, length, start - total);
                total += length;
                run
            })
            .collect();
        Self { runs, total }
    }

    /// Collects single places, in any order, without holding a range for each.
    pub fn from_places(mut places: Vec<u64>) -> Self {
        places.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for place in places {
            match ranges.last_mut() {
                Some((start, length)) if *start + *length == place => *length += 1,
                _ => ranges.push((place, 1)),
            }
        }
        Self::from_ranges(ranges)
    }

    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// How many places are in the set.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// One past the largest place.
    pub fn end(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.0 + run.1)
    }

    pub fn contains(&self, place: u64) -> bool {
        let after = self.runs.partition_point(|run| run.0 <= place);
        after > 0 && place < self.runs[after - 1].0 + self.runs[after - 1].1
    }

    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|run| (run.0, run.1))
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::from_ranges(self.ranges().chain(other.ranges()))
    }

    /// The `index`-th place that is not in the set.
    pub fn nth_outside(&self, index: u64) -> u64 {
        let after = self.runs.partition_point(|run| run.2 <= index);
        match after.checked_sub(1) {
            None => index,
            Some(last) => index - self.runs[last].2 + self.runs[last].0 + self.runs[last].1,
        }
    }
}

impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} places up to {}", self.total, self.end())
    }
}

/// One place of a rank's epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Count over the slots of this rank in this epoch.
    pub index: u64,
    /// Place in the plan of all ranks, before the order is applied.
    pub place: u64,
    /// Count over this rank's own places outside the base; a repeat has that of the place that it repeats.
    pub own: u64,
    /// Position in the subset's member order.
    pub position: u64,
    /// A repeat that only fills a batch up.
    pub is_padding: bool,
}

/// The slots of one rank in one epoch, computed one at a time.
#[derive(Debug, Clone)]
pub struct EpochPlan {
    order: Order,
    done: Done,
    rank: Rank,
    division: Division,
    /// Length of L, the places outside the base.
    length: u64,
}

/// What of an epoch has been done before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// Places of the plan, by whichever rank: the rest is dealt out anew.
    pub base: Runs,
    /// This rank's own places outside the base, by their count: the rest stays dealt out as it was.
    pub own: Runs,
    /// Whether the last batch of the earlier division is among `own`. It may have been shorter on this rank than on
    /// others; what is left is then as long on all of them.
    pub is_end_done: bool,
}

impl EpochPlan {
    /// `done` is left out; with the default the epoch is whole.
    pub fn new(
        order: Order,
        done: Done,
        rank: Rank,
        batch_size: u64,
        last_batch: LastBatch,
    ) -> Result<Self, PlanError> {
        let outside = |runs: &Runs, sample_count: u64| PlanError::Base {
            done: runs.to_string(),
            sample_count,
        };
        if done.base.end() > order.len() {
            return Err(outside(&done.base, order.len()));
        }
        let length = order.len() - done.base.len();
        if done.own.end() > rank.share(length) {
            return Err(outside(&done.own, rank.share(length)));
        }
        let division = Division::new(length, rank, &done, batch_size, last_batch)?;
        Ok(Self {
            order,
            done,
            rank,
            division,
            length,
        })
    }

    pub fn division(&self) -> &Division {
        &self.division
    }

    pub fn done(&self) -> &Done {
        &self.done
    }

    pub fn rank(&self) -> Rank {
        self.rank
    }

    pub fn order(&self) -> &Order {
        &self.order
    }

    /// The slot at `index`; `None` past the last.
    pub fn slot(&self, index: u64) -> Option<Slot> {
        if index >= self.division.slots {
            return None;
        }
        let is_padding = index >= self.division.own;
        let all_own = self.rank.share(self.length);
        let own = if is_padding {
            // From the first of all on, whatever is done: the same repeats with and without a break.
            (index - self.division.own) % all_own.max(1)
        } else {
            self.done.own.nth_outside(index)
        };
        // More ranks than samples: this one has none of its own to repeat.
        let of_rest = (self.rank.rank + own * self.rank.world_size) % self.length;
        let place = self.done.base.nth_outside(of_rest);
        Some(Slot {
            index,
            place,
            own,
            position: self.order.at(place),
            is_padding,
        })
    }

    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..self.division.slots).filter_map(|index| self.slot(index))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn plan(n: u64, base: Runs, rank: (u64, u64), batch: u64, last: LastBatch) -> EpochPlan {
        let rank = Rank::new(rank.0, rank.1).unwrap();
        EpochPlan::new(
            Order::shuffled(n, 3, 1),
            Done {
                base,
                ..Done::default()
            },
            rank,
            batch,
            last,
        )
        .unwrap()
    }

    #[test]
    fn impossible_plans_are_refused_with_the_reason() {
        assert_eq!(Rank::new(0, 0), Err(PlanError::WorldSize));
        let error = Rank::new(4, 4).unwrap_err();
        assert_eq!(
            error.to_string(),
            "rank 4 is outside a world of 4: ranks count from 0 to 3"
        );
        let rank = Rank::new(0, 1).unwrap();
        assert_eq!(
            Division::new(10, rank, &Done::default(), 0, LastBatch::Drop),
            Err(PlanError::BatchSize)
        );
        for (base, own) in [((5, 6), (0, 0)), ((0, 5), (3, 3))] {
            let done = Done {
                base: Runs::from_ranges([base]),
                own: Runs::from_ranges([own]),
                is_end_done: false,
            };
            let plan = EpochPlan::new(Order::identity(10), done, rank, 2, LastBatch::Drop);
            assert!(matches!(plan, Err(PlanError::Base { .. })));
        }
    }

    #[test]
    fn drop_leaves_out_the_last_places_of_the_plan() {
        let kept: Vec<u64> = (0..2)
            .flat_map(|r| {
                plan(11, Runs::default(), (r, 2), 2, LastBatch::Drop)
                    .slots()
                    .map(|s| s.place)
                    .collect::<Vec<_>>()
            })
            .collect();
        let mut sorted = kept.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn more_ranks_than_samples_gives_every_rank_a_padded_batch() {
        let mut own = Vec::new();
        for r in 0..5 {
            let plan = plan(2, Runs::default(), (r, 5), 3, LastBatch::Pad);
            assert_eq!(plan.division().steps, 1);
            assert_eq!(plan.slots().count(), 3);
            own.extend(plan.slots().filter(|s| !s.is_padding).map(|s| s.place));
        }
        own.sort_unstable();
        assert_eq!(own, [0, 1]);
    }

    #[test]
    fn an_epoch_with_nothing_left_has_no_steps() {
        let base = Runs::from_ranges([(0, 7)]);
        for last in [LastBatch::Drop, LastBatch::Partial, LastBatch::Pad] {
            assert_eq!(plan(7, base.clone(), (1, 3), 2, last).division().steps, 0);
        }
    }

    #[test]
    fn runs_join_neighbours_and_overlaps() {
        let runs = Runs::from_ranges([(4, 2), (0, 2), (2, 1), (5, 4), (20, 0)]);
        assert_eq!(runs.ranges().collect::<Vec<_>>(), [(0, 3), (4, 5)]);
        assert_eq!(runs.len(), 8);
        assert_eq!(
            (0..4).map(|i| runs.nth_outside(i)).collect::<Vec<_>>(),
            [3, 9, 10, 11]
        );
        assert!(runs.contains(8) && !runs.contains(3) && !runs.contains(9));
    }

    fn policies() -> impl Strategy<Value = LastBatch> {
        prop_oneof![
            Just(LastBatch::Drop),
            Just(LastBatch::Partial),
            Just(LastBatch::Pad)
        ]
    }

    proptest! {
        #[test]
        fn every_place_comes_exactly_once_over_the_ranks(
            n in 1_u64..400, world in 1_u64..9, batch in 1_u64..20, last in policies(),
            done in prop::collection::vec(0_u64..400, 0..60),
        ) {
            let base = Runs::from_places(done.into_iter().filter(|p| *p < n).collect());
            let mut times = BTreeMap::<u64, u32>::new();
            let mut steps = None;
            for rank in 0..world {
                let plan = plan(n, base.clone(), (rank, world), batch, last);
                let division = *plan.division();
                prop_assert_eq!(*steps.get_or_insert(division.steps), division.steps);
                let lengths: u64 = (0..division.steps).map(|s| division.batch_len(s)).sum();
                prop_assert_eq!(lengths, division.slots);
                if last != LastBatch::Partial {
                    prop_assert!((0..division.steps).all(|s| division.batch_len(s) == batch));
                }
                for (expected, slot) in (0..).zip(plan.slots()) {
                    prop_assert_eq!(slot.index, expected);
                    prop_assert!(!base.contains(slot.place));
                    prop_assert_eq!(plan.order().inverse(slot.position), slot.place);
                    if !slot.is_padding {
                        *times.entry(slot.place).or_default() += 1;
                    }
                }
            }
            prop_assert!(times.values().all(|&t| t == 1));
            let left = n - base.len();
            if last == LastBatch::Drop {
                let kept = steps.unwrap() * batch * world;
                prop_assert!(left - kept < batch * world);
                let first: Vec<u64> = (0..kept).map(|i| base.nth_outside(i)).collect();
                prop_assert_eq!(times.into_keys().collect::<Vec<_>>(), first);
            } else {
                prop_assert_eq!(times.len() as u64, left);
            }
        }

        #[test]
        fn ranks_that_go_on_after_the_same_step_do_the_rest(
            n in 1_u64..300, world in 1_u64..6, batch in 1_u64..12, last in policies(), picks: u64,
        ) {
            let fresh: Vec<EpochPlan> = (0..world)
                .map(|rank| plan(n, Runs::default(), (rank, world), batch, last))
                .collect();
            let steps = fresh[0].division().steps;
            prop_assume!(steps > 0);
            let stopped = picks % steps;
            let mut steps_left = None;
            for (rank, plan) in (0..).zip(&fresh) {
                // Any own slots may have been delivered, as many as fill the steps.
                let own = plan.division().own;
                let count = own.min(stopped * batch);
                let first = (picks / 7) % (own - count + 1);
                let done = Done { own: Runs::from_ranges([(first, count)]), ..Done::default() };
                let rank = Rank::new(rank, world).unwrap();
                let order = Order::shuffled(n, 3, 1);
                let rest = EpochPlan::new(order, done, rank, batch, last).unwrap();
                prop_assert_eq!(*steps_left.get_or_insert(rest.division().steps), rest.division().steps);
                let mut owns: Vec<u64> = rest.slots().filter(|s| !s.is_padding).map(|s| s.own).collect();
                prop_assert!(owns.iter().all(|o| *o < first || *o >= first + count));
                owns.extend(first..first + count);
                owns.sort_unstable();
                let kept = if last == LastBatch::Drop { owns.len() as u64 } else { plan.rank().share(n) };
                prop_assert_eq!(owns, (0..kept).collect::<Vec<_>>());
            }
            prop_assert_eq!(steps_left, Some(steps - stopped));
        }

        #[test]
        fn ranks_that_go_on_after_the_same_steps_in_any_order_do_the_rest(
            n in 1_u64..300, world in 1_u64..6, batch in 1_u64..12, again in 1_u64..12, is_padded: bool, picks: u64,
        ) {
            let last = if is_padded { LastBatch::Pad } else { LastBatch::Partial };
            let mut divisions = Vec::new();
            for rank in 0..world {
                let fresh = plan(n, Runs::default(), (rank, world), batch, last);
                let steps = fresh.division().steps;
                let is_done = |step: u64| step < 64 && picks >> step & 1 == 1;
                let slots = fresh.slots().filter(|slot| !slot.is_padding && is_done(slot.index / batch));
                let done = Done {
                    own: Runs::from_places(slots.map(|slot| slot.own).collect()),
                    is_end_done: is_done(steps - 1),
                    ..Done::default()
                };
                let left = fresh.division().own - done.own.len();
                let rank = Rank::new(rank, world).unwrap();
                let rest = EpochPlan::new(Order::identity(n), done, rank, again, last).unwrap();
                prop_assert_eq!(rest.slots().filter(|slot| !slot.is_padding).count() as u64, left);
                divisions.push(rest.division().steps);
            }
            prop_assert!(divisions.iter().all(|steps| *steps == divisions[0]), "{:?}", divisions);
        }

        #[test]
        fn nth_outside_walks_the_complement(done in prop::collection::vec(0_u64..200, 0..150)) {
            let runs = Runs::from_places(done.clone());
            let outside: Vec<u64> = (0..300).filter(|p| !done.contains(p)).collect();
            for (i, &place) in (0..).zip(&outside) {
                prop_assert_eq!(runs.nth_outside(i), place);
            }
        }
    }
}
