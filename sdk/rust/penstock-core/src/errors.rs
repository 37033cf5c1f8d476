//! What can go wrong, one enum an operation. Messages say what was tried, on what, and what to check.

use crate::id::Id;

/// A store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration itself is wrong: no retry helps.
    #[error("{message}")]
    Config { message: String },
    /// The configuration may be right, but the store does not answer or refuses us.
    #[error("{message}")]
    Unavailable { message: String },
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// An operation on an open store failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Not there, also not at quorum.
    #[error("object {object_id} of dataset {dataset_id} has no {what} in the store (asked {attempts} times)", what = field_or_bytes(.field.as_deref()))]
    Missing {
        dataset_id: Id,
        object_id: Id,
        field: Option<String>,
        attempts: u32,
    },
    /// There, but size or checksum do not fit, also at quorum.
    #[error("object {object_id} of dataset {dataset_id}, field {field:?}: {reason} (read {attempts} times{node})", node = from_node(.node.as_deref()))]
    Corrupt {
        dataset_id: Id,
        object_id: Id,
        field: String,
        reason: String,
        node: Option<String>,
        attempts: u32,
    },
    /// The store did not answer in time, or answered with an error, as often as we tried.
    #[error("{operation} failed after {attempts} tries{node}: {reason}", node = from_node(.node.as_deref()))]
    Unavailable {
        operation: String,
        reason: String,
        node: Option<String>,
        attempts: u32,
    },
    /// No room left.
    #[error("the store is full: {reason}")]
    Full { reason: String },
    /// The caller asked for something that this store can never do.
    #[error("{reason}")]
    Invalid { reason: String },
    #[error("this store is closed: open a new one")]
    Closed,
}

impl StoreError {
    /// The node that answered last, where that is known.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Corrupt { node, .. } | Self::Unavailable { node, .. } => node.as_deref(),
            _ => None,
        }
    }

    /// How often it was tried.
    pub const fn attempts(&self) -> Option<u32> {
        match self {
            Self::Missing { attempts, .. }
            | Self::Corrupt { attempts, .. }
            | Self::Unavailable { attempts, .. } => Some(*attempts),
            _ => None,
        }
    }
}

/// A runtime was asked for in a process that may not have it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    #[error(
        "this {what} was made in process {owner} and is used in its forked child {current}: make a new one in the child, \
         or start workers with the `spawn` method"
    )]
    Forked {
        what: &'static str,
        owner: u32,
        current: u32,
    },
    #[error("the native runtime could not start a thread: {reason}")]
    NoThread { reason: String },
}

fn field_or_bytes(field: Option<&str>) -> String {
    field.map_or_else(|| "bytes".to_owned(), |name| format!("field {name:?}"))
}

fn from_node(node: Option<&str>) -> String {
    node.map_or_else(String::new, |name| format!(", node {name}"))
}
