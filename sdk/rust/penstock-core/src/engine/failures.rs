//! The report of what could not be read.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::SampleError;

/// Older ones are forgotten; the counters go on.
const MAX_KEPT: usize = 1000;

/// One sample that could not be read, in one epoch.
#[derive(Debug, Clone)]
pub struct Failure {
    pub epoch: u64,
    pub error: SampleError,
}

#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<VecDeque<Failure>>);

impl Failures {
    /// A sample that is read again in the same epoch and fails again stands here once.
    pub fn record(&self, epoch: u64, error: &SampleError) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same =
            |known: &Failure| (known.epoch, known.error.sample_id) == (epoch, error.sample_id);
        if kept.iter().any(is_same) {
            return;
        }
        if kept.len() == MAX_KEPT {
            kept.pop_front();
        }
        kept.push_back(Failure {
            epoch,
            error: error.clone(),
        });
    }

    pub fn to_vec(&self) -> Vec<Failure> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().cloned().collect()
    }
}
