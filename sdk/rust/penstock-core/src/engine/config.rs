//! What an engine is told when it is made, checked at once.

use std::sync::Arc;
use std::time::Duration;

use super::EngineError;
use crate::id::Id;
use crate::members::Members;
use crate::order::Order;
use crate::plan::{Division, Done, EpochPlan, LastBatch, PlanError, Rank};

/// Up to this many samples may fail in an epoch before their share is looked at.
pub const FREE_FAILURES: u64 = 8;

/// Samples of a batch: each needs a place before it comes.
const MOST_BATCH_SIZE: u64 = 1 << 22;

/// More batches than any epoch has; steps are added to it.
const MOST_DISPLACEMENT: u64 = (1 << 63) - 1;

/// Members looked at to expect the size of a batch before the first one.
const EXPECTATION_SAMPLES: u64 = 64;

/// Held of a store on this machine, in bytes or in batches: in hand-over, in copies, and next. It hides the slowest
/// disk behind a training step; more would only fall out of the CPU's caches before it is needed.
const NEAR_BYTES: u64 = 32 << 20;
const NEAR_BATCHES: u64 = 6;
/// The same batches with the room that their blocks may have to spare.
const IDLE_BATCHES: u64 = NEAR_BATCHES + NEAR_BATCHES.div_ceil(4);
const LEAST_IDLE_BATCHES: u64 = 4;

/// What a sample that cannot be read does to its batch. It uses up its slot in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The batch is replaced by the error: its other samples are done too, named in the error and in the report, and the
    /// next call gives the next batch.
    Raise,
    /// The batch is shorter by it.
    Skip,
    /// A flagged repeat of another sample of this rank stands in its place.
    Replace,
}

impl OnError {
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "raise" => Some(Self::Raise),
            "skip" => Some(Self::Skip),
            "replace" => Some(Self::Replace),
            _ => None,
        }
    }
}

/// How the samples of a batch lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchForm {
    /// Each field end to end, in memory that the consumer may write.
    Arena,
    /// Each sample for itself as it came, which saves the copy.
    List,
}

impl BatchForm {
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "arena" => Some(Self::Arena),
            "list" => Some(Self::List),
            _ => None,
        }
    }
}

/// Everything that stays the same over the life of an engine.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // choices of the user that do not depend on each other
pub struct EngineConfig {
    pub dataset_id: Id,
    pub members: Members,
    pub batch_size: u64,
    pub is_shuffled: bool,
    pub seed: u64,
    pub rank: Rank,
    pub last_batch: LastBatch,
    pub form: BatchForm,
    pub is_in_order: bool,
    /// How many batches late a sample may come; without meaning when `is_in_order`.
    pub max_displacement: u64,
    /// Bytes in flight; `None` lets the engine find out.
    pub window_bytes: Option<u64>,
    /// Bytes requested, arrived and assembled that nobody has taken yet.
    pub prefetch_bytes: u64,
    /// Whether somebody has chosen `prefetch_bytes`; a default is lowered where less is as good.
    pub is_prefetch_fixed: bool,
    pub on_error: OnError,
    /// Share of an epoch's samples that may fail under `skip` and `replace`.
    pub max_failed_share: f64,
    /// How long a read may wait for a store that does not answer.
    pub store_wait: Duration,
    /// Whether the epoch after this one is read while this one ends.
    pub is_next_epoch_prefetched: bool,
    /// What was read ahead is given up when the consumer has asked for nothing for so long; it is read again when it
    /// comes back.
    pub idle: Duration,
    /// Digest of the split that the members come from; states of another are refused.
    pub split_digest: Arc<str>,
}

impl EngineConfig {
    /// A configuration with the usual choices; fields are then changed one by one.
    pub fn new(dataset_id: Id, members: Members, batch_size: u64, rank: Rank) -> Self {
        Self {
            dataset_id,
            members,
            batch_size,
            is_shuffled: false,
            seed: 0,
            rank,
            last_batch: LastBatch::Partial,
            form: BatchForm::Arena,
            is_in_order: false,
            max_displacement: 8,
            window_bytes: None,
            prefetch_bytes: 256 << 20,
            is_prefetch_fixed: false,
            on_error: OnError::Raise,
            max_failed_share: 0.01,
            store_wait: Duration::from_secs(60),
            is_next_epoch_prefetched: true,
            idle: Duration::from_secs(60),
            split_digest: Arc::from(""),
        }
    }

    pub(super) fn check(&self) -> Result<(), EngineError> {
        Division::new(
            1,
            self.rank,
            &Done::default(),
            self.batch_size,
            self.last_batch,
        )?;
        let invalid = |reason: String| Err(EngineError::Config { reason });
        if self.batch_size > MOST_BATCH_SIZE {
            return invalid(format!(
                "batch_size is {}: at most {MOST_BATCH_SIZE} samples are possible",
                self.batch_size
            ));
        }
        if self.window_bytes == Some(0) {
            return invalid("window_bytes is 0: nothing could ever be requested".to_owned());
        }
        if self.prefetch_bytes == 0 {
            return invalid("prefetch_bytes is 0: nothing could ever be read ahead".to_owned());
        }
        if self.max_displacement == 0 && !self.is_in_order {
            return invalid(
                "max_displacement is 0: use at least 1, or in_order for the exact order".to_owned(),
            );
        }
        if self.max_displacement > MOST_DISPLACEMENT {
            return invalid(format!(
                "max_displacement is {}: it counts batches, at most 2**63 - 1",
                self.max_displacement
            ));
        }
        if !(0.0..=1.0).contains(&self.max_failed_share) {
            return invalid(format!(
                "max_failed_share is {}: it is a share between 0 and 1",
                self.max_failed_share
            ));
        }
        if self.idle.is_zero() {
            return invalid("idle is 0: nothing could ever be kept for the consumer".to_owned());
        }
        let (position, size_bytes) = self.members.largest();
        if size_bytes > self.prefetch_bytes {
            return invalid(format!(
                "sample {} has {size_bytes} bytes, more than prefetch_bytes ({}): raise prefetch_bytes to at least that",
                self.members.id(position),
                self.prefetch_bytes
            ));
        }
        Ok(())
    }

    /// The plan of one epoch, or of what is left of it.
    pub(super) fn plan(&self, epoch: u64, done: Done) -> Result<EpochPlan, PlanError> {
        let count = self.members.len();
        let order = if self.is_shuffled {
            Order::shuffled(count, self.seed, epoch)
        } else {
            Order::identity(count)
        };
        EpochPlan::new(order, done, self.rank, self.batch_size, self.last_batch)
    }

    /// What each field of a batch will need in the arena, judged by a few members.
    pub(super) fn expected_field_bytes(&self) -> impl Iterator<Item = u64> {
        let count = self.members.len();
        let looked_at = EXPECTATION_SAMPLES.min(count).max(1);
        let step = count / looked_at;
        let fields = 0..self.members.fields().len();
        fields.map(move |field| {
            let sizes = (0..looked_at).map(|i| self.members.entry(i * step, field).size_bytes);
            sizes.sum::<u64>() / looked_at * self.batch_size.min(count)
        })
    }

    fn expected_batch_bytes(&self) -> u64 {
        self.expected_field_bytes().sum()
    }

    /// What comes of a budget: a default is lowered for a store on this machine, and the largest sample always fits.
    pub(super) fn budget_bytes(&self, wanted_bytes: u64, is_near: bool) -> u64 {
        let (_, largest_bytes) = self.members.largest();
        let wanted_bytes = wanted_bytes.max(largest_bytes);
        if self.is_prefetch_fixed || !is_near {
            return wanted_bytes;
        }
        let batches = self.expected_batch_bytes().saturating_mul(NEAR_BATCHES);
        wanted_bytes.min(batches.max(NEAR_BYTES))
    }

    /// Returned blocks that are kept for the next batches: a share of the budget, and within it all that a store on this
    /// machine fills, because fresh memory would cost it as much as the reading. A few batches in any case.
    pub(super) fn idle_blocks_bytes(&self) -> usize {
        let batches = |count: u64| self.expected_batch_bytes().saturating_mul(count);
        let wanted = (self.prefetch_bytes / 4).max(batches(IDLE_BATCHES));
        let bytes = wanted
            .min(self.prefetch_bytes)
            .max(batches(LEAST_IDLE_BATCHES));
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Batches by which a sample may come late: none when the order is kept.
    pub(super) fn displacement(&self) -> u64 {
        if self.is_in_order {
            0
        } else {
            self.max_displacement
        }
    }
}
