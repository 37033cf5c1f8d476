//! What the consumer gets.

use std::sync::Arc;
use std::time::Instant;

use crate::arena::Block;

/// One field of a batch: all samples end to end.
#[derive(Debug, Clone)]
pub struct FieldBlock {
    pub name: Arc<str>,
    pub block: Arc<Block>,
    /// Where each sample starts, and one past the last byte.
    pub offsets: Vec<u64>,
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
    pub fields: Vec<FieldBlock>,
    /// Slots of this rank that the batch uses up, padding left out, failures included.
    pub(super) done: Vec<(u64, u64)>,
    /// What the batch counts against `prefetch_bytes` until it is taken.
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
        self.fields
            .iter()
            .map(|field| field.block.len() as u64)
            .sum()
    }
}
