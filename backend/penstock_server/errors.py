"""The server's errors: everything a caller may be told is one of these, with a stable code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.contract.codes import ErrorCode

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]


@dataclass(frozen=True)
class FieldProblem:
    """What is wrong at one place of the request; `pointer` is a JSON pointer."""

    pointer: str
    message: str


class ServerError(Exception):
    """An answer to the caller: `detail` says what, where and what to do, and holds no secret."""

    default_status: ClassVar[int] = 500

    def __init__(
        self,
        code: ErrorCode,
        detail: str,
        *,
        context: Mapping[str, JsonValue] | None = None,
        errors: Sequence[FieldProblem] = (),
        status: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.context: dict[str, JsonValue] = dict(context or {})
        self.errors = tuple(errors)
        self.status = status or self.default_status


class InvalidInput(ServerError):
    default_status = 422


class Unauthenticated(ServerError):
    default_status = 401


class NotPermitted(ServerError):
    default_status = 403


class NotFound(ServerError):
    default_status = 404


class Conflict(ServerError):
    default_status = 409


class PreconditionFailed(ServerError):
    default_status = 412


class TooLarge(ServerError):
    default_status = 413


class PreconditionRequired(ServerError):
    default_status = 428


class RateLimited(ServerError):
    default_status = 429


class DependencyUnavailable(ServerError):
    default_status = 503
