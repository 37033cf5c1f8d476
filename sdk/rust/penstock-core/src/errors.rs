//! What can go wrong, one enum an operation. Messages say what was tried, on what, and what to check.

use std::time::Duration;

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
    #[error("object {object_id} of dataset {dataset_id} has no {what} in the store (asked {attempts} times{node})", what = field_or_bytes(.field.as_deref()), node = from_node(.node.as_deref()))]
    Missing {
        dataset_id: Id,
        object_id: Id,
        field: Option<String>,
        node: Option<String>,
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
    #[error("{operation} failed after {attempts} tries{waited}{node}: {reason}", waited = so_long(*.waited), node = from_node(.node.as_deref()))]
    Unavailable {
        operation: String,
        reason: String,
        node: Option<String>,
        attempts: u32,
        /// How long it was waited for beyond the tries of one request; zero when nobody has.
        waited: Duration,
    },
    /// The store understood and will not do it: no right, no such table. Waiting does not help.
    #[error("{operation} was refused after {attempts} tries{node}: {reason}", node = from_node(.node.as_deref()))]
    Refused {
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
            Self::Missing { node, .. }
            | Self::Corrupt { node, .. }
            | Self::Unavailable { node, .. }
            | Self::Refused { node, .. } => node.as_deref(),
            _ => None,
        }
    }

    /// How often it was tried.
    pub const fn attempts(&self) -> Option<u32> {
        match self {
            Self::Missing { attempts, .. }
            | Self::Corrupt { attempts, .. }
            | Self::Unavailable { attempts, .. }
            | Self::Refused { attempts, .. } => Some(*attempts),
            _ => None,
        }
    }

    /// The same after earlier tries, and a wait between them.
    #[must_use]
    pub fn after(mut self, earlier: u32, wait: Duration) -> Self {
        if let Self::Unavailable { waited, .. } = &mut self {
            *waited += wait;
        }
        if let Self::Missing { attempts, .. }
        | Self::Corrupt { attempts, .. }
        | Self::Unavailable { attempts, .. }
        | Self::Refused { attempts, .. } = &mut self
        {
            *attempts += earlier;
        }
        self
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

fn so_long(waited: Duration) -> String {
    if waited.is_zero() {
        return String::new();
    }
    format!(", waited {:.1} s", waited.as_secs_f64())
}
