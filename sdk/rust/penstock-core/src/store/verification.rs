//! Compares what a store holds with what a manifest says, by reading it at a quorum.

use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};

use super::{Consistency, Expected, FieldData, Fields, ReadRequest, Store, Table};
use crate::errors::StoreError;
use crate::id::Id;

const OBJECTS_AT_ONCE: usize = 16;

pub(super) async fn by_reading<S: Store + ?Sized>(
    store: &S,
    table: Table,
    dataset_id: Id,
    expected: Vec<Expected>,
) -> Result<Vec<Option<String>>, StoreError> {
    // Neighbours that speak of the same object share one read.
    let groups: Vec<Vec<Expected>> = expected
        .chunk_by(|left, right| left.object_id == right.object_id)
        .map(<[Expected]>::to_vec)
        .collect();
    let findings: Vec<Vec<Option<String>>> = stream::iter(groups)
        .map(|group| check_object(store, table, dataset_id, group))
        .buffered(OBJECTS_AT_ONCE)
        .try_collect()
        .await?;
    Ok(findings.into_iter().flatten().collect())
}

async fn check_object<S: Store + ?Sized>(
    store: &S,
    table: Table,
    dataset_id: Id,
    group: Vec<Expected>,
) -> Result<Vec<Option<String>>, StoreError> {
    let names: Arc<[Arc<str>]> = group.iter().map(|one| Arc::clone(&one.field)).collect();
    let mut findings = match read(store, table, dataset_id, group[0].object_id, names).await? {
        Ok(fields) => {
            let pairs = group.iter().zip(&fields);
            return Ok(pairs.map(|(one, field)| compare(one, field)).collect());
        }
        Err(finding) if group.len() == 1 => return Ok(vec![Some(finding)]),
        Err(_) => Vec::with_capacity(group.len()),
    };
    // One bad field fails the whole read: field by field says which one it is.
    for one in &group {
        let name: Arc<[Arc<str>]> = [Arc::clone(&one.field)].into();
        findings.push(
            match read(store, table, dataset_id, one.object_id, name).await? {
                Ok(fields) => compare(one, &fields[0]),
                Err(finding) => Some(finding),
            },
        );
    }
    Ok(findings)
}

/// The outer error stops the verification, the inner one is a finding.
async fn read<S: Store + ?Sized>(
    store: &S,
    table: Table,
    dataset_id: Id,
    object_id: Id,
    names: Arc<[Arc<str>]>,
) -> Result<Result<Vec<FieldData>, String>, StoreError> {
    let request = ReadRequest {
        table,
        dataset_id,
        object_id,
        fields: Fields::Named(names),
        consistency: Consistency::Quorum,
        size_bytes: 0,
    };
    match store.read(request).await {
        Ok(record) => Ok(Ok(record.fields)),
        Err(error @ (StoreError::Missing { .. } | StoreError::Corrupt { .. })) => {
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

fn compare(expected: &Expected, stored: &FieldData) -> Option<String> {
    let object_id = expected.object_id;
    let field = &expected.field;
    if stored.size_bytes != expected.size_bytes {
        return Some(format!(
            "object {object_id}, field {field:?}: stored are {} bytes, the manifest says {}",
            stored.size_bytes, expected.size_bytes
        ));
    }
    (stored.xxh3 != expected.xxh3).then(|| {
        format!(
            "object {object_id}, field {field:?}: stored checksum is {:016x}, the manifest says {:016x}",
            stored.xxh3, expected.xxh3
        )
    })
}
