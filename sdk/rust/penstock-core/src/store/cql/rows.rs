//! The statements on the two tables, and how rows become fields.

use std::sync::Arc;

use bytes::Bytes;
use scylla::client::session::Session;
use scylla::errors::{ExecutionError, PrepareError};
use scylla::routing::partitioner::{Murmur3Partitioner, Partitioner, PartitionerHasher};
use scylla::statement::Consistency as Level;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement;
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::connection::{LaneError, Prepared, Read};
use super::wire::{self, Damaged, Page};
use crate::codec::{self, Header};
use crate::lanes::AskError;
use crate::store::{Consistency, FieldData, Fields, ReadRequest, Table};

#[cfg(test)]
const COLUMNS: usize = 8;
/// A row has at most half a mebibyte, so a page is a large but bearable answer.
const ROWS_A_PAGE: i32 = 16;
const KEYS_A_PAGE: i32 = 1000;

/// What can be asked of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    AllFields,
    NamedFields,
    FirstChunk,
    LaterChunk,
    Delete,
    Keys,
}

const ASKS: usize = 6;

/// Statements of one table, prepared when first needed: a reader never prepares a write, which its role may not do.
#[derive(Debug)]
pub(super) struct Statements {
    keyspace: String,
    table: Table,
    prepared: [OnceCell<PreparedStatement>; ASKS],
    for_lanes: [OnceCell<Arc<Prepared>>; ASKS],
}

impl Statements {
    pub(super) fn new(keyspace: &str, table: Table) -> Self {
        Self {
            keyspace: keyspace.to_owned(),
            table,
            prepared: Default::default(),
            for_lanes: Default::default(),
        }
    }

    pub(super) fn keyspace(&self) -> &str {
        &self.keyspace
    }

    /// The same statement in the form that data connections use.
    pub(super) async fn for_lanes(
        &self,
        session: &Session,
        ask: Ask,
    ) -> Result<Arc<Prepared>, PrepareError> {
        let made = self.for_lanes[ask as usize]
            .get_or_try_init(|| async {
                let statement = self.get(session, ask).await?;
                Ok::<_, PrepareError>(Arc::new(Prepared {
                    id: statement.get_id().clone(),
                    text: self.text(ask),
                    page_rows: statement.get_page_size(),
                }))
            })
            .await?;
        Ok(Arc::clone(made))
    }

    pub(super) async fn get(
        &self,
        session: &Session,
        ask: Ask,
    ) -> Result<&PreparedStatement, PrepareError> {
        self.prepared[ask as usize]
            .get_or_try_init(|| async {
                let mut statement = Statement::new(self.text(ask));
                statement.set_page_size(if ask == Ask::Keys {
                    KEYS_A_PAGE
                } else {
                    ROWS_A_PAGE
                });
                statement.set_consistency(Level::LocalQuorum);
                // Rows are written whole and never change, so asking twice does no harm.
                statement.set_is_idempotent(true);
                let mut prepared = session.prepare(statement).await?;
                prepared.set_use_cached_result_metadata(true);
                Ok(prepared)
            })
            .await
    }

    /// Keyspace and table are names of our own (checked when the store was opened), everything else is bound.
    fn text(&self, ask: Ask) -> String {
        let name = format!("{}.{}", self.keyspace, self.table.name());
        let columns = "field, chunk, layout, chunk_bytes, total_bytes, xxh3, data";
        match ask {
            Ask::AllFields => {
                format!(
                    "SELECT object_id, {columns} FROM {name} WHERE dataset_id = ? AND object_id = ?"
                )
            }
            Ask::NamedFields => format!(
                "SELECT object_id, {columns} FROM {name} \
                 WHERE dataset_id = ? AND object_id = ? AND field IN ?"
            ),
            Ask::FirstChunk => format!(
                "INSERT INTO {name} (dataset_id, object_id, {columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            ),
            Ask::LaterChunk => format!(
                "INSERT INTO {name} (dataset_id, object_id, field, chunk, data) VALUES (?, ?, ?, ?, ?)"
            ),
            Ask::Delete => format!("DELETE FROM {name} WHERE dataset_id = ? AND object_id = ?"),
            Ask::Keys => format!(
                "SELECT DISTINCT dataset_id, object_id FROM {name} \
                 WHERE token(dataset_id, object_id) > ? AND token(dataset_id, object_id) <= ?"
            ),
        }
    }
}

/// One try of one request, as the driver or a lane can fail it.
#[derive(Debug, thiserror::Error)]
pub(super) enum TryError {
    #[error(transparent)]
    Lane(#[from] AskError<LaneError>),
    #[error(transparent)]
    Execution(Box<ExecutionError>),
    #[error(transparent)]
    Prepare(Box<PrepareError>),
    /// The rows do not have the columns of our tables.
    #[error("the table's columns are not Penstock's: {0}")]
    Columns(String),
}

impl From<ExecutionError> for TryError {
    fn from(error: ExecutionError) -> Self {
        Self::Execution(Box::new(error))
    }
}

impl From<PrepareError> for TryError {
    fn from(error: PrepareError) -> Self {
        Self::Prepare(Box::new(error))
    }
}

/// What a read found when the store did answer.
#[derive(Debug)]
pub(super) enum Found {
    Fields(Vec<FieldData>),
    /// Nothing, or not this field.
    Missing(Option<String>),
    Damaged {
        field: String,
        reason: String,
    },
}

struct Row {
    field: Arc<str>,
    chunk: i32,
    header: Option<Header>,
    data: Bytes,
    /// The checksum of the data, when it is known already.
    xxh3: Option<u64>,
}

/// What a read asks the lanes.
pub(super) fn question(
    statement: Arc<Prepared>,
    request: &ReadRequest,
    level: Consistency,
    token: i64,
) -> Read {
    Read {
        statement,
        level: match level {
            Consistency::One => wire::LOCAL_ONE,
            Consistency::Quorum => wire::LOCAL_QUORUM,
        },
        dataset_id: Uuid::from(request.dataset_id),
        object_id: Uuid::from(request.object_id),
        token,
        fields: match &request.fields {
            Fields::All => None,
            Fields::Named(names) => Some(Arc::clone(names)),
        },
        size_bytes: request.size_bytes,
    }
}

/// Where the object lies on the ring: a partition key of two parts, each with its length and an end.
pub(super) fn token_of(request: &ReadRequest) -> i64 {
    let mut hasher = Murmur3Partitioner.build_hasher();
    for id in [request.dataset_id, request.object_id] {
        hasher.write(&[0, 16]);
        hasher.write(id.as_bytes());
        hasher.write(&[0]);
    }
    hasher.finish().value()
}

/// What the pages of an answer hold. Rows that cannot be right were damaged, on the disk or on their way.
pub(super) fn found(request: &ReadRequest, pages: Vec<Page>) -> Found {
    let mut rows = Vec::with_capacity(1);
    for page in pages {
        if let Err(damage) = collect(page, request, &mut rows) {
            return Found::Damaged {
                field: asked_fields(request),
                reason: damage.to_string(),
            };
        }
    }
    assemble(request, rows)
}

fn asked_fields(request: &ReadRequest) -> String {
    match &request.fields {
        Fields::All => String::new(),
        Fields::Named(names) => names.join(", "),
    }
}

fn collect(mut page: Page, request: &ReadRequest, rows: &mut Vec<Row>) -> Result<(), Damaged> {
    for _ in 0..page.row_count {
        let cells = &mut page.cells;
        // Only a number of two bytes ties an answer to its question, and nothing guards it on its way.
        if cells.next()?.as_deref() != Some(request.object_id.as_bytes()) {
            return Err(Damaged("it is another object's row"));
        }
        let field = cells.next()?.ok_or(Damaged("a row without a field"))?;
        let field = std::str::from_utf8(&field).map_err(|_| Damaged("a field name is no text"))?;
        let field = name_of(field, request, rows);
        let chunk = cells.next()?.as_deref().and_then(int);
        let chunk = chunk.ok_or(Damaged("a row without a chunk number"))?;
        let layout = cells.next()?.and_then(|cell| cell.first().copied());
        let chunk_bytes = cells.next()?.as_deref().and_then(int);
        let total_bytes = cells.next()?.as_deref().and_then(long);
        let xxh3 = cells.next()?.as_deref().and_then(long);
        let data = cells.next()?.unwrap_or_default();
        let header = match (layout, chunk_bytes, total_bytes, xxh3) {
            (Some(layout), Some(chunk_bytes), Some(total_bytes), Some(xxh3)) => Some(Header {
                layout: layout.cast_signed(),
                chunk_bytes: chunk_bytes.cast_unsigned(),
                total_bytes,
                xxh3,
            }),
            _ => None,
        };
        rows.push(Row {
            field,
            chunk,
            header,
            xxh3: page.xxh3_of(&data),
            data,
        });
    }
    Ok(())
}

fn int(cell: &[u8]) -> Option<i32> {
    Some(i32::from_be_bytes(cell.try_into().ok()?))
}

fn long(cell: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(cell.try_into().ok()?))
}

/// Shares the name of the request or of the row before: no text is made for each row.
fn name_of(field: &str, request: &ReadRequest, rows: &[Row]) -> Arc<str> {
    if let Fields::Named(names) = &request.fields
        && let Some(name) = names.iter().find(|name| &***name == field)
    {
        return Arc::clone(name);
    }
    match rows.last() {
        Some(row) if &*row.field == field => Arc::clone(&row.field),
        _ => Arc::from(field),
    }
}

fn assemble(request: &ReadRequest, rows: Vec<Row>) -> Found {
    let mut fields: Vec<FieldData> = Vec::new();
    let mut rest = rows.into_iter().peekable();
    while let Some(first) = rest.next() {
        let name = first.field;
        let mut xxh3 = first.xxh3;
        let mut chunks = vec![(first.chunk, first.data)];
        while let Some(row) = rest.next_if(|row| row.field == name) {
            chunks.push((row.chunk, row.data));
            xxh3 = None;
        }
        // The first chunk is written last: without it the field has not been written yet.
        let Some(header) = first.header.filter(|_| first.chunk == 0) else {
            return Found::Missing(Some(name.to_string()));
        };
        // What lies behind its last chunk was left by a larger content that the field had before.
        let chunk_count = header.chunk_count();
        chunks.retain(|(chunk, _)| u64::try_from(*chunk).map_or(true, |chunk| chunk < chunk_count));
        match codec::assemble_summed(Arc::clone(&name), header, chunks, xxh3) {
            Ok(field) => fields.push(field),
            Err(reason) => {
                return Found::Damaged {
                    field: name.to_string(),
                    reason,
                };
            }
        }
    }
    in_asked_order(request, fields)
}

fn in_asked_order(request: &ReadRequest, mut fields: Vec<FieldData>) -> Found {
    let Fields::Named(names) = &request.fields else {
        if fields.is_empty() {
            return Found::Missing(None);
        }
        return Found::Fields(fields);
    };
    if let [name] = &names[..]
        && fields.len() == 1
        && fields[0].name == *name
    {
        return Found::Fields(fields);
    }
    let mut ordered = Vec::with_capacity(names.len());
    for name in names.iter() {
        match fields.iter().position(|field| field.name == *name) {
            Some(place) => ordered.push(fields.swap_remove(place)),
            None => return Found::Missing(Some(name.to_string())),
        }
    }
    Found::Fields(ordered)
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};

    use super::*;
    use crate::codec::LAYOUT;
    use crate::id::Id;
    use crate::retry::Random;
    use crate::store::cql::wire::Cells;

    fn request(dataset_id: Id, object_id: Id) -> ReadRequest {
        ReadRequest {
            table: Table::Samples,
            dataset_id,
            object_id,
            fields: Fields::Named(["image".into(), "mask".into()].into()),
            consistency: Consistency::One,
            size_bytes: 0,
        }
    }

    /// Tokens that `cassandra-driver` works out for the same keys (`Murmur3Token.from_key`), and over ten thousand of
    /// them a sum in which every place counts.
    #[test]
    fn tokens_are_those_of_the_drivers() {
        const FIRST: [i64; 8] = [
            -2_425_565_047_475_300_687,
            7_603_058_192_463_659_219,
            -179_295_648_857_940_156,
            4_630_330_930_290_458_341,
            -6_171_238_050_095_256_166,
            7_090_720_546_353_525_576,
            -2_137_396_713_419_790_506,
            4_635_926_503_193_047_021,
        ];
        let mut random = Random::new(12);
        let mut id = || {
            let halves = [random.next_u64(), random.next_u64()];
            Id::from_slice(&halves.map(u64::to_be_bytes).concat()).unwrap()
        };
        let tokens: Vec<i64> = (0..10_000)
            .map(|_| {
                let dataset_id = id();
                token_of(&request(dataset_id, id()))
            })
            .collect();
        assert_eq!(tokens[..8], FIRST);
        let sum = tokens.iter().fold(0_u64, |sum, token| {
            sum.wrapping_mul(31).wrapping_add(token.cast_unsigned())
        });
        assert_eq!(sum, 0x331a_0e62_f3ab_573e);
    }

    fn cell(target: &mut BytesMut, content: &[u8]) {
        target.put_u32(u32::try_from(content.len()).unwrap());
        target.put_slice(content);
    }

    /// The cells of one row with a field of four bytes.
    fn row(field: &str) -> BytesMut {
        row_of(Id::default(), field)
    }

    fn row_of(object_id: Id, field: &str) -> BytesMut {
        let header = Header::of(b"good");
        let mut cells = BytesMut::new();
        cell(&mut cells, object_id.as_bytes());
        cell(&mut cells, field.as_bytes());
        cell(&mut cells, &0_i32.to_be_bytes());
        cell(&mut cells, &[LAYOUT.cast_unsigned()]);
        cell(&mut cells, &header.chunk_bytes.to_be_bytes());
        cell(&mut cells, &header.total_bytes.to_be_bytes());
        cell(&mut cells, &header.xxh3.to_be_bytes());
        cell(&mut cells, b"good");
        cells
    }

    fn read(cells: &[u8]) -> Found {
        let cells = Cells::new(Bytes::copy_from_slice(cells));
        let page = Page::new(None, 2, COLUMNS, cells);
        found(&request(Id::default(), Id::default()), vec![page])
    }

    #[test]
    fn a_flipped_bit_anywhere_in_the_rows_is_a_doubt_and_never_final() {
        let sound = [row("image"), row("mask")].concat();
        assert!(matches!(read(&sound), Found::Fields(fields) if fields.len() == 2));
        let mut damaged = 0;
        for place in 0..sound.len() {
            for bit in 0..8 {
                let mut bytes = sound.clone();
                bytes[place] ^= 1 << bit;
                match read(&bytes) {
                    Found::Damaged { .. } => damaged += 1,
                    Found::Missing(_) => {}
                    // Nothing depends on the size of the chunks of a field that has one.
                    Found::Fields(fields) => assert!(
                        fields.iter().all(|field| field.to_bytes() == "good"),
                        "byte {place}, bit {bit}"
                    ),
                }
            }
        }
        assert!(damaged > sound.len(), "{damaged} of {}", 8 * sound.len());
    }

    #[test]
    fn a_sound_row_of_another_object_is_damage() {
        let other = Id::new([7; 16]);
        for rows in [
            [row_of(other, "image"), row_of(other, "mask")],
            [row("image"), row_of(other, "mask")],
        ] {
            match read(&rows.concat()) {
                Found::Damaged { reason, .. } => {
                    assert!(reason.contains("another object's row"), "{reason}");
                }
                found => panic!("{found:?}"),
            }
        }
    }

    /// The cells of a later chunk of a field.
    fn later_row(field: &str, chunk: i32) -> BytesMut {
        let mut cells = BytesMut::new();
        cell(&mut cells, Id::default().as_bytes());
        cell(&mut cells, field.as_bytes());
        cell(&mut cells, &chunk.to_be_bytes());
        for _ in 0..4 {
            cells.put_i32(-1);
        }
        cell(&mut cells, b"left over");
        cells
    }

    #[test]
    fn chunks_that_a_larger_content_left_behind_are_not_read() {
        let first = [row("image"), later_row("image", 1), later_row("image", 2)].concat();
        let second = [row("mask"), later_row("mask", 1)].concat();
        let page = |row_count, cells: Vec<u8>| {
            Page::new(None, row_count, COLUMNS, Cells::new(Bytes::from(cells)))
        };
        let pages = vec![page(3, first), page(2, second)];
        match found(&request(Id::default(), Id::default()), pages) {
            Found::Fields(fields) => {
                assert_eq!(fields.len(), 2);
                assert!(fields.iter().all(|field| field.to_bytes() == "good"));
            }
            found => panic!("{found:?}"),
        }
        // One that cannot have been written is no leftover.
        let odd = [row("image"), later_row("image", -1)].concat();
        assert!(matches!(read(&odd), Found::Damaged { .. }));
    }

    #[test]
    fn rows_that_end_too_early_are_damaged_and_name_what_was_asked_for() {
        let sound = [row("image"), row("mask")].concat();
        match read(&sound[..sound.len() - 1]) {
            Found::Damaged { field, reason } => {
                assert_eq!(field, "image, mask");
                assert!(reason.contains("too early"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}
