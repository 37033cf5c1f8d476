//! Where field bytes live. One trait, several stores; the engine knows only what stands here.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

mod config;
mod cql;
mod lmdb;
mod lmdb_environment;
mod memory;
mod near;
mod verification;

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::arena::streaming;
use crate::errors::StoreError;
use crate::id::Id;
use crate::lanes::LaneStats;

pub use config::{CqlConfig, LmdbConfig, MemoryConfig, Secret, StoreConfig, open};
pub use cql::CqlStore;
pub use lmdb::LmdbStore;
pub use memory::{FaultPlan, MemoryStore};
pub use near::{NearField, NearRead, NearStore};

/// The two tables of a project: bytes of samples, and Penstock's own objects (manifests, members, thumbnails).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    Samples,
    Objects,
}

impl Table {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Objects => "objects",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "samples" => Some(Self::Samples),
            "objects" => Some(Self::Objects),
            _ => None,
        }
    }
}

/// How sure the first answer has to be. Stores that have one copy treat both alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Consistency {
    /// One replica; the store itself asks a quorum when the answer is empty, short or damaged.
    #[default]
    One,
    /// A quorum from the start.
    Quorum,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fields {
    /// Whatever the object has, in the order of the names.
    All,
    /// Exactly these, in this order; one that is absent makes the read fail as missing.
    Named(Arc<[Arc<str>]>),
}

/// Asks for fields of one object. Cheap to clone: one is made for every read of an epoch.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    pub table: Table,
    pub dataset_id: Id,
    pub object_id: Id,
    pub fields: Fields,
    pub consistency: Consistency,
    /// What the answer is expected to hold; zero when that is not known.
    pub size_bytes: u64,
}

/// The bytes of one field as they came, uncopied: the reader joins the chunks where it needs them.
#[derive(Debug, Clone)]
pub struct FieldData {
    pub name: Arc<str>,
    pub chunks: Vec<Bytes>,
    pub size_bytes: u64,
    /// Checksum over all chunks; `is_verified` says that the store has computed it from these very bytes.
    pub xxh3: u64,
    pub is_verified: bool,
}

impl FieldData {
    /// One contiguous buffer; copies only when there are several chunks.
    pub fn to_bytes(&self) -> Bytes {
        match self.chunks.as_slice() {
            [] => Bytes::new(),
            [only] => only.clone(),
            many => Bytes::from(many.concat()),
        }
    }

    /// Copies the field into its batch; `target` has to be exactly `size_bytes` long.
    pub fn copy_to(&self, target: &mut [u8]) {
        let mut offset = 0;
        for chunk in &self.chunks {
            streaming::copy(&mut target[offset..offset + chunk.len()], chunk);
            offset += chunk.len();
        }
        debug_assert_eq!(offset, target.len());
    }
}

/// The answer to one `ReadRequest`: fields in the order asked for.
#[derive(Debug, Clone)]
pub struct Record {
    pub object_id: Id,
    pub fields: Vec<FieldData>,
    /// Who answered, where there are several who could.
    pub node: Option<SocketAddr>,
    /// How many requests this answer took; more than one means retries or an escalation.
    pub attempts: u32,
}

/// One object to be written, all of its fields at once.
#[derive(Debug, Clone)]
pub struct NewObject {
    pub object_id: Id,
    pub fields: Vec<(Arc<str>, Bytes)>,
}

#[derive(Debug, Clone)]
pub struct WriteRequest {
    pub table: Table,
    pub dataset_id: Id,
    pub objects: Vec<NewObject>,
}

/// What the manifest says about one field of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    pub object_id: Id,
    pub field: Arc<str>,
    pub size_bytes: u64,
    pub xxh3: u64,
}

/// What a store has had to do beyond plain reads, since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreCounters {
    pub retries: u64,
    pub escalations: u64,
    /// Reads asked for a second time because others were faster, and those that the second won.
    pub hedges: u64,
    pub hedge_wins: u64,
    /// Reads moved away from a connection that was not heard any more.
    pub silences: u64,
    /// Copies of reads that only show how a connection is.
    pub probes: u64,
    /// Answers, or values on a disk, that were found damaged: cut off, not to be parsed, with wrong rows or checksums, or
    /// to no question. An answer that nobody waits for any more is not looked at.
    pub damaged: u64,
    /// Failures that a fault plan has made; zero outside tests.
    pub faults: u64,
}

impl StoreCounters {
    /// Name and value of each.
    pub const fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("retries", self.retries),
            ("escalations", self.escalations),
            ("hedges", self.hedges),
            ("hedge_wins", self.hedge_wins),
            ("silences", self.silences),
            ("probes", self.probes),
            ("damaged", self.damaged),
            ("faults", self.faults),
        ]
    }
}

/// A store of objects. All calls may run at the same time from many tasks.
pub trait Store: Send + Sync + fmt::Debug {
    /// The name of the kind in configurations: `lmdb`, `cql`, `memory`.
    fn kind(&self) -> &'static str;

    /// Reads one object, verified, with the store's own retries and escalation inside.
    fn read(&self, request: ReadRequest) -> BoxFuture<'_, Result<Record, StoreError>>;

    /// Returns when everything is durable. Writing the same objects again changes nothing.
    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<(), StoreError>>;

    /// For each expectation `None`, or what is wrong with the stored bytes.
    fn verify(
        &self,
        table: Table,
        dataset_id: Id,
        expected: Vec<Expected>,
    ) -> BoxFuture<'_, Result<Vec<Option<String>>, StoreError>> {
        Box::pin(verification::by_reading(self, table, dataset_id, expected))
    }

    fn delete(
        &self,
        table: Table,
        dataset_id: Id,
        object_ids: Vec<Id>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The ids of all objects of a dataset, sorted; reads keys only.
    fn scan(&self, table: Table, dataset_id: Id) -> BoxFuture<'_, Result<Vec<Id>, StoreError>>;

    /// Succeeds when the store can answer right now, and has the tables to answer from.
    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Lets go of connections and files. Later calls fail as closed; closing twice is fine.
    fn close(&self) -> BoxFuture<'_, ()>;

    fn counters(&self) -> StoreCounters {
        StoreCounters::default()
    }

    /// This store as one that lies on this machine, when it does.
    fn near(&self) -> Option<&dyn NearStore> {
        None
    }

    /// The connections that carry reads side by side; none when there is no network.
    fn lanes(&self) -> Vec<LaneStats> {
        Vec::new()
    }
}
