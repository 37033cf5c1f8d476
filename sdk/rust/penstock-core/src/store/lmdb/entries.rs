//! Keys and values: a key is the table (one byte), the object id and the field's name, a value is a header and the field.

use std::sync::Arc;

use bytes::Bytes;

use crate::checksum::xxh3;
use crate::codec::{self, Header};
use crate::id::Id;
use crate::store::{FieldData, Table};

pub(super) const HEADER_BYTES: usize = 32;
/// Where in the header the checksum over the key and the header before it stands.
const KEY_CHECKSUM_AT: usize = 24;

pub(super) fn key_of(table: Table, object_id: Id, field: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + Id::LENGTH + field.len());
    key.push(table as u8);
    key.extend_from_slice(object_id.as_bytes());
    key.extend_from_slice(field.as_bytes());
    key
}

pub(super) fn encode_header(key: &[u8], header: &Header) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[0] = header.layout.cast_unsigned();
    bytes[8..16].copy_from_slice(&header.total_bytes.to_le_bytes());
    bytes[16..24].copy_from_slice(&header.xxh3.to_le_bytes());
    let checksum = key_checksum(key, &bytes);
    bytes[KEY_CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn key_checksum(key: &[u8], header: &[u8]) -> u64 {
    let mut bytes = key.to_vec();
    bytes.extend_from_slice(&header[..KEY_CHECKSUM_AT]);
    xxh3(&bytes)
}

/// Whether a value was written under this very key.
pub(super) fn has_own_key(key: &[u8], value: &[u8]) -> bool {
    value.len() >= HEADER_BYTES && number_at(value, KEY_CHECKSUM_AT) == key_checksum(key, value)
}

pub(super) fn number_at(value: &[u8], from: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&value[from..from + 8]);
    u64::from_le_bytes(bytes)
}

pub(super) fn header_of(value: &[u8]) -> Header {
    Header {
        layout: value[0].cast_signed(),
        // A value is never cut in LMDB: one chunk, however long.
        chunk_bytes: u32::MAX,
        total_bytes: number_at(value, 8),
        xxh3: number_at(value, 16),
    }
}

pub(super) fn decode(key: &[u8], name: Arc<str>, value: &Bytes) -> Result<FieldData, String> {
    if value.len() < HEADER_BYTES {
        return Err(format!("{} bytes of its header are there", value.len()));
    }
    let field = codec::assemble(
        name,
        header_of(value),
        vec![(0, value.slice(HEADER_BYTES..))],
    )?;
    if !has_own_key(key, value) {
        return Err("the checksum of its header is wrong".to_owned());
    }
    Ok(field)
}
