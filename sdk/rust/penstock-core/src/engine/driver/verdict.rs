//! What samples that could not be read mean for their batch.

use super::Driver;
use crate::engine::assembly::Donor;
use crate::engine::config::{EngineConfig, FREE_FAILURES, OnError};
use crate::engine::failures::Missed;
use crate::engine::laying::Cut;
use crate::engine::run::Run;
use crate::engine::{EngineError, SampleError};
use crate::stats::add;

/// What becomes of a batch whose outcomes are all known.
pub(super) enum Verdict {
    /// It is made, with this sample in the place of those that failed, or without them.
    Made(Option<Donor>),
    /// The error takes its place; the epoch goes on behind it.
    Lost(SampleError),
    /// The error takes its place, and nothing comes behind it.
    Over(EngineError),
}

impl Driver {
    pub(super) fn judge(&mut self, index: usize, cut: &Cut) -> Verdict {
        let replaces = self.config.on_error == OnError::Replace;
        if replaces {
            let own = cut.donor.clone();
            let own = own.or_else(|| cut.outcomes.iter().find_map(Donor::of));
            self.work.donor = own.or(self.work.donor.take());
        }
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
        let count = failed.len() as u64;
        add(&self.stats.counters.errors, count);
        if self.config.on_error == OnError::Raise {
            return Verdict::Lost(first);
        }
        self.work.runs[index].add_failures(cut.step, count);
        let run = &self.work.runs[index];
        let before = run.outcomes_before + cut.step * self.config.batch_size;
        let outcomes = before + cut.outcomes.len() as u64;
        if is_over_limit(&self.config, run, outcomes) {
            // Nobody will acknowledge this step.
            let missed = Missed::unread(&cut.outcomes);
            self.failures.record(run.epoch, missed);
            return Verdict::Over(EngineError::TooManyFailures {
                failed: run.failed(),
                outcomes,
                limit: self.config.max_failed_share,
                last: first,
            });
        }
        if !replaces {
            add(&self.stats.counters.skipped, count);
            return Verdict::Made(None);
        }
        let Some(donor) = self.work.donor.clone() else {
            return Verdict::Lost(first);
        };
        add(&self.stats.counters.replaced, count);
        Verdict::Made(Some(donor))
    }
}

/// A few failures are always let through; beyond them their share counts, and so does an epoch in which
/// nothing at all could be read.
fn is_over_limit(config: &EngineConfig, run: &Run, outcomes: u64) -> bool {
    #[allow(clippy::cast_precision_loss)]
    let is_share_over = run.failed() as f64 > config.max_failed_share * outcomes as f64;
    let slots = run.outcomes_before + run.plan().division().slots;
    // A few samples that are left at a resume may all be bad.
    let has_read_nothing = run.failed() == slots && run.is_whole_epoch();
    (run.failed() > FREE_FAILURES && is_share_over) || has_read_nothing
}
