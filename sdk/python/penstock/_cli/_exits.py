"""Exit codes that scripts can trust."""

import json
import sys

from penstock._errors import (
    APIError,
    ConfigError,
    Conflict,
    InvalidRequest,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    PenstockError,
    RateLimited,
    TransportError,
)

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
REFUSED = 4
UNREACHABLE = 5
INTERRUPTED = 130

DESCRIPTION = """\
exit codes:
  0  done
  1  failed (a job that failed, an error of the server)
  2  wrong usage, settings or input
  3  not found
  4  refused: no valid token, not permitted, or it exists already
  5  the server, or something it needs, cannot be reached
"""


def exit_code(error: PenstockError) -> int:
    """The code for an error."""
    if isinstance(error, ConfigError | InvalidRequest):
        return USAGE
    if isinstance(error, NotFound):
        return NOT_FOUND
    if isinstance(error, NotAuthenticated | NotPermitted | Conflict):
        return REFUSED
    if isinstance(error, TransportError | RateLimited) or (isinstance(error, APIError) and error.status == 503):
        return UNREACHABLE
    return FAILED


def report(error: PenstockError, *, is_json: bool) -> int:
    """Write an error to stderr and return its exit code."""
    code = exit_code(error)
    if is_json:
        document = {
            "error": {
                "code": getattr(error, "code", None) or _own_code(error),
                "detail": getattr(error, "detail", str(error)),
                "request_id": getattr(error, "request_id", None),
                "exit_code": code,
            }
        }
        sys.stderr.write(json.dumps(document, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(f"penstock: {error}\n")
    return code


def _own_code(error: PenstockError) -> str:
    return "sdk.unreachable" if isinstance(error, TransportError) else f"sdk.{type(error).__name__.lower()}"
