//! States of all ranks become one, free of topology.

use std::borrow::Cow;

use super::{Share, State, StateError};
use crate::plan::{Rank, Runs};

/// The union of what the ranks have done. Every rank has to be there once, with equal steps and base;
/// `allows_skew` takes what is there instead, as long as it is of one epoch and base; a rank that has just
/// finished that epoch has done all of its share.
pub fn merge(states: &[State], allows_skew: bool) -> Result<State, StateError> {
    if states.is_empty() {
        return refused("there is no state to merge".to_owned());
    }
    if let [only] = states
        && only.share.is_none()
    {
        return Ok(only.clone());
    }
    shares_of(states)?;
    let states = if allows_skew {
        before_the_edge(states)
    } else {
        Cow::Borrowed(states)
    };
    let shares = shares_of(&states)?;
    let first = &states[0];
    check_alike(first, &states)?;
    if !allows_skew {
        check_complete(&states, &shares)?;
    }
    let done = outside(&first.base, &done_of_rest(&shares));
    Ok(State {
        steps: states.iter().map(|state| state.steps).max().unwrap_or(0),
        base: first.base.union(&done).into(),
        share: None,
        ..first.clone()
    })
}

/// When some ranks stand at the very beginning of the epoch after that of the others: theirs as the end of the
/// epoch that the others are in.
fn before_the_edge(states: &[State]) -> Cow<'_, [State]> {
    let Some(behind) = states.iter().min_by_key(|state| state.epoch) else {
        return Cow::Borrowed(states);
    };
    let has_finished = |state: &State| {
        let is_at_start = |share: &Share| share.frontier == 0;
        state.epoch == behind.epoch + 1
            && state.base.is_empty()
            && state.share.as_ref().is_some_and(is_at_start)
    };
    if !states.iter().any(has_finished) {
        return Cow::Borrowed(states);
    }
    let left = behind.sample_count.saturating_sub(behind.base.len());
    let most_steps = states
        .iter()
        .filter(|state| state.epoch == behind.epoch)
        .map(|state| state.steps)
        .max();
    let at_the_end = |share: &Share| Share {
        frontier: Rank::new(share.rank, share.world_size).map_or(0, |rank| rank.share(left)),
        is_end_done: true,
        ..share.clone()
    };
    let moved = states.iter().map(|state| {
        if !has_finished(state) {
            return state.clone();
        }
        State {
            epoch: behind.epoch,
            base: behind.base.clone(),
            steps: most_steps.unwrap_or(0),
            share: state.share.as_ref().map(at_the_end),
            ..state.clone()
        }
    });
    Cow::Owned(moved.collect())
}

fn refused<T>(reason: String) -> Result<T, StateError> {
    Err(StateError::Merge { reason })
}

fn shares_of(states: &[State]) -> Result<Vec<&Share>, StateError> {
    let shares: Vec<&Share> = states.iter().filter_map(|s| s.share.as_ref()).collect();
    if shares.len() < states.len() {
        return refused("one of them is merged already".to_owned());
    }
    let world_size = shares[0].world_size;
    if let Some(other) = shares.iter().find(|share| share.world_size != world_size) {
        return refused(format!(
            "they come from worlds of {world_size} and of {}",
            other.world_size
        ));
    }
    let mut ranks: Vec<u64> = shares.iter().map(|share| share.rank).collect();
    ranks.sort_unstable();
    if let Some((rank, _)) = ranks.iter().zip(&ranks[1..]).find(|(a, b)| a == b) {
        return refused(format!("rank {rank} is there twice"));
    }
    Ok(shares)
}

fn check_alike(first: &State, states: &[State]) -> Result<(), StateError> {
    for state in states {
        let pairs = [
            ("split", state.split_digest == first.split_digest),
            (
                "number of samples",
                state.sample_count == first.sample_count,
            ),
            ("shuffle", state.is_shuffled == first.is_shuffled),
            ("seed", state.seed == first.seed),
            ("epoch", state.epoch == first.epoch),
            ("base", state.base == first.base),
        ];
        if let Some((what, _)) = pairs.iter().find(|(_, is_equal)| !is_equal) {
            return refused(format!("they differ in {what}"));
        }
    }
    Ok(())
}

fn check_complete(states: &[State], shares: &[&Share]) -> Result<(), StateError> {
    let missing: Vec<String> = (0..shares[0].world_size)
        .filter(|rank| shares.iter().all(|share| share.rank != *rank))
        .map(|rank| rank.to_string())
        .collect();
    if !missing.is_empty() {
        return refused(format!("rank {} is missing", missing.join(", ")));
    }
    let steps: Vec<u64> = states.iter().map(|state| state.steps).collect();
    if steps.iter().any(|count| *count != steps[0]) {
        return refused(format!(
            "the ranks stand at different steps ({steps:?}): save all of them after the same step, or allow skew"
        ));
    }
    Ok(())
}

/// What the ranks have done, counted over the places that were still to do when the base was made.
/// Below the lowest frontier everything is done but the holes; only what is above is listed one by one.
fn done_of_rest(shares: &[&Share]) -> Runs {
    let world_size = shares[0].world_size;
    let is_complete = shares.len() as u64 == world_size;
    let lowest = shares.iter().map(|share| share.frontier).min();
    let lowest = lowest.filter(|_| is_complete).unwrap_or(0);
    let mut open = Vec::new();
    let mut done = Vec::new();
    for share in shares {
        let place = |index: u64| share.rank + index * world_size;
        let holes = share
            .holes
            .iter()
            .flat_map(|(start, length)| *start..start + length);
        open.extend(holes.filter(|index| *index < lowest).map(place));
        for (start, length) in share.delivered().done() {
            let above = start.max(lowest)..start + length;
            done.extend(above.map(|index| (place(index), 1)));
        }
    }
    let mut from = 0;
    for (start, length) in Runs::from_places(open)
        .ranges()
        .chain([(lowest * world_size, 0)])
    {
        done.push((from, start - from));
        from = start + length;
    }
    Runs::from_ranges(done)
}

/// Ranges over what was left outside of `base`, as ranges of the whole. A range may come out longer by
/// what of `base` lies inside; that is done as well.
fn outside(base: &Runs, rest: &Runs) -> Runs {
    Runs::from_ranges(rest.ranges().map(|(start, length)| {
        let first = base.nth_outside(start);
        let last = base.nth_outside(start + length - 1);
        (first, last - first + 1)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(rank: u64, world_size: u64, frontier: u64, holes: &[(u64, u64)]) -> State {
        State {
            split_digest: "b3:1".to_owned(),
            sample_count: 100,
            is_shuffled: true,
            seed: 1,
            epoch: 2,
            steps: 3,
            base: Runs::from_ranges([(0, 4)]).into(),
            share: Some(Share {
                rank,
                world_size,
                frontier,
                holes: holes.to_vec(),
                is_end_done: false,
            }),
        }
    }

    fn reason(states: &[State]) -> String {
        merge(states, false).unwrap_err().to_string()
    }

    #[test]
    fn ranks_fill_each_other_up_behind_the_base() {
        let merged = merge(&[state(1, 2, 3, &[]), state(0, 2, 4, &[(1, 2)])], false).unwrap();
        // Of the rest 0 2 4 6 belong to rank 0 (1 and 2 are holes), 1 3 5 to rank 1; place = rest + 4.
        let expected = [(0, 6), (7, 1), (9, 2)];
        assert_eq!(merged.base.ranges().collect::<Vec<_>>(), expected);
        assert_eq!((merged.share, merged.steps), (None, 3));
    }

    #[test]
    fn a_merged_state_stays_as_it_is() {
        let merged = merge(&[state(0, 1, 5, &[(2, 1)])], false).unwrap();
        assert_eq!(merge(std::slice::from_ref(&merged), false).unwrap(), merged);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let whole = [state(0, 3, 2, &[]), state(2, 3, 2, &[])];
        assert!(reason(&whole).contains("rank 1 is missing"));
        assert!(reason(&[]).contains("no state"));
        let twice = [state(0, 2, 2, &[]), state(0, 2, 2, &[])];
        assert!(reason(&twice).contains("rank 0 is there twice"));
        let worlds = [state(0, 2, 2, &[]), state(1, 3, 2, &[])];
        assert!(reason(&worlds).contains("worlds of 2 and of 3"));
        let mut later = state(1, 2, 2, &[]);
        later.steps = 4;
        assert!(reason(&[state(0, 2, 2, &[]), later]).contains("different steps ([3, 4])"));
        let mut other = state(1, 2, 2, &[]);
        other.epoch = 3;
        assert!(reason(&[state(0, 2, 2, &[]), other]).contains("differ in epoch"));
        let mut merged = state(1, 2, 2, &[]);
        merged.share = None;
        assert!(reason(&[state(0, 2, 2, &[]), merged]).contains("merged already"));
    }

    #[test]
    fn skew_takes_what_is_there() {
        let mut later = state(1, 3, 4, &[]);
        later.steps = 9;
        let merged = merge(&[state(0, 3, 1, &[]), later], true).unwrap();
        assert_eq!(merged.base.len(), 4 + 1 + 4);
        assert_eq!(merged.steps, 9);
    }

    #[test]
    fn a_rank_that_has_finished_the_epoch_has_done_its_share() {
        let finished = State {
            epoch: 3,
            steps: 0,
            base: Runs::default().into(),
            ..state(1, 2, 0, &[])
        };
        let behind = state(0, 2, 46, &[(2, 1)]);
        for states in [
            [finished.clone(), behind.clone()],
            [behind.clone(), finished.clone()],
        ] {
            let merged = merge(&states, true).unwrap();
            // 96 places are left outside the base, 48 a rank; rank 0 lacks its third and its last two.
            assert_eq!((merged.epoch, merged.steps), (2, 3));
            assert_eq!(merged.base.len(), 4 + 48 + 45);
            assert!(!merged.base.contains(4 + 4) && !merged.base.contains(4 + 92));
            assert!(merged.base.contains(4 + 95));
            assert!(reason(&states).contains("differ in epoch"));
        }
        let mut ahead = finished;
        ahead.share.as_mut().unwrap().frontier = 1;
        let refused = merge(&[behind, ahead], true).unwrap_err().to_string();
        assert!(refused.contains("differ in epoch"), "{refused}");
    }
}
