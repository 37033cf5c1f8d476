//! A consumer that asks for nothing gets its memory back: what was read and not handed out is given up, and read again
//! when it comes back.

use std::time::Duration;

use super::Driver;
use crate::engine::batch::Laid;
use crate::engine::run::Run;
use crate::plan::Done;
use crate::stats::add;

/// Patience doubles with each time, up to this often: a trainer that is only slow does not read everything twice at
/// every step.
const MOST_DOUBLINGS: u32 = 6;

impl Driver {
    pub(super) fn is_consumer_idle(&self) -> bool {
        self.exchange.idle_time() >= self.patience()
    }

    fn patience(&self) -> Duration {
        let doublings = self.work.parks.min(MOST_DOUBLINGS);
        self.config.idle.saturating_mul(1 << doublings)
    }

    pub(super) fn park_if_idle(&mut self) {
        if !self.is_consumer_idle() {
            return;
        }
        while self.work.runs.len() > 1
            && let Some(run) = self.work.runs.pop_back()
        {
            self.work.held_bytes -= run.held_bytes();
        }
        let Some(run) = self.work.runs.front() else {
            return;
        };
        let Some(ticket) = run.ticket else { return };
        if run.is_parked || run.is_handed_out(self.exchange.ready_len() as u64) {
            return;
        }
        // From here on the consumer gets nothing before it has asked for it again.
        let Some(untaken) = self.exchange.park(ticket, self.patience()) else {
            return;
        };
        let Some(run) = self.work.runs.pop_front() else {
            return;
        };
        let ready_bytes: u64 = untaken.iter().map(Laid::held_bytes).sum();
        self.work.held_bytes -= run.held_bytes() + ready_bytes;
        self.reopen(run, ticket, untaken.len());
        self.work.parks += 1;
        add(&self.stats.counters.parks, 1);
        drop(untaken);
        self.pool.trim(Duration::ZERO);
    }

    /// Puts a run in the place of one that is given up, for all that was not handed out of it; it waits until it is
    /// wanted. What is still under way for the old one is thrown away when it arrives.
    fn reopen(&mut self, mut given_up: Run, ticket: u64, untaken: usize) {
        let earlier = given_up.plan().done();
        let (base, is_end_done) = (earlier.base.clone(), earlier.is_end_done);
        let done = Done {
            base,
            own: given_up.handed_out(untaken),
            is_end_done,
        };
        match self.config.plan(given_up.epoch, done) {
            Ok(plan) => {
                self.open(given_up.epoch, plan);
                if let Some(run) = self.work.runs.back_mut() {
                    run.follow(&given_up, untaken as u64);
                    run.is_parked = true;
                }
            }
            Err(error) => self.exchange.fail(ticket, error.into()),
        }
    }
}
