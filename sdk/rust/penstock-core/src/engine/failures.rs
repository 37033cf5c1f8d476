//! The report of what the user does not get: samples that could not be read, and sound ones that were lost with them.
//!
//! It speaks of steps that were acknowledged, as the state does: what is done was delivered or stands here, never both.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::SampleError;
use super::reads::Outcome;
use crate::id::Id;

/// Older ones are forgotten; the counters go on.
const MAX_UNREAD: usize = 1000;
/// Ids of sound samples that are kept, a megabyte of them; the last batch is kept whole, however large it was.
const MAX_LOST: usize = 65_536;

/// One sample that the user does not get in one epoch.
#[derive(Debug, Clone)]
pub struct Failure {
    pub epoch: u64,
    pub sample_id: Id,
    pub cause: Cause,
}

#[derive(Debug, Clone)]
pub enum Cause {
    /// It could not be read.
    Unread(SampleError),
    /// It is sound, but this other sample of its batch could not be read, and the error took the place of the batch.
    LostWith(Id),
}

/// What the user does not get of one step. Padding is owed to nobody and left out.
#[derive(Debug, Default)]
pub(super) struct Missed {
    pub unread: Vec<SampleError>,
    pub lost: Option<LostSamples>,
}

/// The sound samples of a batch that an error took the place of.
#[derive(Debug)]
pub(super) struct LostSamples {
    pub with: Id,
    pub ids: Vec<Id>,
}

impl Missed {
    /// Of a batch that is made without what could not be read.
    pub fn unread(outcomes: &[Outcome]) -> Self {
        let errors = owed(outcomes).filter_map(|outcome| outcome.answer.as_ref().err());
        Self {
            unread: errors.cloned().collect(),
            lost: None,
        }
    }

    /// Of a batch that is given up for one of its samples.
    pub fn all(outcomes: &[Outcome], with: Id) -> Self {
        let sound = owed(outcomes).filter(|outcome| outcome.answer.is_ok());
        Self {
            lost: Some(LostSamples {
                with,
                ids: sound.map(|outcome| outcome.sample_id).collect(),
            }),
            ..Self::unread(outcomes)
        }
    }

    pub fn is_empty(&self) -> bool {
        self.unread.is_empty() && self.lost.is_none()
    }

    /// All of them but one.
    pub fn besides(&self, named: Id) -> Arc<[Id]> {
        let unread = self.unread.iter().map(|error| error.sample_id);
        let lost = self.lost.iter().flat_map(|lost| lost.ids.iter().copied());
        unread.chain(lost).filter(|id| *id != named).collect()
    }
}

fn owed(outcomes: &[Outcome]) -> impl Iterator<Item = &Outcome> {
    outcomes.iter().filter(|outcome| !outcome.slot.is_padding)
}

#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    unread: VecDeque<(u64, SampleError)>,
    lost: VecDeque<(u64, LostSamples)>,
    lost_count: usize,
}

impl Failures {
    pub fn record(&self, epoch: u64, missed: Missed) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.unread
            .extend(missed.unread.into_iter().map(|error| (epoch, error)));
        let excess = kept.unread.len().saturating_sub(MAX_UNREAD);
        kept.unread.drain(..excess);
        if let Some(lost) = missed.lost.filter(|lost| !lost.ids.is_empty()) {
            kept.lost_count += lost.ids.len();
            kept.lost.push_back((epoch, lost));
        }
        while kept.lost_count > MAX_LOST
            && kept.lost.len() > 1
            && let Some((_, oldest)) = kept.lost.pop_front()
        {
            kept.lost_count -= oldest.ids.len();
        }
    }

    /// A sample that was missed in the same epoch more than once, because the epoch was begun anew, stands here once.
    pub fn to_vec(&self) -> Vec<Failure> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unread = kept.unread.iter().map(|(epoch, error)| Failure {
            epoch: *epoch,
            sample_id: error.sample_id,
            cause: Cause::Unread(error.clone()),
        });
        let lost = kept.lost.iter().flat_map(|(epoch, lost)| {
            lost.ids.iter().map(|sample_id| Failure {
                epoch: *epoch,
                sample_id: *sample_id,
                cause: Cause::LostWith(lost.with),
            })
        });
        let mut known = HashSet::new();
        unread
            .chain(lost)
            .filter(|failure| known.insert((failure.epoch, failure.sample_id)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::StoreError;

    fn id(number: usize) -> Id {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
        Id::new(bytes)
    }

    fn error(number: usize) -> SampleError {
        SampleError {
            sample_id: id(number),
            fields: Arc::from([Arc::from("image")]),
            source: Box::new(StoreError::Closed),
        }
    }

    fn lost(with: usize, ids: std::ops::Range<usize>) -> Missed {
        Missed {
            unread: vec![error(with)],
            lost: Some(LostSamples {
                with: id(with),
                ids: ids.map(id).collect(),
            }),
        }
    }

    #[test]
    fn the_report_is_bounded_and_keeps_the_newest() {
        let failures = Failures::default();
        let batch = 1 << 13;
        for number in 0..2000 {
            let first = 10_000 + number * batch;
            failures.record(0, lost(number, first..first + batch));
        }
        let report = failures.to_vec();
        assert_eq!(report.len(), MAX_UNREAD + MAX_LOST);
        assert_eq!(report[0].sample_id, id(1000), "the oldest are forgotten");
        assert_eq!(
            report.last().unwrap().sample_id,
            id(10_000 + 2000 * batch - 1)
        );
    }

    #[test]
    fn the_last_batch_is_named_whole() {
        let failures = Failures::default();
        failures.record(0, lost(0, 1..10));
        failures.record(0, lost(10, 11..200_000));
        assert_eq!(failures.to_vec().len(), 2 + 199_989);
    }

    #[test]
    fn a_sample_stands_once_an_epoch_and_by_its_own_failure() {
        let failures = Failures::default();
        failures.record(3, lost(0, 1..4));
        failures.record(3, lost(1, 2..5));
        failures.record(4, lost(0, 1..4));
        let report = failures.to_vec();
        let of = |epoch: u64| {
            let mut ids: Vec<Id> = report
                .iter()
                .filter(|failure| failure.epoch == epoch)
                .map(|failure| failure.sample_id)
                .collect();
            ids.sort_unstable();
            ids
        };
        assert_eq!(of(3), [0, 1, 2, 3, 4].map(id));
        assert_eq!(of(4), [0, 1, 2, 3].map(id));
        let of_one = report.iter().find(|failure| failure.sample_id == id(1));
        assert!(matches!(of_one.unwrap().cause, Cause::Unread(_)));
    }
}
