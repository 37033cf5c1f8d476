//! Reading the samples of a batch straight into their places in it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::LmdbStore;
use super::entries::{HEADER_BYTES, has_own_key, header_of, key_of};
use crate::checksum::xxh3;
use crate::codec;
use crate::id::Id;
use crate::store::lmdb_environment::{Result, Snapshot, Value};
use crate::store::{NearField, NearRead, NearStore, Table};

impl NearStore for LmdbStore {
    fn fill(&self, dataset_id: Id, reads: &mut [NearRead<'_>]) -> Duration {
        let shared = &self.shared;
        let mut verifying = Duration::ZERO;
        if shared.is_closed.load(Ordering::Relaxed) {
            return verifying;
        }
        if let Ok(Some(environment)) = shared.existing(dataset_id) {
            // What fails here fails in an ordinary read again, which reports it.
            let _ = environment.read(|snapshot| {
                fill_all(snapshot, reads, &mut verifying);
                Ok(())
            });
        }
        verifying
    }
}

/// First all that is in memory, while the disk is asked for the rest; then the rest, which the disk fetches side by side.
fn fill_all(snapshot: &Snapshot<'_>, reads: &mut [NearRead<'_>], verifying: &mut Duration) {
    for is_cached_only in [true, false] {
        for read in reads.iter_mut().filter(|read| !read.is_filled) {
            let object_id = read.object_id;
            read.is_filled = read.fields.iter_mut().all(|field| {
                let filled = fill_field(snapshot, object_id, field, is_cached_only, verifying);
                filled.unwrap_or(false)
            });
        }
    }
}

/// Whether the field is in its place, whole and what the members say.
fn fill_field(
    snapshot: &Snapshot<'_>,
    object_id: Id,
    field: &mut NearField<'_>,
    is_cached_only: bool,
    verifying: &mut Duration,
) -> Result<bool> {
    let key = key_of(Table::Samples, object_id, &field.name);
    let cursor = snapshot.seek(&key)?;
    let value = match cursor.entry()? {
        Some((found, value)) if found == key => value,
        _ => return Ok(false),
    };
    let mut head = [0; HEADER_BYTES];
    match value {
        Value::Inline(bytes) if bytes.len() == HEADER_BYTES + field.target.len() => {
            let (start, rest) = bytes.split_at(HEADER_BYTES);
            head.copy_from_slice(start);
            field.target.copy_from_slice(rest);
        }
        Value::Apart { page, len } if len == HEADER_BYTES + field.target.len() => {
            if !snapshot.read_parts(page, &mut head, field.target, is_cached_only)? {
                return Ok(false);
            }
        }
        _ => return Ok(false),
    }
    let header = header_of(&head);
    let started = Instant::now();
    let is_sound = header.layout == codec::LAYOUT
        && header.total_bytes == field.target.len() as u64
        && header.xxh3 == field.xxh3
        && has_own_key(&key, &head)
        && xxh3(field.target) == field.xxh3;
    *verifying += started.elapsed();
    Ok(is_sound)
}
