//! What the driver's failures mean for a caller.

use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};

use super::connection::LaneError;
use super::rows::{Found, TryError};
use crate::errors::StoreError;
use crate::lanes::AskError;
use crate::store::ReadRequest;

/// What a read that found no good bytes is called.
pub(super) fn refuse(request: &ReadRequest, doubt: Found, attempts: u32) -> StoreError {
    let (dataset_id, object_id) = (request.dataset_id, request.object_id);
    match doubt {
        Found::Damaged {
            field,
            reason,
            node,
        } => StoreError::Corrupt {
            dataset_id,
            object_id,
            field,
            reason,
            node: Some(node),
            attempts,
        },
        Found::Missing(field) => StoreError::Missing {
            dataset_id,
            object_id,
            field,
            attempts,
        },
        Found::Fields(_) => StoreError::Missing {
            dataset_id,
            object_id,
            field: None,
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
    StoreError::Unavailable {
        operation,
        reason,
        node,
        attempts,
    }
}
