//! Stores on this machine: they fill a batch themselves, without a buffer in between.

use std::sync::Arc;
use std::time::Duration;

use crate::id::Id;

/// Fields of one sample that lie in one object, and where they go.
#[derive(Debug)]
pub struct NearRead<'a> {
    pub object_id: Id,
    pub fields: Vec<NearField<'a>>,
    /// Set by the store when all fields are in place and in order.
    pub is_filled: bool,
}

/// A field as the members describe it; the target is as long as they say.
#[derive(Debug)]
pub struct NearField<'a> {
    pub name: Arc<str>,
    pub xxh3: u64,
    pub target: &'a mut [u8],
}

/// A store that is read on the thread that needs the bytes.
pub trait NearStore: Send + Sync {
    /// Fills what is there and in order. Whatever is not stays unfilled: an ordinary read of it will say why. Returns
    /// how much of the time went into checksums.
    fn fill(&self, dataset_id: Id, reads: &mut [NearRead<'_>]) -> Duration;
}
