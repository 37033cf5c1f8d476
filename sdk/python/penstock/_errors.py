"""Every exception that Penstock raises.

PenstockError
|- ConfigError                    wrong or missing settings and arguments
|- StateError                     a saved state that cannot be used here
|- TransportError                 the server was not reached
|  |- ConnectError
|  `- Timeout
|- APIError                       the server answered with an error: code, status, request_id
|  |- InvalidRequest   400, 405, 413, 422
|  |- NotAuthenticated 401
|  |- NotPermitted     403
|  |- NotFound         404
|  |- Conflict         409, 412, 428
|  |- RateLimited      429
|  `- ServerFailure    5xx
|- JobFailed                      a job that was waited for failed or was cancelled
|- StoreError                     the sample store
|  |- StoreUnavailable
|  |- StoreRefused
|  |- SampleMissing
|  |- SampleCorrupt
|  `- StoreFull
|- EngineError                    the native engine
|  |- EngineClosed
|  |- ForkedProcess
|  `- CorePanicked
`- LoaderFailure                  an ExceptionGroup: samples that could not be delivered
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self


class PenstockError(Exception):
    """Root of all errors of Penstock."""


class ConfigError(PenstockError):
    """Settings or arguments are wrong or missing; the message says which and what to do."""


class StateError(PenstockError):
    """A saved state is damaged, of another subset or format, or of one rank alone; the message says which."""


class TransportError(PenstockError):
    """The server gave no answer."""


class ConnectError(TransportError):
    """No connection to the server could be made, or it broke."""


class Timeout(TransportError):
    """The server did not answer in time."""


class APIError(PenstockError):
    """The server refused or failed a request.

    Attributes:
        code: Stable machine-readable reason, one of `penstock.contract.codes.ErrorCode` (or another of a newer server).
        status: HTTP status of the answer.
        request_id: Names the request in the server's log.
        context: Facts about the error, as the server gave them.
        errors: For wrong payloads: pairs of JSON pointer and message.
    """

    def __init__(
        self,
        detail: str,
        *,
        code: str,
        status: int,
        request_id: str | None = None,
        context: Mapping[str, Any] | None = None,
        errors: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.status = status
        self.request_id = request_id
        self.context = dict(context or {})
        self.errors = tuple(errors)

    def __str__(self) -> str:
        places = "".join(f"\n  {pointer}: {message}" for pointer, message in self.errors)
        request = f", request {self.request_id}" if self.request_id else ""
        return f"{self.detail} [{self.code}{request}]{places}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored_api_error, (type(self), dict(vars(self)))


class InvalidRequest(APIError):
    """The request itself is wrong (400, 405, 413, 422)."""


class NotAuthenticated(APIError):
    """No valid token (401)."""


class NotPermitted(APIError):
    """The token's owner may not do this (403)."""


class NotFound(APIError):
    """No such thing, or none that the token's owner may see (404)."""


class Conflict(APIError):
    """It exists already or has changed meanwhile (409, 412, 428)."""


class RateLimited(APIError):
    """Too many requests (429)."""


class ServerFailure(APIError):
    """The server or something behind it failed (5xx)."""


class JobFailed(PenstockError):
    """A job that was waited for did not succeed."""

    def __init__(self, detail: str, *, job_id: str = "", code: str | None = None) -> None:
        super().__init__(detail)
        self.job_id = job_id
        self.code = code


class StoreError(PenstockError):
    """The sample store failed.

    When a loader with `on_error="raise"` raises it in the place of a batch, `sample_id` and `lost_ids` together are all
    samples that the batch would have had; the loop may go on behind it.

    Attributes:
        seq: When an engine raised it: the number of the batch in whose place it stands.
        sample_id: The sample that could not be read or decoded, as in `batch.id_strings()`.
        lost_ids: The other samples of its batch. They count as done and do not come again in this epoch;
            `loader.failures()` says which of them are sound.
    """

    seq: int | None = None
    sample_id: str | None = None
    lost_ids: tuple[str, ...] = ()


class StoreUnavailable(StoreError):
    """The store cannot be reached, or too few of its nodes answer."""


class StoreRefused(StoreError):
    """The store will not do this, however often it is asked: no right, no such table, a folder of somebody else."""


class SampleMissing(StoreError):
    """The store does not have the bytes of a sample that the version names."""


class SampleCorrupt(StoreError):
    """The bytes of a sample do not match their checksum."""


class StoreFull(StoreError):
    """The store has no room left."""


class EngineError(PenstockError):
    """The native engine cannot do this."""


class EngineClosed(EngineError):
    """The loader or store was closed before."""


class ForkedProcess(EngineError):
    """A loader or store was used in a process forked after it was made; make a new one there."""


class CorePanicked(EngineError):
    """A bug in the native core; please report it with the message."""


class LoaderFailure(PenstockError, ExceptionGroup[Exception]):
    """Several samples could not be delivered; each member is noted with its sample id."""

    def derive(self, excs: Sequence[Exception]) -> Self:  # type: ignore[override]  # narrower on purpose
        """A group of the same message with other members (called by `except*`)."""
        return type(self)(self.message, excs)


def _restored_api_error(kind: type[APIError], state: dict[str, Any]) -> APIError:
    known = {name: state[name] for name in ("code", "status", "request_id", "context", "errors")}
    return kind(state["detail"], **known)


def api_error_class(status: int) -> type[APIError]:
    """The class for an HTTP status of 400 or more."""
    exact: dict[int, type[APIError]] = {
        401: NotAuthenticated,
        403: NotPermitted,
        404: NotFound,
        409: Conflict,
        412: Conflict,
        428: Conflict,
        429: RateLimited,
    }
    if status in exact:
        return exact[status]
    return ServerFailure if status >= 500 else InvalidRequest
