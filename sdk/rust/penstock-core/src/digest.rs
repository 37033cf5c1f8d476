//! Digests over logical rows, in the canonical encoding of `docs/formats.md`.
//!
//! What a row hashes to depends on its values and the names and kinds of its columns, never on how an Arrow
//! array happens to hold them: integer widths, dictionaries, views and chunks all hash alike.

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Schema};

use self::column::Column;
use crate::id::Id;

mod column;

/// Bytes of one row hash.
pub const ROW_HASH_BYTES: usize = 16;

const FAMILY_TAG: &[u8] = b"penstock-family-1";
const VERSION_TAG: &[u8] = b"penstock-version-1";

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DigestError {
    #[error(
        "column {column:?} has Arrow type {data_type}, which has no canonical encoding: \
         use integers, floats, booleans, text, bytes, timestamps or lists of them"
    )]
    UnsupportedType { column: String, data_type: String },
    #[error("column {column:?}, row {row}: {reason}")]
    BadValue {
        column: String,
        row: usize,
        reason: String,
    },
    #[error("the Arrow stream could not be read: {0}")]
    Arrow(#[from] ArrowError),
    #[error("{0}")]
    Shape(String),
}

/// The kind of a value, as the first byte of its encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Null = 0,
    Int = 1,
    Float = 2,
    Bool = 3,
    Text = 4,
    Bytes = 5,
    List = 6,
    Timestamp = 7,
}

impl Kind {
    fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Bool,
            integer if integer.is_integer() => Self::Int,
            float if float.is_floating() => Self::Float,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Self::Bytes,
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(_, _) => {
                Self::List
            }
            DataType::Timestamp(_, _) | DataType::Date32 | DataType::Date64 => Self::Timestamp,
            DataType::Dictionary(_, values) => return Self::of(values),
            _ => return None,
        })
    }
}

/// Hashes rows of one family of columns.
#[derive(Debug)]
pub struct RowHasher {
    key: [u8; 32],
    hashes: Vec<u8>,
    row: Vec<u8>,
}

impl RowHasher {
    pub fn new(schema: &Schema) -> Result<Self, DigestError> {
        Ok(Self {
            key: family_key(schema)?,
            hashes: Vec::new(),
            row: Vec::new(),
        })
    }

    /// Appends the hashes of all rows of a batch with the same columns.
    pub fn update(&mut self, batch: &RecordBatch) -> Result<(), DigestError> {
        let schema = batch.schema();
        let columns: Vec<(&str, Column)> = schema
            .fields()
            .iter()
            .zip(batch.columns())
            .map(|(field, array)| Ok((field.name().as_str(), open(field.name(), array)?)))
            .collect::<Result<_, DigestError>>()?;
        let first_row = self.hashes.len() / ROW_HASH_BYTES;
        self.hashes.reserve(batch.num_rows() * ROW_HASH_BYTES);
        for row in 0..batch.num_rows() {
            self.row.clear();
            for (name, column) in &columns {
                column
                    .encode(row, &mut self.row)
                    .map_err(|reason| DigestError::BadValue {
                        column: (*name).to_owned(),
                        row: first_row + row,
                        reason,
                    })?;
            }
            let hash = blake3::keyed_hash(&self.key, &self.row);
            self.hashes
                .extend_from_slice(&hash.as_bytes()[..ROW_HASH_BYTES]);
        }
        Ok(())
    }

    /// Sixteen bytes a row, in the order of the rows.
    pub fn finish(self) -> Vec<u8> {
        self.hashes
    }
}

fn open(name: &str, array: &ArrayRef) -> Result<Column, DigestError> {
    Column::open(array).ok_or_else(|| unsupported(name, array.data_type()))
}

fn unsupported(name: &str, data_type: &DataType) -> DigestError {
    DigestError::UnsupportedType {
        column: name.to_owned(),
        data_type: data_type.to_string(),
    }
}

fn family_key(schema: &Schema) -> Result<[u8; 32], DigestError> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(FAMILY_TAG);
    for field in schema.fields() {
        let kind = Kind::of(field.data_type())
            .ok_or_else(|| unsupported(field.name(), field.data_type()))?;
        hash_name(&mut hasher, field.name());
        hasher.update(&[kind as u8]);
    }
    Ok(*hasher.finalize().as_bytes())
}

fn hash_name(hasher: &mut blake3::Hasher, name: &str) {
    let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
    hasher.update(&length.to_le_bytes());
    hasher.update(name.as_bytes());
}

/// The digest of a version: families by name, rows by id, whatever order they come in.
///
/// `ids` has sixteen bytes a row, and so has the second part of each family.
pub fn digest_in_id_order(ids: &[u8], families: &[(&str, &[u8])]) -> Result<[u8; 32], DigestError> {
    if !ids.len().is_multiple_of(Id::LENGTH) {
        return Err(DigestError::Shape(format!(
            "the ids are {} bytes long, which is no multiple of 16",
            ids.len()
        )));
    }
    for (name, hashes) in families {
        if hashes.len() != ids.len() {
            return Err(DigestError::Shape(format!(
                "family {name:?} has {} row hashes for {} ids",
                hashes.len() / ROW_HASH_BYTES,
                ids.len() / Id::LENGTH
            )));
        }
    }
    let mut families = families.to_vec();
    families.sort_unstable_by_key(|(name, _)| *name);
    if let Some(twice) = families.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(DigestError::Shape(format!(
            "family {:?} is given twice",
            twice[0].0
        )));
    }
    let order = sorted_rows(ids)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(VERSION_TAG);
    hasher.update(&(order.len() as u64).to_le_bytes());
    for (name, _) in &families {
        hash_name(&mut hasher, name);
    }
    // Small updates are slow: rows are gathered first.
    let mut gathered = Vec::with_capacity(1 << 16);
    for row in order {
        let place = row * ROW_HASH_BYTES..(row + 1) * ROW_HASH_BYTES;
        gathered.extend_from_slice(&ids[place.clone()]);
        for (_, hashes) in &families {
            gathered.extend_from_slice(&hashes[place.clone()]);
        }
        if gathered.len() >= 1 << 15 {
            hasher.update(&gathered);
            gathered.clear();
        }
    }
    hasher.update(&gathered);
    Ok(*hasher.finalize().as_bytes())
}

fn sorted_rows(ids: &[u8]) -> Result<Vec<usize>, DigestError> {
    let mut rows: Vec<(u128, usize)> = ids
        .as_chunks::<{ Id::LENGTH }>()
        .0
        .iter()
        .enumerate()
        .map(|(row, id)| (u128::from_be_bytes(*id), row))
        .collect();
    rows.sort_unstable();
    if let Some(twice) = rows.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(DigestError::Shape(format!(
            "id {} stands in rows {} and {}",
            Id::new(twice[0].0.to_be_bytes()),
            twice[0].1,
            twice[1].1
        )));
    }
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

#[cfg(test)]
mod tests;
