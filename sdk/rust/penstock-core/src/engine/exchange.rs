//! Where the driver lays down batches and the consumer picks them up.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::EngineError;
use super::batch::{Batch, Laid, Lost};

/// What a consumer finds.
#[derive(Debug)]
pub(super) enum Taken {
    Batch {
        ticket: u64,
        batch: Box<Batch>,
    },
    /// An error in the place of a batch, with the numbers that the batch would have had.
    Lost {
        ticket: u64,
        seq: u64,
        step: u64,
        lost: Box<Lost>,
    },
    /// All steps of the epoch have been handed out.
    Finished,
    /// Nothing yet, within the time given.
    Nothing,
    /// What was ready has been given up: the driver has to be told that it is wanted again.
    Parked {
        ticket: u64,
    },
    /// Somebody has ended the wait.
    Interrupted,
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
    ready: VecDeque<Laid>,
    /// Stays behind what is ready until the next start.
    error: Option<EngineError>,
    /// An error that no new epoch can mend.
    fatal: Option<EngineError>,
    next_seq: u64,
    /// When the consumer was last here.
    asked_at: Option<Instant>,
    /// Nothing comes before the consumer asks again.
    is_parked: bool,
    /// Nothing is handed out before the next start.
    is_interrupted: bool,
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
        state.asked_at = Some(Instant::now());
        state.is_parked = false;
        state.is_interrupted = false;
        state.started = Some(Started {
            epoch,
            first_step,
            steps,
            handed_out: 0,
        });
        let dropped = std::mem::take(&mut state.ready);
        let freed_bytes = dropped.iter().map(Laid::held_bytes).sum();
        let ticket = state.ticket;
        drop(state);
        Ok((ticket, freed_bytes))
    }

    /// Consumer: the next batch, waiting for at most `patience`.
    pub fn take(&self, patience: Duration) -> Result<Taken, EngineError> {
        let now = Instant::now();
        let deadline = now + patience;
        let mut state = self.lock();
        state.asked_at = Some(now);
        loop {
            if let Some(fatal) = &state.fatal {
                return Err(fatal.clone());
            }
            if state.is_interrupted {
                return Ok(Taken::Interrupted);
            }
            let Some(mut started) = state.started else {
                return Err(EngineError::NotStarted);
            };
            if let Some(laid) = state.ready.pop_front() {
                let (ticket, seq) = (state.ticket, state.next_seq);
                let step = started.first_step + started.handed_out;
                started.handed_out += 1;
                state.started = Some(started);
                state.next_seq += 1;
                return Ok(match laid {
                    Laid::Batch(mut batch) => {
                        (batch.seq, batch.step) = (seq, step);
                        Taken::Batch { ticket, batch }
                    }
                    Laid::Lost(lost) => Taken::Lost {
                        ticket,
                        seq,
                        step,
                        lost,
                    },
                });
            }
            if let Some(error) = &state.error {
                return Err(error.clone());
            }
            if started.handed_out == started.steps {
                return Ok(Taken::Finished);
            }
            if std::mem::take(&mut state.is_parked) {
                let ticket = state.ticket;
                return Ok(Taken::Parked { ticket });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Taken::Nothing);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Consumer: ends a wait that is under way, or else the next one before the next start.
    pub fn interrupt(&self) {
        self.lock().is_interrupted = true;
        self.changed.notify_all();
    }

    /// Consumer: goes on with this epoch if it is the one under way, sound, and nothing of it has been taken.
    pub fn go_on(&self, epoch: u64) -> bool {
        let mut state = self.lock();
        let is_at_start = |started: &Started| started.epoch == epoch && started.handed_out == 0;
        let is_sound = state.error.is_none() && state.fatal.is_none();
        let is_untouched = is_sound && state.started.iter().any(is_at_start);
        state.is_interrupted &= !is_untouched;
        is_untouched
    }

    /// How long the consumer has asked for nothing.
    pub fn idle_time(&self) -> Duration {
        let asked_at = self.lock().asked_at;
        asked_at.map_or(Duration::ZERO, |at| at.elapsed())
    }

    /// Driver: takes back what lies ready for this start, if nobody has asked for so long. Whatever was handed out
    /// before stays handed out, and nothing is before the consumer asks again.
    pub fn park(&self, ticket: u64, patience: Duration) -> Option<VecDeque<Laid>> {
        let mut state = self.lock();
        let is_idle = state.asked_at.is_some_and(|at| at.elapsed() >= patience);
        let is_sound = state.fatal.is_none() && state.error.is_none();
        if state.ticket != ticket || !is_idle || !is_sound || state.is_parked {
            return None;
        }
        state.is_parked = true;
        Some(std::mem::take(&mut state.ready))
    }

    pub fn ready_len(&self) -> usize {
        self.lock().ready.len()
    }

    /// Driver: lays a batch down; given back when nobody waits for its epoch any more. Returns how many lie there.
    pub fn push(&self, ticket: u64, laid: Laid) -> Result<usize, Laid> {
        let mut state = self.lock();
        if state.ticket != ticket || state.fatal.is_some() {
            return Err(laid);
        }
        state.ready.push_back(laid);
        let count = state.ready.len();
        drop(state);
        self.changed.notify_one();
        Ok(count)
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
