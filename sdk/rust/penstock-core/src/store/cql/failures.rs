//! What the driver's failures mean for a caller.

use std::net::SocketAddr;
use std::time::Duration;

use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};

use super::connection::LaneError;
use super::rows::{Found, TryError};
use crate::errors::StoreError;
use crate::lanes::AskError;
use crate::store::ReadRequest;

/// What a read that found no good bytes is called.
pub(super) fn refuse(
    request: &ReadRequest,
    doubt: Found,
    node: SocketAddr,
    attempts: u32,
) -> StoreError {
    let (dataset_id, object_id) = (request.dataset_id, request.object_id);
    let node = Some(node.to_string());
    match doubt {
        Found::Damaged { field, reason } => StoreError::Corrupt {
            dataset_id,
            object_id,
            field,
            reason,
            node,
            attempts,
        },
        Found::Missing(field) => StoreError::Missing {
            dataset_id,
            object_id,
            field,
            node,
            attempts,
        },
        Found::Fields(_) => StoreError::Missing {
            dataset_id,
            object_id,
            field: None,
            node,
            attempts,
        },
    }
}

/// Bad credentials, wrong syntax, no right, invalid, wrong configuration: asking again changes nothing.
const FINAL_CODES: [i32; 5] = [0x0100, 0x2000, 0x2100, 0x2200, 0x2300];

/// Whether the same request may succeed a moment later.
pub(super) fn is_passing(error: &TryError) -> bool {
    let attempt = match error {
        TryError::Lane(AskError::Lane {
            error: LaneError::Refused { code, .. },
            ..
        }) => return !FINAL_CODES.contains(code),
        TryError::Lane(_) => return true,
        TryError::Prepare(error) => attempt_of(error),
        TryError::Execution(error) => match &**error {
            ExecutionError::LastAttemptError(attempt) => Some(attempt),
            ExecutionError::PrepareError(error) => attempt_of(error),
            ExecutionError::BadQuery(_) => return false,
            _ => None,
        },
        TryError::Columns(_) => return false,
    };
    attempt.is_none_or(may_pass)
}

const fn attempt_of(error: &PrepareError) -> Option<&RequestAttemptError> {
    match error {
        PrepareError::AllAttemptsFailed { first_attempt } => Some(first_attempt),
        _ => None,
    }
}

const fn may_pass(attempt: &RequestAttemptError) -> bool {
    !matches!(
        attempt,
        RequestAttemptError::SerializationError(_)
            | RequestAttemptError::CqlRequestSerialization(_)
            | RequestAttemptError::DbError(
                DbError::SyntaxError
                    | DbError::Invalid
                    | DbError::AuthenticationError
                    | DbError::Unauthorized
                    | DbError::ConfigError,
                _
            )
    )
}

pub(super) fn failure(operation: String, error: &TryError, attempts: u32) -> StoreError {
    let reason = error.to_string();
    if reason.contains("No space left") {
        return StoreError::Full { reason };
    }
    let node = match error {
        TryError::Lane(AskError::Lane { node, .. } | AskError::Silent { node }) => {
            Some(node.to_string())
        }
        _ => None,
    };
    if !is_passing(error) {
        return StoreError::Refused {
            operation,
            reason,
            node,
            attempts,
        };
    }
    StoreError::Unavailable {
        operation,
        reason,
        node,
        attempts,
        waited: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: i32) -> TryError {
        let node = SocketAddr::from(([127, 0, 0, 1], 9042));
        let message = "no".to_owned();
        let error = LaneError::Refused { code, message };
        TryError::Lane(AskError::Lane { node, error })
    }

    #[test]
    fn what_a_node_will_never_do_is_refused_and_names_it() {
        for code in FINAL_CODES {
            let error = failure("reading".to_owned(), &refused(code), 1);
            assert!(matches!(error, StoreError::Refused { .. }), "{error}");
            assert_eq!(error.node(), Some("127.0.0.1:9042"));
        }
        let overloaded = failure("reading".to_owned(), &refused(0x1001), 6);
        assert!(matches!(
            overloaded,
            StoreError::Unavailable { attempts: 6, .. }
        ));
        let silent = TryError::Lane(AskError::NoLane {
            reason: String::new(),
        });
        assert!(is_passing(&silent));
    }
}
