//! Writing and deleting through the driver, to a quorum, with a bounded number of bytes under way.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use uuid::Uuid;

use super::rows::{Ask, TryError};
use super::{Open, WRITE_UNIT_BYTES};
use crate::codec::{self, Header};
use crate::errors::StoreError;
use crate::id::Id;
use crate::store::{NewObject, Table, WriteRequest};

/// Of writes the bytes under way are bounded first; small objects by this.
const OBJECTS_UNDER_WAY: usize = 512;
const DELETES_UNDER_WAY: usize = 128;

/// One row to be written.
struct Chunk {
    dataset_id: Id,
    object_id: Id,
    name: Arc<str>,
    index: i32,
    header: Header,
    data: Bytes,
}

impl Open {
    pub(super) async fn write(&self, request: WriteRequest) -> Result<(), StoreError> {
        for object in &request.objects {
            codec::check_object(object)?;
        }
        let (table, dataset_id) = (request.table, request.dataset_id);
        let jobs = request.objects.into_iter();
        let jobs = jobs.map(|object| self.write_object(table, dataset_id, object));
        finish_all(jobs, OBJECTS_UNDER_WAY).await.map(drop)
    }

    /// First chunks last: they say that the rest is there.
    async fn write_object(
        &self,
        table: Table,
        dataset_id: Id,
        object: NewObject,
    ) -> Result<(), StoreError> {
        let (first, later): (Vec<Chunk>, Vec<Chunk>) = object
            .fields
            .into_iter()
            .flat_map(|(name, data)| {
                let header = Header::of(&data);
                (0_i32..)
                    .zip(codec::split(&data))
                    .map(move |(index, data)| Chunk {
                        dataset_id,
                        object_id: object.object_id,
                        name: Arc::clone(&name),
                        index,
                        header,
                        data,
                    })
            })
            .partition(|chunk| chunk.index == 0);
        for chunks in [later, first] {
            let jobs = chunks.into_iter();
            let jobs = jobs.map(|chunk| self.write_chunk(table, chunk));
            finish_all(jobs, OBJECTS_UNDER_WAY).await?;
        }
        Ok(())
    }

    async fn write_chunk(&self, table: Table, chunk: Chunk) -> Result<(), StoreError> {
        let units = chunk.data.len().div_ceil(WRITE_UNIT_BYTES).max(1);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let room = self.write_room.acquire_many(units).await;
        let _room = room.map_err(|_| StoreError::Closed)?;
        let operation = || {
            let Chunk {
                object_id,
                name,
                index,
                ..
            } = &chunk;
            format!("writing chunk {index} of field {name:?} of object {object_id}")
        };
        let (dataset_id, object_id) = (Uuid::from(chunk.dataset_id), Uuid::from(chunk.object_id));
        let (name, header, data) = (&*chunk.name, &chunk.header, &chunk.data);
        if chunk.index > 0 {
            let values = (dataset_id, object_id, name, chunk.index, data);
            let write = || self.execute(table, Ask::LaterChunk, values);
            return self.retrying(operation, write).await;
        }
        let values = (
            dataset_id,
            object_id,
            name,
            chunk.index,
            header.layout,
            header.chunk_bytes.cast_signed(),
            header.total_bytes.cast_signed(),
            header.xxh3.cast_signed(),
            data,
        );
        let write = || self.execute(table, Ask::FirstChunk, values);
        self.retrying(operation, write).await
    }

    async fn execute(
        &self,
        table: Table,
        ask: Ask,
        values: impl scylla::serialize::row::SerializeRow,
    ) -> Result<(), TryError> {
        let statement = self.statements(table).get(&self.session, ask).await?;
        self.session.execute_unpaged(statement, values).await?;
        Ok(())
    }

    pub(super) async fn delete(
        &self,
        table: Table,
        dataset_id: Id,
        object_ids: Vec<Id>,
    ) -> Result<(), StoreError> {
        let jobs = object_ids.into_iter().map(|object_id| {
            let key = (Uuid::from(dataset_id), Uuid::from(object_id));
            self.retrying(
                move || format!("deleting object {object_id}"),
                move || self.execute(table, Ask::Delete, key),
            )
        });
        finish_all(jobs, DELETES_UNDER_WAY).await.map(drop)
    }
}

/// Runs jobs side by side. After a failure nothing more is begun, but what is under way is finished: the driver closes a
/// connection on which many requests were dropped.
pub(super) async fn finish_all<T, F: Future<Output = Result<T, StoreError>>>(
    mut jobs: impl Iterator<Item = F>,
    at_once: usize,
) -> Result<Vec<T>, StoreError> {
    let mut under_way = FuturesUnordered::new();
    let mut results = Ok(Vec::new());
    loop {
        if results.is_ok() {
            let room = at_once.saturating_sub(under_way.len());
            under_way.extend(jobs.by_ref().take(room));
        }
        let Some(result) = under_way.next().await else {
            return results;
        };
        match (&mut results, result) {
            (Ok(done), Ok(value)) => done.push(value),
            (Ok(_), Err(error)) => results = Err(error),
            // The first error is what is reported.
            (Err(_), _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn what_is_under_way_at_the_first_error_is_finished_and_nothing_more_begun() {
        let (begun, finished) = (Cell::new(0), Cell::new(0));
        let jobs = (0..100).map(|number| {
            let (begun, finished) = (&begun, &finished);
            async move {
                begun.set(begun.get() + 1);
                for _ in 0..=number {
                    yield_now().await;
                }
                finished.set(finished.get() + 1);
                let reason = number.to_string();
                if number == 3 || number == 5 {
                    return Err(StoreError::Full { reason });
                }
                Ok(())
            }
        });
        let error = finish_all(jobs, 10).await.unwrap_err();
        assert!(error.to_string().ends_with(": 3"), "{error}");
        assert_eq!(begun.get(), finished.get());
        assert!((10..20).contains(&begun.get()), "{}", begun.get());
    }

    #[tokio::test]
    async fn all_results_are_there_when_nothing_fails() {
        let jobs = (0..50).map(|number| async move { Ok(number) });
        let mut results = finish_all(jobs, 4).await.unwrap();
        results.sort_unstable();
        assert_eq!(results, (0..50).collect::<Vec<_>>());
    }
}
