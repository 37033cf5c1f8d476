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
    /// Batches with failures are judged in the order of their steps.
    pub(super) fn judge(&mut self, index: usize, cut: &Cut) -> Verdict {
        let failed: Vec<_> = cut
            .outcomes
            .iter()
            .filter_map(|outcome| Some((outcome.slot.is_padding, outcome.answer.as_ref().err()?)))
            .collect();
        // One that is in the report, if there is one: padding is not.
        let Some((_, first)) = failed.iter().min_by_key(|(is_padding, _)| *is_padding) else {
            return Verdict::Made(None);
        };
        let first = (*first).clone();
        if self.config.on_error == OnError::Raise {
            return Verdict::Lost(first);
        }
        let run = &mut self.work.runs[index];
        run.set_failures(cut.step, failed.len() as u64);
        let before = run.outcomes_before + cut.step * self.config.batch_size;
        let outcomes = before + cut.outcomes.len() as u64;
        let failed = run.failed_up_to(cut.step);
        if is_over_limit(&self.config, run, failed, outcomes) {
            return Verdict::Over(Over {
                step: cut.step,
                error: EngineError::TooManyFailures {
                    failed,
                    outcomes,
                    limit: self.config.max_failed_share,
                    last: first,
                },
                missed: Missed::unread(&cut.outcomes),
            });
        }
        if self.config.on_error == OnError::Skip {
            return Verdict::Made(None);
        }
        let own = cut.donor.clone();
        match own.or_else(|| cut.outcomes.iter().find_map(Donor::of)) {
            Some(donor) => Verdict::Made(Some(donor)),
            None => match &run.fallback {
                Fallback::Unsought => Verdict::LacksDonor,
                Fallback::Found(donor) => Verdict::Made(Some(donor.clone())),
                Fallback::NotFound => Verdict::Lost(first),
            },
        }
    }
}

/// A few failures are always let through; beyond them their share counts, and so does an epoch in which
/// nothing at all could be read.
fn is_over_limit(config: &EngineConfig, run: &Run, failed: u64, outcomes: u64) -> bool {
    #[allow(clippy::cast_precision_loss)]
    let is_share_over = failed as f64 > config.max_failed_share * outcomes as f64;
    let slots = run.outcomes_before + run.plan().division().slots;
    // A few samples that are left at a resume may all be bad.
    let has_read_nothing = failed == slots && run.is_whole_epoch();
    (failed > FREE_FAILURES && is_share_over) || has_read_nothing
}
