"""Structured logs on stderr: JSON for machines, lines for people, secrets for nobody."""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

from penstock_server.settings import LogSettings

_SECRET_KEYS = re.compile(r"secret|password|authorization|cookie|csrf|^token$|^code$", re.IGNORECASE)
_TOKENS = re.compile(r"pst_[0-9a-f]{8}_[0-9a-f]+")
_CREDENTIALS = re.compile(r"(://[^/:@\s]*):[^/@\s]+@")
_LOGIN_CODES = re.compile(r"#code=[A-Za-z0-9_-]+")
_HIDDEN = "***"


def configure_logging(settings: LogSettings) -> None:
    """Sends our logs and those of libraries through one formatter; call it once a process."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                hide_secrets,
                _renderer(settings),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.effective_level.upper())
    # Its access log has query strings, ours has not; its start-up lines say nothing that ours do not.
    logging.getLogger("uvicorn.access").disabled = True
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    for noisy in ("alembic", "cassandra", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def hide_secrets(_logger: object, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    return {key: _HIDDEN if _SECRET_KEYS.search(key) else _hidden(value) for key, value in event.items()}


def _hidden(value: object) -> object:
    if isinstance(value, str):
        return _LOGIN_CODES.sub("#code=" + _HIDDEN, _CREDENTIALS.sub(rf"\1:{_HIDDEN}@", _TOKENS.sub(_HIDDEN, value)))
    if isinstance(value, Mapping):
        return {key: _HIDDEN if _SECRET_KEYS.search(str(key)) else _hidden(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(item) for item in value]
    return value


def _renderer(settings: LogSettings) -> structlog.typing.Processor:
    if settings.format == "json":
        return structlog.processors.JSONRenderer(default=str)
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
