//! The statements on the two tables, and how rows become fields.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use scylla::client::execution_profile::ExecutionProfileHandle;
use scylla::client::session::Session;
use scylla::errors::{ExecutionError, PrepareError};
use scylla::response::PagingState;
use scylla::statement::Consistency as Level;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement;
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::{Consistency, FieldData, Fields, ReadRequest, Table};
use crate::codec::{self, Header};

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
}

impl Statements {
    pub(super) fn new(keyspace: &str, table: Table) -> Self {
        Self {
            keyspace: keyspace.to_owned(),
            table,
            prepared: Default::default(),
        }
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
                format!("SELECT {columns} FROM {name} WHERE dataset_id = ? AND object_id = ?")
            }
            Ask::NamedFields => format!(
                "SELECT {columns} FROM {name} WHERE dataset_id = ? AND object_id = ? AND field IN ?"
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

/// One try of one request, as the driver can fail it.
#[derive(Debug, thiserror::Error)]
pub(super) enum TryError {
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
        node: String,
    },
}

struct Row {
    field: Arc<str>,
    chunk: i32,
    header: Option<Header>,
    data: Bytes,
}

type Columns<'row> = (
    &'row str,
    i32,
    Option<i8>,
    Option<i32>,
    Option<i64>,
    Option<i64>,
    Option<Bytes>,
);

/// Reads one object once. `elsewhere` sends it to any node instead of the one that owns it.
pub(super) async fn read(
    session: &Session,
    statements: &Statements,
    request: &ReadRequest,
    level: Consistency,
    elsewhere: Option<&ExecutionProfileHandle>,
) -> Result<Found, TryError> {
    let ask = match &request.fields {
        Fields::All => Ask::AllFields,
        Fields::Named(_) => Ask::NamedFields,
    };
    let mut statement = statements.get(session, ask).await?.clone();
    statement.set_consistency(match level {
        Consistency::One => Level::LocalOne,
        Consistency::Quorum => Level::LocalQuorum,
    });
    statement.set_execution_profile_handle(elsewhere.cloned());
    let mut rows = Vec::new();
    let mut page = PagingState::start();
    // A page may end anywhere, also when it is the only one that the row limit allows: ScyllaDB cuts near 1 MB.
    let node = loop {
        let (result, next) = execute_read(session, &statement, request, page).await?;
        let result = result
            .into_rows_result()
            .map_err(|error| TryError::Columns(error.to_string()))?;
        collect(&result, request, &mut rows)?;
        match next.into_paging_control_flow() {
            ControlFlow::Break(()) => break result.request_coordinator().connection_address(),
            ControlFlow::Continue(state) => page = state,
        }
    };
    Ok(assemble(request, rows, node))
}

async fn execute_read(
    session: &Session,
    statement: &PreparedStatement,
    request: &ReadRequest,
    page: PagingState,
) -> Result<
    (
        scylla::response::query_result::QueryResult,
        scylla::response::PagingStateResponse,
    ),
    ExecutionError,
> {
    let dataset_id = Uuid::from(request.dataset_id);
    let object_id = Uuid::from(request.object_id);
    match &request.fields {
        Fields::All => {
            session
                .execute_single_page(statement, (dataset_id, object_id), page)
                .await
        }
        Fields::Named(names) => {
            let names: Vec<&str> = names.iter().map(|name| &**name).collect();
            session
                .execute_single_page(statement, (dataset_id, object_id, names), page)
                .await
        }
    }
}

fn collect(
    result: &scylla::response::query_result::QueryRowsResult,
    request: &ReadRequest,
    rows: &mut Vec<Row>,
) -> Result<(), TryError> {
    let columns = |error: &dyn std::fmt::Display| TryError::Columns(error.to_string());
    for row in result.rows::<Columns>().map_err(|error| columns(&error))? {
        let (field, chunk, layout, chunk_bytes, total_bytes, xxh3, data) =
            row.map_err(|error| columns(&error))?;
        let header = match (layout, chunk_bytes, total_bytes, xxh3) {
            (Some(layout), Some(chunk_bytes), Some(total_bytes), Some(xxh3)) => Some(Header {
                layout,
                chunk_bytes: chunk_bytes.cast_unsigned(),
                total_bytes: total_bytes.cast_unsigned(),
                xxh3: xxh3.cast_unsigned(),
            }),
            _ => None,
        };
        rows.push(Row {
            field: name_of(field, request, rows),
            chunk,
            header,
            data: data.unwrap_or_default(),
        });
    }
    Ok(())
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

fn assemble(request: &ReadRequest, rows: Vec<Row>, node: SocketAddr) -> Found {
    let mut fields: Vec<FieldData> = Vec::new();
    let mut rest = rows.into_iter().peekable();
    while let Some(first) = rest.next() {
        let name = first.field;
        let mut chunks = vec![(first.chunk, first.data)];
        while let Some(row) = rest.next_if(|row| row.field == name) {
            chunks.push((row.chunk, row.data));
        }
        // The first chunk is written last: without it the field has not been written yet.
        let Some(header) = first.header.filter(|_| first.chunk == 0) else {
            return Found::Missing(Some(name.to_string()));
        };
        match codec::assemble(Arc::clone(&name), header, chunks) {
            Ok(field) => fields.push(field),
            Err(reason) => {
                return Found::Damaged {
                    field: name.to_string(),
                    reason,
                    node: node.to_string(),
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
