//! The members of a subset as the split wrote them: borrowed columns, never copied, never parsed whole.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::id::Id;

/// Groups of fields are kept as bits of one word.
pub const MAX_FIELDS: usize = 64;

const WORD: usize = 8;

/// The buffers of one members part, as they lie in the file.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// Sample ids, 16 bytes each.
    pub ids: Bytes,
    /// One entry a field, in the order of the fields.
    pub fields: Vec<FieldColumns>,
}

/// Where one field of each sample of a part lies and what it has to be.
#[derive(Debug, Clone, Default)]
pub struct FieldColumns {
    /// 16 bytes each.
    pub object_ids: Bytes,
    /// Little-endian u64 each.
    pub sizes: Bytes,
    /// Little-endian u64 each.
    pub checksums: Bytes,
}

/// Members that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MembersError {
    #[error("the subset is empty: there is nothing to read")]
    Empty,
    #[error("{count} fields are asked for: at most {MAX_FIELDS} can be read side by side")]
    TooManyFields { count: usize },
    #[error("field {name:?} is asked for twice")]
    RepeatedField { name: Arc<str> },
    #[error("part {part}: {column} has {length} bytes, which is not a multiple of {width}")]
    Ragged {
        part: usize,
        column: String,
        length: usize,
        width: usize,
    },
    #[error("part {part}: {column} has {rows} rows, but there are {expected} sample ids")]
    Rows {
        part: usize,
        column: String,
        rows: usize,
        expected: usize,
    },
    #[error("part {part} has columns for {count} fields, but {expected} are asked for")]
    Fields {
        part: usize,
        count: usize,
        expected: usize,
    },
    #[error("{rows} members were given for a subset of {expected} samples")]
    Count { rows: u64, expected: u64 },
}

/// What the members say about one field of one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub object_id: Id,
    pub size_bytes: u64,
    pub xxh3: u64,
}

/// All members of a subset, by position.
#[derive(Debug)]
pub struct Members {
    fields: Box<[Arc<str>]>,
    parts: Box<[Part]>,
    /// First position of each part, and the total behind the last.
    starts: Box<[u64]>,
    largest: OnceLock<(u64, u64)>,
}

impl Members {
    /// Checks every length, so that later look-ups cannot fail.
    pub fn new(fields: Vec<Arc<str>>, parts: Vec<Part>) -> Result<Self, MembersError> {
        if fields.len() > MAX_FIELDS {
            return Err(MembersError::TooManyFields {
                count: fields.len(),
            });
        }
        for (i, name) in fields.iter().enumerate() {
            if fields[..i].contains(name) {
                return Err(MembersError::RepeatedField { name: name.clone() });
            }
        }
        let mut starts = vec![0];
        let mut total = 0;
        for (index, part) in parts.iter().enumerate() {
            total += check_part(index, part, &fields)? as u64;
            starts.push(total);
        }
        if total == 0 {
            return Err(MembersError::Empty);
        }
        Ok(Self {
            fields: fields.into(),
            parts: parts.into(),
            starts: starts.into(),
            largest: OnceLock::new(),
        })
    }

    /// Fails when the parts do not add up to what the split says.
    pub fn expect_count(&self, expected: u64) -> Result<(), MembersError> {
        if self.len() == expected {
            return Ok(());
        }
        Err(MembersError::Count {
            rows: self.len(),
            expected,
        })
    }

    pub fn len(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn fields(&self) -> &[Arc<str>] {
        &self.fields
    }

    pub fn id(&self, position: u64) -> Id {
        let (part, row) = self.locate(position);
        id_at(&part.ids, row)
    }

    pub fn entry(&self, position: u64, field: usize) -> Entry {
        let (part, row) = self.locate(position);
        let columns = &part.fields[field];
        Entry {
            object_id: id_at(&columns.object_ids, row),
            size_bytes: word_at(&columns.sizes, row),
            xxh3: word_at(&columns.checksums, row),
        }
    }

    /// Bytes of all fields of one sample together.
    pub fn size_bytes(&self, position: u64) -> u64 {
        let (part, row) = self.locate(position);
        sample_bytes(part, row)
    }

    /// Reads a byte of everything that is known about these samples, so that the processor has it at hand when it is asked for.
    pub fn touch(&self, positions: impl Iterator<Item = u64>) {
        let mut seen = 0;
        for position in positions {
            let (part, row) = self.locate(position);
            seen ^= part.ids[row * Id::LENGTH];
            for columns in &part.fields {
                seen ^= columns.object_ids[row * Id::LENGTH];
                seen ^= columns.sizes[row * WORD] ^ columns.checksums[row * WORD];
            }
        }
        std::hint::black_box(seen);
    }

    /// Position and bytes of the largest sample; looked for once.
    pub fn largest(&self) -> (u64, u64) {
        *self.largest.get_or_init(|| self.find_largest())
    }

    fn find_largest(&self) -> (u64, u64) {
        let mut largest = (0, 0);
        for (part, start) in self.parts.iter().zip(&self.starts) {
            for row in 0..part.ids.len() / Id::LENGTH {
                let size_bytes = sample_bytes(part, row);
                if size_bytes > largest.1 {
                    largest = (start + row as u64, size_bytes);
                }
            }
        }
        largest
    }

    fn locate(&self, position: u64) -> (&Part, usize) {
        let part = self.starts.partition_point(|start| *start <= position) - 1;
        let row = usize::try_from(position - self.starts[part]).unwrap_or(usize::MAX);
        (&self.parts[part], row)
    }
}

fn check_part(index: usize, part: &Part, fields: &[Arc<str>]) -> Result<usize, MembersError> {
    if part.fields.len() != fields.len() {
        return Err(MembersError::Fields {
            part: index,
            count: part.fields.len(),
            expected: fields.len(),
        });
    }
    let rows = rows_of(index, "ids", &part.ids, Id::LENGTH)?;
    for (columns, field) in part.fields.iter().zip(fields) {
        let of_field = [
            ("object ids", &columns.object_ids, Id::LENGTH),
            ("sizes", &columns.sizes, WORD),
            ("checksums", &columns.checksums, WORD),
        ];
        for (what, buffer, width) in of_field {
            let column = format!("{what} of field {field:?}");
            let found = rows_of(index, &column, buffer, width)?;
            if found != rows {
                return Err(MembersError::Rows {
                    part: index,
                    column,
                    rows: found,
                    expected: rows,
                });
            }
        }
    }
    Ok(rows)
}

fn rows_of(part: usize, column: &str, buffer: &Bytes, width: usize) -> Result<usize, MembersError> {
    if buffer.len().is_multiple_of(width) {
        return Ok(buffer.len() / width);
    }
    Err(MembersError::Ragged {
        part,
        column: column.to_owned(),
        length: buffer.len(),
        width,
    })
}

fn sample_bytes(part: &Part, row: usize) -> u64 {
    part.fields.iter().fold(0, |sum, columns| {
        sum.saturating_add(word_at(&columns.sizes, row))
    })
}

fn id_at(buffer: &[u8], row: usize) -> Id {
    let mut bytes = [0; Id::LENGTH];
    bytes.copy_from_slice(&buffer[row * Id::LENGTH..(row + 1) * Id::LENGTH]);
    Id::new(bytes)
}

fn word_at(buffer: &[u8], row: usize) -> u64 {
    let mut bytes = [0; WORD];
    bytes.copy_from_slice(&buffer[row * WORD..(row + 1) * WORD]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(values: &[u64]) -> Bytes {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn ids(first: u8, count: u8) -> Bytes {
        (first..first + count).flat_map(|b| [b; 16]).collect()
    }

    fn part(first: u8, sizes: &[u64]) -> Part {
        let count = u8::try_from(sizes.len()).unwrap();
        Part {
            ids: ids(first, count),
            fields: vec![FieldColumns {
                object_ids: ids(first + 100, count),
                sizes: words(sizes),
                checksums: words(sizes),
            }],
        }
    }

    #[test]
    fn positions_run_through_the_parts() {
        let members = Members::new(
            vec!["image".into()],
            vec![part(0, &[5, 6]), part(50, &[]), part(2, &[7])],
        )
        .unwrap();
        assert_eq!(members.len(), 3);
        assert_eq!(members.id(2), Id::new([2; 16]));
        assert_eq!(members.entry(2, 0).object_id, Id::new([102; 16]));
        assert_eq!(members.entry(1, 0).xxh3, 6);
        assert_eq!(members.largest(), (2, 7));
        assert!(members.expect_count(3).is_ok());
        assert_eq!(
            members.expect_count(4).unwrap_err().to_string(),
            "3 members were given for a subset of 4 samples"
        );
    }

    #[test]
    fn no_fields_still_have_ids() {
        let part = Part {
            ids: ids(0, 4),
            fields: vec![],
        };
        let members = Members::new(vec![], vec![part]).unwrap();
        assert_eq!(members.len(), 4);
        assert_eq!(members.size_bytes(3), 0);
    }

    #[test]
    fn buffers_that_do_not_fit_name_the_part_and_the_column() {
        let fields = || vec![Arc::from("image")];
        let mut short = part(0, &[1, 2]);
        short.fields[0].sizes = words(&[1]);
        let error = Members::new(fields(), vec![part(5, &[1]), short]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "part 1: sizes of field \"image\" has 1 rows, but there are 2 sample ids"
        );
        let mut ragged = part(0, &[1, 2]);
        ragged.ids = ragged.ids.slice(..17);
        let error = Members::new(fields(), vec![ragged]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "part 0: ids has 17 bytes, which is not a multiple of 16"
        );
        let error = Members::new(vec![], vec![part(0, &[1])]).unwrap_err();
        assert!(matches!(
            error,
            MembersError::Fields {
                count: 1,
                expected: 0,
                ..
            }
        ));
        assert_eq!(
            Members::new(fields(), vec![]).unwrap_err(),
            MembersError::Empty
        );
        let twice = Members::new(vec!["a".into(), "a".into()], vec![]).unwrap_err();
        assert_eq!(twice.to_string(), "field \"a\" is asked for twice");
    }
}
