//! Samples that stand in for those that could not be read.
//!
//! The first readable sample of the batch does, else the first readable one of the rank's epoch: the same one in every run,
//! however the answers came.

use std::sync::Arc;

use super::config::EngineConfig;
use super::reads::{Outcome, Payload, Reader, Requests};
use crate::errors::StoreError;
use crate::id::Id;
use crate::plan::Done;

/// Slots of the epoch that are tried, one after the other.
const MOST_TRIES: u64 = 64;

#[derive(Debug, Clone)]
pub(super) struct Donor {
    pub sample_id: Id,
    pub position: u64,
    pub payload: Arc<Payload>,
}

/// What stands in where no sample of a batch could be read.
#[derive(Debug, Default)]
pub(super) enum Fallback {
    #[default]
    Unsought,
    /// It is being looked for.
    Sought,
    Found(Donor),
    NotFound,
}

impl From<Option<Donor>> for Fallback {
    fn from(found: Option<Donor>) -> Self {
        found.map_or(Self::NotFound, Self::Found)
    }
}

impl Donor {
    /// The sample of an outcome, when its bytes are at hand.
    pub fn of(outcome: &Outcome) -> Option<Self> {
        let Ok(Payload::Here(fields)) = &outcome.answer else {
            return None;
        };
        Some(Self {
            sample_id: outcome.sample_id,
            position: outcome.slot.position,
            payload: Arc::new(Payload::Here(fields.clone())),
        })
    }

    /// The first sample of the rank's epoch that can be read.
    pub async fn of_epoch(config: &EngineConfig, reader: &Reader, epoch: u64) -> Option<Self> {
        let plan = config.plan(epoch, Done::default()).ok()?;
        let mut requests = Requests::default();
        for index in 0..MOST_TRIES {
            let slot = plan.slot(index)?;
            let request = requests.sample(&config.members, slot, 0, 0);
            match reader.fields(&request).await {
                Ok(fields) => {
                    return Some(Self {
                        sample_id: request.sample_id,
                        position: slot.position,
                        payload: Arc::new(Payload::Here(fields)),
                    });
                }
                Err(error) if is_about_the_sample(&error.source) => {}
                // The store is away: the next sample would be waited for as long again.
                Err(_) => return None,
            }
        }
        None
    }
}

fn is_about_the_sample(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Missing { .. } | StoreError::Corrupt { .. }
    )
}
