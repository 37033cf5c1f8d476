//! What samples that could not be read mean for their batch.

use super::Driver;
use crate::engine::config::{EngineConfig, FREE_FAILURES, OnError};
use crate::engine::donors::{Donor, Fallback};
use crate::engine::failures::Missed;
use crate::engine::laying::Cut;
use crate::engine::run::{Over, Run};
use crate::engine::{EngineError, SampleError};

/// What becomes of a batch whose outcomes are all known.
pub(super) enum Verdict {
    /// It is made, with this sample in the place of those that failed, or without them.
    Made(Option<Donor>),
    /// No sample of the batch can stand in for the others, and none of the epoch has been looked for.
    LacksDonor,
    /// The error takes its place; the epoch goes on behind it.
    Lost(SampleError),
    /// The error takes its place, and nothing comes behind it.
    Over(Over),
}

impl Driver {
    /// Batches with failures are judged in the order of their steps. Padding that cannot be read is no failure of this
    /// batch: what it repeats is owed, and judged, elsewhere.
    pub(super) fn judge(&mut self, index: usize, cut: &Cut) -> Verdict {
        let run = &mut self.work.runs[index];
        let missed = Missed::unread(&cut.outcomes);
        let first = missed.unread.first().cloned();
        if let Some(first) = &first {
            if self.config.on_error == OnError::Raise {
                return Verdict::Lost(first.clone());
            }
            run.set_failures(cut.step, missed.unread.len() as u64);
            let failed = run.failed_up_to(cut.step);
            let owed = run.owed_up_to(cut);
            if is_over_limit(&self.config, run, failed, owed) {
                return Verdict::Over(Over {
                    step: cut.step,
                    error: EngineError::TooManyFailures {
                        failed,
                        outcomes: owed,
                        limit: self.config.max_failed_share,
                        last: first.clone(),
                    },
                    missed,
                });
            }
        }
        let is_whole = || cut.outcomes.iter().all(|outcome| outcome.answer.is_ok());
        if self.config.on_error != OnError::Replace || is_whole() {
            return Verdict::Made(None);
        }
        let own = cut.donor.clone();
        match own.or_else(|| cut.outcomes.iter().find_map(Donor::of)) {
            Some(donor) => Verdict::Made(Some(donor)),
            None => match &run.fallback {
                Fallback::Unsought | Fallback::Sought => Verdict::LacksDonor,
                Fallback::Found(donor) => Verdict::Made(Some(donor.clone())),
                Fallback::NotFound => first.map_or(Verdict::Made(None), Verdict::Lost),
            },
        }
    }
}

/// A few failures are always let through; beyond them their share counts, and so does an epoch in which
/// nothing at all could be read.
fn is_over_limit(config: &EngineConfig, run: &Run, failed: u64, owed: u64) -> bool {
    #[allow(clippy::cast_precision_loss)]
    let is_share_over = failed as f64 > config.max_failed_share * owed as f64;
    // A few samples that are left at a resume may all be bad.
    let has_read_nothing = failed == run.owed() && run.is_whole_epoch;
    (failed > FREE_FAILURES && is_share_over) || has_read_nothing
}
