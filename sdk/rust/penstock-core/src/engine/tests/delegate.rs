//! The memory store with something changed.

use std::collections::HashMap;
use std::sync::Mutex;

use futures::future::BoxFuture;
use tokio::sync::Semaphore;

use super::*;
use crate::lanes::LaneStats;
use crate::store::{Fields, NearRead, NearStore, ReadRequest, Record};

#[derive(Debug)]
pub struct Delegate {
    inner: Arc<dyn Store>,
    /// Reads panic.
    pub is_broken: bool,
    pub lanes: Vec<LaneStats>,
    /// It lies on this machine.
    pub is_near: bool,
    /// Reads of this object wait for a permit.
    pub held: Option<(Id, Arc<Semaphore>)>,
    /// How often filling these objects fails, before it succeeds.
    pub unfilled: Mutex<HashMap<Id, u32>>,
}

impl Delegate {
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            is_broken: false,
            lanes: Vec::new(),
            is_near: false,
            held: None,
            unfilled: Mutex::default(),
        }
    }

    fn fill_one(&self, dataset_id: Id, read: &mut NearRead<'_>) -> bool {
        if let Some(left) = self.unfilled.lock().unwrap().get_mut(&read.object_id)
            && *left > 0
        {
            *left -= 1;
            return false;
        }
        let request = ReadRequest {
            table: Table::Samples,
            dataset_id,
            object_id: read.object_id,
            fields: Fields::Named(read.fields.iter().map(|field| field.name.clone()).collect()),
            consistency: crate::store::Consistency::One,
            size_bytes: 0,
        };
        let runtime = process::runtime().unwrap();
        let Ok(record) = runtime.block_on(self.inner.read(request)) else {
            return false;
        };
        for (field, data) in read.fields.iter_mut().zip(&record.fields) {
            data.copy_to(field.target);
        }
        true
    }
}

impl NearStore for Delegate {
    fn fill(&self, dataset_id: Id, reads: &mut [NearRead<'_>]) -> Duration {
        for read in reads {
            read.is_filled = self.fill_one(dataset_id, read);
        }
        Duration::from_micros(7)
    }
}

impl Store for Delegate {
    fn kind(&self) -> &'static str {
        "delegate"
    }

    fn read(&self, request: ReadRequest) -> BoxFuture<'_, Result<Record, StoreError>> {
        assert!(!self.is_broken, "broken on purpose");
        let held = self.held.as_ref();
        let Some((_, permits)) = held.filter(|(id, _)| *id == request.object_id) else {
            return self.inner.read(request);
        };
        Box::pin(async move {
            let _permit = permits.acquire().await.unwrap();
            self.inner.read(request).await
        })
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.write(request)
    }

    fn delete(
        &self,
        table: Table,
        dataset_id: Id,
        object_ids: Vec<Id>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.delete(table, dataset_id, object_ids)
    }

    fn scan(&self, table: Table, dataset_id: Id) -> BoxFuture<'_, Result<Vec<Id>, StoreError>> {
        self.inner.scan(table, dataset_id)
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.ping()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }

    fn near(&self) -> Option<&dyn NearStore> {
        self.is_near.then_some(self as &dyn NearStore)
    }

    fn lanes(&self) -> Vec<LaneStats> {
        self.lanes.clone()
    }
}
