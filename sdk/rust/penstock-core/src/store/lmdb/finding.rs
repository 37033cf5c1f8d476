//! Finding entries in a snapshot, and being sure that what is not found is not there.

use std::sync::Arc;

use bytes::Bytes;

use super::entries::{HEADER_BYTES, has_own_key, key_of};
use crate::arena::Pool;
use crate::id::Id;
use crate::store::lmdb_environment::{Result, Snapshot, Value, damage};
use crate::store::{Fields, ReadRequest, Table};

pub(super) type Values = Vec<(Arc<str>, Option<Bytes>)>;

pub(super) fn read_values(
    snapshot: &Snapshot<'_>,
    request: &ReadRequest,
    pool: &Pool,
) -> Result<Values> {
    let mut values = Values::new();
    match &request.fields {
        Fields::All => {
            let prefix = key_of(request.table, request.object_id, "");
            check_neighbours(snapshot, &prefix)?;
            let mut cursor = snapshot.seek(&prefix)?;
            while let Some((key, value)) = cursor.entry_of(&prefix)? {
                let name = String::from_utf8_lossy(&key[prefix.len()..]);
                values.push((name.into(), Some(snapshot.read(value, pool)?)));
                cursor.advance()?;
            }
        }
        Fields::Named(names) => {
            for name in names.iter() {
                let key = key_of(request.table, request.object_id, name);
                let value = match snapshot.seek(&key)?.entry()? {
                    Some((found, value)) if found == key => Some(snapshot.read(value, pool)?),
                    _ => {
                        check_neighbours(snapshot, &key)?;
                        None
                    }
                };
                values.push((Arc::clone(name), value));
            }
        }
    }
    Ok(values)
}

/// Damage to a key makes an entry look absent. It then stands beside its place, under a key that its header
/// denies: so absence is believed only when what stands around the place is in order. `key` may be a prefix.
fn check_neighbours(snapshot: &Snapshot<'_>, key: &[u8]) -> Result<()> {
    let mut cursor = snapshot.seek(key)?;
    cursor.check_page()?;
    if cursor.go_back()? {
        if let Some((before, value)) = cursor.entry()? {
            check_neighbour(snapshot, before, value, before < key)?;
        }
        cursor.advance()?;
    }
    while cursor.entry_of(key)?.is_some() {
        cursor.advance()?;
    }
    match cursor.entry()? {
        Some((after, value)) => check_neighbour(snapshot, after, value, after > key),
        None => Ok(()),
    }
}

fn check_neighbour(
    snapshot: &Snapshot<'_>,
    key: &[u8],
    value: Value<'_>,
    is_in_order: bool,
) -> Result<()> {
    let header = snapshot.read_start(value, HEADER_BYTES)?;
    if is_in_order && has_own_key(key, &header) {
        return Ok(());
    }
    Ok(damage(
        "a key beside this one is not the one it was written under",
    )?)
}

/// LMDB frees the pages that the head of a replaced value names.
pub(super) fn check_replaced(before: &Snapshot<'_>, key: &[u8]) -> Result<()> {
    if let Some((found, value)) = before.seek(key)?.entry()?
        && found == key
    {
        before.read_start(value, 0)?;
    }
    Ok(())
}

pub(super) fn scan_ids(snapshot: &Snapshot<'_>, table: Table) -> Result<Vec<Id>> {
    let mut ids: Vec<Id> = Vec::new();
    let mut cursor = snapshot.seek(&[table as u8])?;
    cursor.check_page()?;
    while let Some((key, _)) = cursor.entry_of(&[table as u8])? {
        let Some(id) = key.get(1..17).and_then(Id::from_slice) else {
            return Ok(damage("a key is too short")?);
        };
        if ids.last() != Some(&id) {
            ids.push(id);
        }
        cursor.advance()?;
    }
    Ok(ids)
}
