"""Every error leaves as application/problem+json with a code of the closed set."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from penstock.contract.codes import ErrorCode
from penstock_server.errors import FieldProblem, ServerError

MEDIA_TYPE = "application/problem+json"
_RETRY_SECONDS = "5"

_log = structlog.get_logger(__name__)


class ProblemField(BaseModel):
    pointer: str
    message: str


class Problem(BaseModel):
    """RFC 9457, with a stable code for programs."""

    type: str
    title: str
    status: int
    detail: str
    code: ErrorCode
    request_id: str
    context: dict[str, Any]
    errors: list[ProblemField] | None = None


PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "What is wrong with the request",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    },
    "5XX": {
        "description": "What is wrong with the server",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    },
}

_CODES = {
    400: ErrorCode.REQUEST_INVALID,
    401: ErrorCode.AUTH_UNAUTHENTICATED,
    403: ErrorCode.AUTH_FORBIDDEN,
    404: ErrorCode.REQUEST_NOT_FOUND,
    405: ErrorCode.REQUEST_METHOD_NOT_ALLOWED,
    408: ErrorCode.REQUEST_INVALID,
    413: ErrorCode.REQUEST_TOO_LARGE,
}


def install(app: FastAPI) -> None:
    app.add_exception_handler(ServerError, _on_server_error)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(OperationalError, _on_catalog)
    app.add_exception_handler(PoolTimeout, _on_catalog)


def problem(
    request_id: str,
    status: int,
    code: ErrorCode,
    detail: str,
    *,
    context: Mapping[str, Any] | None = None,
    errors: Sequence[FieldProblem] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    body = Problem(
        type="about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        code=code,
        request_id=request_id,
        context=dict(context or {}),
        errors=[ProblemField(pointer=e.pointer, message=e.message) for e in errors] or None,
    )
    sent = {"Cache-Control": "no-store", **(headers or {})}
    return JSONResponse(body.model_dump(mode="json", exclude_none=True), status, sent, MEDIA_TYPE)


def unexpected(request_id: str) -> JSONResponse:
    """A bug of ours: what it was stands in the log under the request id, never in the answer."""
    detail = f"something went wrong on the server; its log has the reason under request id {request_id}"
    return problem(request_id, 500, ErrorCode.SERVER_INTERNAL, detail)


def request_id_of(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))


def _on_server_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, ServerError):
        raise error
    headers: dict[str, str] = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.status in {429, 503}:
        headers["Retry-After"] = str(error.context.get("retry_after_seconds", _RETRY_SECONDS))
    return problem(
        request_id_of(request),
        error.status,
        error.code,
        error.detail,
        context=error.context,
        errors=error.errors,
        headers=headers,
    )


def _on_validation(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    errors = [_field_problem(item) for item in error.errors()]
    listed = "; ".join(f"{e.pointer}: {e.message}".removeprefix(": ") for e in errors[:5])
    detail = f"the request has {len(errors)} problem{'s' if len(errors) > 1 else ''}: {listed}"
    return problem(request_id_of(request), 422, ErrorCode.REQUEST_INVALID, detail, errors=errors)


def _on_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code = _CODES.get(error.status_code, ErrorCode.REQUEST_INVALID)
    detail = {
        404: f"there is nothing at {request.url.path}",
        405: f"{request.method} is not possible at {request.url.path}",
    }.get(error.status_code, str(error.detail))
    return problem(request_id_of(request), error.status_code, code, detail, headers=error.headers)


def _on_catalog(request: Request, error: Exception) -> Response:
    reason = error.orig if isinstance(error, DBAPIError) else error
    _log.error(
        "catalog.unavailable", reason=f"{type(reason).__name__}: {str(reason).splitlines()[0] if str(reason) else ''}"
    )
    detail = "the catalog's database does not answer; try again in a moment"
    headers = {"Retry-After": _RETRY_SECONDS}
    return problem(request_id_of(request), 503, ErrorCode.CATALOG_UNAVAILABLE, detail, headers=headers)


def _pointer(location: Sequence[str | int]) -> str:
    """JSON pointer into the body; other places keep their name in front (`/query/limit`)."""
    parts = list(location)
    if parts and parts[0] == "body":
        parts = parts[1:]
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _field_problem(item: Mapping[str, Any]) -> FieldProblem:
    if item["type"] == "json_invalid":
        return FieldProblem("", f"the body is no JSON: {item.get('ctx', {}).get('error', 'it cannot be read')}")
    message = "is needed" if item["type"] == "missing" else str(item["msg"]).removeprefix("Value error, ")
    return FieldProblem(_pointer(item["loc"]), message)
