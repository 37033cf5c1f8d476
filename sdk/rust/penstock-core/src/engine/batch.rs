//! What the consumer gets.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::SampleError;
use super::assembly::done_ranges;
use super::failures::Missed;
use super::reads::{Outcome, SLOT_COST_BYTES};
use crate::arena::Block;

/// One field of a batch.
#[derive(Debug, Clone)]
pub struct BatchField {
    pub name: Arc<str>,
    pub content: Content,
}

/// The samples of one field.
#[derive(Debug, Clone)]
pub enum Content {
    /// End to end, in memory that the consumer may write.
    Arena {
        block: Arc<Block>,
        /// Where each sample starts, and one past the last byte.
        offsets: Vec<u64>,
    },
    /// Each for itself, as it came from the store.
    List(Vec<Bytes>),
}

impl Content {
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::Arena { block, .. } => block.len() as u64,
            Self::List(samples) => samples.iter().map(|sample| sample.len() as u64).sum(),
        }
    }
}

/// One step of a rank.
#[derive(Debug)]
pub struct Batch {
    /// Counts over the life of the engine; `ack` takes it.
    pub seq: u64,
    pub epoch: u64,
    /// Counts over the epoch, or over what was left of it at a resume.
    pub step: u64,
    /// Sample ids, 16 bytes each.
    pub ids: Vec<u8>,
    /// Positions in the subset's member order.
    pub positions: Vec<u64>,
    /// False for padding and replacements.
    pub valid: Vec<bool>,
    pub fields: Vec<BatchField>,
    /// Slots of this rank that the batch uses up, padding left out, failures included.
    pub(super) done: Vec<(u64, u64)>,
    /// Samples that those slots were for and that are not in it.
    pub(super) missed: Missed,
    /// What the batch counts against `prefetch_bytes` until it is taken: as much as its samples have from the start.
    pub(super) held_bytes: u64,
    pub(super) ready_at: Instant,
}

impl Batch {
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Bytes of all fields together.
    pub fn size_bytes(&self) -> u64 {
        let contents = self.fields.iter().map(|field| &field.content);
        contents.map(Content::size_bytes).sum()
    }
}

/// An error that stands in the place of a batch.
#[derive(Debug)]
pub(super) struct Lost {
    pub error: SampleError,
    /// As [`Batch::done`]: what the batch would have had.
    pub done: Vec<(u64, u64)>,
    pub missed: Missed,
    /// As [`Batch::held_bytes`]: what the report of its samples takes.
    pub held_bytes: u64,
}

/// What is laid down for one step.
#[derive(Debug)]
pub(super) enum Laid {
    Batch(Box<Batch>),
    Lost(Box<Lost>),
}

impl Laid {
    /// In the place of the batch that would have been made of these.
    pub fn lost(error: SampleError, outcomes: &[Outcome]) -> Self {
        Self::Lost(Box::new(Lost {
            done: done_ranges(outcomes),
            missed: Missed::all(outcomes, error.sample_id),
            held_bytes: SLOT_COST_BYTES * outcomes.len() as u64,
            error,
        }))
    }

    pub fn done(&self) -> &[(u64, u64)] {
        match self {
            Self::Batch(batch) => &batch.done,
            Self::Lost(lost) => &lost.done,
        }
    }

    pub fn held_bytes(&self) -> u64 {
        match self {
            Self::Batch(batch) => batch.held_bytes,
            Self::Lost(lost) => lost.held_bytes,
        }
    }
}
