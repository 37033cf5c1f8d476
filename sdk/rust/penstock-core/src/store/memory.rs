//! A store in the memory of one process, for tests: with a fault plan it is as bad as any network, and repeatably so.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::Deserialize;

use super::{
    FieldData, Fields, MemoryConfig, ReadRequest, Record, Store, StoreCounters, Table, WriteRequest,
};
use crate::codec::{self, Header};
use crate::errors::StoreError;
use crate::id::Id;
use crate::retry::Random;

type Object = BTreeMap<Arc<str>, (Header, Bytes)>;
type Content = RwLock<BTreeMap<(u8, Id, Id), Object>>;

/// Which reads go wrong, and how. The n-th read of an object always meets the same fate.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultPlan {
    pub seed: u64,
    /// Every read takes a time in this range.
    pub delay_ms: (f64, f64),
    /// This share of the reads takes `slow_ms` instead.
    pub slow_share: f64,
    pub slow_ms: f64,
    pub unavailable_share: f64,
    pub missing_share: f64,
    pub corrupt_share: f64,
    /// Reads that meet a bug in the store itself.
    pub panic_share: f64,
    /// Whether its counters have such a bug.
    pub has_broken_counters: bool,
    /// Only the first so many reads of an object go wrong; all of them when absent.
    pub faulty_reads: Option<u64>,
}

#[derive(Debug)]
pub struct MemoryStore {
    content: Arc<Content>,
    faults: Option<Faults>,
    is_closed: AtomicBool,
}

#[derive(Debug)]
struct Faults {
    plan: FaultPlan,
    reads: Mutex<HashMap<Id, u64>>,
    met: AtomicU64,
    damaged: AtomicU64,
}

static BY_NAME: LazyLock<Mutex<HashMap<String, Arc<Content>>>> = LazyLock::new(Mutex::default);

impl MemoryStore {
    pub fn open(config: MemoryConfig) -> Self {
        let mut by_name = BY_NAME.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            content: Arc::clone(by_name.entry(config.name).or_default()),
            faults: config.faults.map(|plan| Faults {
                plan,
                reads: Mutex::default(),
                met: AtomicU64::new(0),
                damaged: AtomicU64::new(0),
            }),
            is_closed: AtomicBool::new(false),
        }
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(StoreError::Closed);
        }
        Ok(())
    }

    fn find(&self, request: &ReadRequest) -> Result<Record, StoreError> {
        let missing = |field: Option<&str>| StoreError::Missing {
            dataset_id: request.dataset_id,
            object_id: request.object_id,
            field: field.map(str::to_owned),
            node: None,
            attempts: 1,
        };
        let content = self.content.read().unwrap_or_else(PoisonError::into_inner);
        let key = key_of(request.table, request.dataset_id, request.object_id);
        let object = content.get(&key).ok_or_else(|| missing(None))?;
        let names: Vec<Arc<str>> = match &request.fields {
            Fields::All => object.keys().cloned().collect(),
            Fields::Named(names) => names.to_vec(),
        };
        let mut fields = Vec::with_capacity(names.len());
        for name in names {
            let (header, data) = object.get(&name).ok_or_else(|| missing(Some(&name)))?;
            fields.push(FieldData {
                name,
                chunks: codec::split(data),
                size_bytes: header.total_bytes,
                xxh3: header.xxh3,
                is_verified: true,
            });
        }
        Ok(Record {
            object_id: request.object_id,
            fields,
            node: None,
            attempts: 1,
        })
    }
}

impl Faults {
    async fn strike(&self, request: &ReadRequest) -> Result<(), StoreError> {
        let nth = {
            let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
            let count = reads.entry(request.object_id).or_default();
            *count += 1;
            *count
        };
        let mut random = self.random_of(request.object_id, nth);
        self.delay(&mut random).await;
        let fate = random.next_unit();
        if self.plan.faulty_reads.is_some_and(|limit| nth > limit) {
            return Ok(());
        }
        self.fail(request, fate).inspect_err(|error| {
            self.met.fetch_add(1, Ordering::Relaxed);
            if matches!(error, StoreError::Corrupt { .. }) {
                self.damaged.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    fn random_of(&self, object_id: Id, nth: u64) -> Random {
        let mut input = object_id.as_bytes().to_vec();
        input.extend(self.plan.seed.to_le_bytes());
        input.extend(nth.to_le_bytes());
        Random::new(crate::checksum::xxh3(&input))
    }

    async fn delay(&self, random: &mut Random) {
        let (least, most) = self.plan.delay_ms;
        let is_slow = random.next_unit() < self.plan.slow_share;
        let milliseconds = if is_slow {
            self.plan.slow_ms
        } else {
            least + (most - least) * random.next_unit()
        };
        if milliseconds > 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(milliseconds / 1000.0)).await;
        }
    }

    fn fail(&self, request: &ReadRequest, fate: f64) -> Result<(), StoreError> {
        let plan = &self.plan;
        let missing_from = plan.unavailable_share;
        let corrupt_from = missing_from + plan.missing_share;
        let panic_from = corrupt_from + plan.corrupt_share;
        let (dataset_id, object_id) = (request.dataset_id, request.object_id);
        if fate < missing_from {
            return Err(StoreError::Unavailable {
                operation: format!("reading object {object_id}"),
                reason: "the fault plan says so".to_owned(),
                node: None,
                attempts: 1,
                waited: Duration::ZERO,
            });
        }
        if fate < corrupt_from {
            return Err(StoreError::Missing {
                dataset_id,
                object_id,
                field: None,
                node: None,
                attempts: 1,
            });
        }
        assert!(
            !(panic_from..panic_from + plan.panic_share).contains(&fate),
            "the fault plan says so"
        );
        if fate < panic_from {
            return Err(StoreError::Corrupt {
                dataset_id,
                object_id,
                field: match &request.fields {
                    Fields::Named(names) if !names.is_empty() => names[0].to_string(),
                    _ => String::new(),
                },
                reason: "the fault plan says so".to_owned(),
                node: None,
                attempts: 1,
            });
        }
        Ok(())
    }
}

const fn key_of(table: Table, dataset_id: Id, object_id: Id) -> (u8, Id, Id) {
    (table as u8, dataset_id, object_id)
}

impl Store for MemoryStore {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn read(&self, request: ReadRequest) -> BoxFuture<'_, Result<Record, StoreError>> {
        Box::pin(async move {
            self.check_open()?;
            if let Some(faults) = &self.faults {
                faults.strike(&request).await?;
            }
            self.find(&request)
        })
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.check_open()?;
            for object in &request.objects {
                codec::check_object(object)?;
            }
            let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
            for object in request.objects {
                let key = key_of(request.table, request.dataset_id, object.object_id);
                let stored = content.entry(key).or_default();
                for (name, data) in object.fields {
                    stored.insert(name, (Header::of(&data), data));
                }
            }
            Ok(())
        })
    }

    fn delete(
        &self,
        table: Table,
        dataset_id: Id,
        object_ids: Vec<Id>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.check_open()?;
            let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
            for object_id in object_ids {
                content.remove(&key_of(table, dataset_id, object_id));
            }
            Ok(())
        })
    }

    fn scan(&self, table: Table, dataset_id: Id) -> BoxFuture<'_, Result<Vec<Id>, StoreError>> {
        Box::pin(async move {
            self.check_open()?;
            let content = self.content.read().unwrap_or_else(PoisonError::into_inner);
            let first = key_of(table, dataset_id, Id::default());
            let last = key_of(table, dataset_id, Id::new([0xff; 16]));
            Ok(content.range(first..=last).map(|(key, _)| key.2).collect())
        })
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.check_open() })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.is_closed.store(true, Ordering::Relaxed) })
    }

    fn counters(&self) -> StoreCounters {
        let is_broken = |faults: &Faults| faults.plan.has_broken_counters;
        assert!(
            !self.faults.as_ref().is_some_and(is_broken),
            "the fault plan says so"
        );
        let count = |of: fn(&Faults) -> &AtomicU64| {
            let faults = self.faults.as_ref();
            faults.map_or(0, |faults| of(faults).load(Ordering::Relaxed))
        };
        StoreCounters {
            damaged: count(|faults| &faults.damaged),
            faults: count(|faults| &faults.met),
            ..StoreCounters::default()
        }
    }
}
