//! Where an engine stands, as a state to be saved, and going on from one.

use super::{Engine, EngineError};
use crate::plan::{Done, EpochPlan};
use crate::state::{Entry, Share, State, StateError};

/// Where a resumed epoch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    pub epoch: u64,
    pub steps_done: u64,
    pub steps_left: u64,
}

impl Engine {
    pub(super) fn plan_from(&self, entry: &Entry) -> Result<EpochPlan, EngineError> {
        let done = Done {
            base: (*entry.base).clone(),
            own: entry.delivered.to_runs(),
            is_end_done: entry.is_end_done,
        };
        Ok(self.config.plan(entry.epoch, done)?)
    }

    /// What the acknowledged batches add up to. Unacknowledged ones will be delivered again.
    pub fn state(&self) -> Result<State, EngineError> {
        self.owner.check()?;
        let books = self.books();
        let entry = books.armed.clone().unwrap_or_else(|| books.ledger.entry());
        drop(books);
        Ok(self.state_of(entry))
    }

    /// The place before the first sample of an epoch.
    pub fn start_of(&self, epoch: u64) -> State {
        self.state_of(Entry {
            epoch,
            ..Entry::default()
        })
    }

    fn state_of(&self, entry: Entry) -> State {
        let config = &self.config;
        State {
            split_digest: config.split_digest.to_string(),
            sample_count: config.members.len(),
            is_shuffled: config.is_shuffled,
            seed: config.seed,
            epoch: entry.epoch,
            steps: entry.steps,
            base: entry.base,
            share: Some(Share {
                rank: config.rank.rank(),
                world_size: config.rank.world_size(),
                frontier: entry.delivered.frontier(),
                holes: entry.delivered.holes().collect(),
                is_end_done: entry.is_end_done,
            }),
        }
    }

    /// Lets the next `start_epoch` of the state's epoch go on where the state stands.
    pub fn resume(&self, state: &State) -> Result<Resumed, EngineError> {
        self.owner.check()?;
        self.check_state(state)?;
        let entry = state.entry(self.config.rank)?;
        let steps_left = self.plan_from(&entry)?.division().steps;
        let resumed = Resumed {
            epoch: entry.epoch,
            steps_done: entry.steps,
            steps_left,
        };
        self.books().armed = Some(entry);
        Ok(resumed)
    }

    fn check_state(&self, state: &State) -> Result<(), StateError> {
        let config = &self.config;
        let other =
            |what, saved: String, here: String| Err(StateError::Other { what, saved, here });
        if *state.split_digest != *config.split_digest {
            let here = config.split_digest.to_string();
            return other("split", state.split_digest.clone(), here);
        }
        if state.sample_count != config.members.len() {
            let (saved, here) = (state.sample_count, config.members.len());
            return other("number of samples", saved.to_string(), here.to_string());
        }
        if state.is_shuffled != config.is_shuffled {
            let (saved, here) = (state.is_shuffled, config.is_shuffled);
            return other("choice of shuffle", saved.to_string(), here.to_string());
        }
        if state.is_shuffled && state.seed != config.seed {
            return other("seed", state.seed.to_string(), config.seed.to_string());
        }
        Ok(())
    }
}
