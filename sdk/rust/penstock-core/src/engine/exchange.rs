//! Where the driver lays down batches and the consumer picks them up.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::EngineError;
use super::batch::Batch;

/// What a consumer finds.
#[derive(Debug)]
pub(super) enum Taken {
    Batch {
        ticket: u64,
        batch: Box<Batch>,
    },
    /// All steps of the epoch have been handed out.
    Finished,
    /// Nothing yet, within the time given.
    Nothing,
}

#[derive(Debug, Default)]
pub(super) struct Exchange {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Counts the starts; batches of an earlier one are not accepted.
    ticket: u64,
    started: Option<Started>,
    ready: VecDeque<Batch>,
    error: Option<EngineError>,
    /// An error that no new epoch can mend.
    fatal: Option<EngineError>,
    next_seq: u64,
    has_driver_ended: bool,
}

/// The epoch under way.
#[derive(Debug, Clone, Copy)]
struct Started {
    epoch: u64,
    first_step: u64,
    steps: u64,
    handed_out: u64,
}

impl Exchange {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Consumer: begins an epoch. Returns its ticket and the held bytes of batches that were not taken.
    /// `first_step` is what its steps are counted from.
    pub fn start(
        &self,
        epoch: u64,
        first_step: u64,
        steps: u64,
    ) -> Result<(u64, u64), EngineError> {
        let mut state = self.lock();
        if let Some(fatal) = &state.fatal {
            return Err(fatal.clone());
        }
        state.ticket += 1;
        state.error = None;
        state.started = Some(Started {
            epoch,
            first_step,
            steps,
            handed_out: 0,
        });
        let dropped: VecDeque<Batch> = std::mem::take(&mut state.ready);
        let freed_bytes = dropped.iter().map(|batch| batch.held_bytes).sum();
        let ticket = state.ticket;
        drop(state);
        Ok((ticket, freed_bytes))
    }

    /// Consumer: the next batch, waiting for at most `patience`.
    pub fn take(&self, patience: Duration) -> Result<Taken, EngineError> {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            if let Some(fatal) = &state.fatal {
                return Err(fatal.clone());
            }
            let Some(mut started) = state.started else {
                return Err(EngineError::NotStarted);
            };
            if let Some(mut batch) = state.ready.pop_front() {
                started.handed_out += 1;
                state.started = Some(started);
                batch.step += started.first_step;
                batch.seq = state.next_seq;
                state.next_seq += 1;
                return Ok(Taken::Batch {
                    ticket: state.ticket,
                    batch: Box::new(batch),
                });
            }
            if let Some(error) = &state.error {
                return Err(error.clone());
            }
            if started.handed_out == started.steps {
                return Ok(Taken::Finished);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Taken::Nothing);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether this epoch is the one under way, sound, and nothing of it has been taken.
    pub fn is_untouched(&self, epoch: u64) -> bool {
        let state = self.lock();
        let is_at_start = |started: &Started| started.epoch == epoch && started.handed_out == 0;
        state.error.is_none() && state.fatal.is_none() && state.started.iter().any(is_at_start)
    }

    pub fn ready_len(&self) -> usize {
        self.lock().ready.len()
    }

    /// Driver: lays a batch down; given back when nobody waits for its epoch any more.
    pub fn push(&self, ticket: u64, batch: Batch) -> Result<(), Box<Batch>> {
        let mut state = self.lock();
        if state.ticket != ticket || state.fatal.is_some() {
            return Err(Box::new(batch));
        }
        state.ready.push_back(batch);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Driver: what follows the batches laid down so far.
    pub fn fail(&self, ticket: u64, error: EngineError) {
        let mut state = self.lock();
        if state.ticket == ticket {
            state.error = Some(error);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the engine for good; the first reason stays.
    pub fn end(&self, reason: EngineError) {
        let mut state = self.lock();
        state.fatal.get_or_insert(reason);
        let dropped = std::mem::take(&mut state.ready);
        drop(state);
        drop(dropped);
        self.changed.notify_all();
    }

    pub fn is_ended(&self) -> bool {
        self.lock().fatal.is_some()
    }

    pub fn driver_ended(&self) {
        self.lock().has_driver_ended = true;
        self.changed.notify_all();
    }

    /// Waits until the driver has let go of everything. False when it has not in time.
    pub fn wait_for_driver(&self, patience: Duration) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), patience, |state| !state.has_driver_ended);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.has_driver_ended
    }
}
