"""Settings of the server and the workers, read once in a composition root (PENSTOCK_<GROUP>__<KEY>)."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

PREFIX = "PENSTOCK_"
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})


class SettingsInvalid(Exception):
    """The settings cannot be used; `problems` has one line for each reason."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True)


class ServerSettings(_Group):
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    public_url: str | None = None
    allow_remote_http: bool = False
    max_body_bytes: Annotated[int, Field(ge=1024)] = 16 * 1024 * 1024
    header_timeout_seconds: Annotated[float, Field(gt=0)] = 10.0
    body_timeout_seconds: Annotated[float, Field(gt=0)] = 30.0
    page_folder: Path | None = None

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            msg = f"{value!r} is no address; give one like https://penstock.example"
            raise ValueError(msg)
        return value.rstrip("/")

    @model_validator(mode="after")
    def _check_remote_http(self) -> Self:
        is_https = self.public_url is not None and self.public_url.startswith("https://")
        if self.host not in LOOPBACK_HOSTS and not is_https and not self.allow_remote_http:
            msg = (
                f"host {self.host!r} opens plain http to the network: set PENSTOCK_SERVER__PUBLIC_URL to the https "
                "address of the proxy in front, or PENSTOCK_SERVER__ALLOW_REMOTE_HTTP=true if the network is trusted"
            )
            raise ValueError(msg)
        return self

    @property
    def url(self) -> str:
        if self.public_url is not None:
            return self.public_url
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(self.host, self.host)
        return f"http://{host}:{self.port}"


class CatalogSettings(_Group):
    url: Annotated[str, Field(repr=False)] = ""

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        if not value:
            return value
        if value.startswith(("postgresql://", "postgres://")):
            return "postgresql+psycopg://" + value.partition("://")[2]
        if not value.startswith(("postgresql+psycopg://", "sqlite:///")):
            msg = "the catalog is PostgreSQL (postgresql://user:password@host/name) or SQLite (sqlite:////folder/file)"
            raise ValueError(msg)
        return value


class StoreSettings(_Group):
    kind: Literal["lmdb", "cql"] = "lmdb"
    path: Path | None = None
    contact_points: Annotated[list[str], NoDecode] = Field(default_factory=list)
    public_contact_points: Annotated[list[str], NoDecode] = Field(default_factory=list)
    local_dc: str = "datacenter1"
    replication_factor: Annotated[int, Field(ge=1)] = 3
    username: str | None = None
    password: Annotated[str | None, Field(repr=False)] = None
    reader_username: str | None = None
    reader_password: Annotated[str | None, Field(repr=False)] = None
    ca_file: Path | None = None

    @field_validator("contact_points", "public_contact_points", mode="before")
    @classmethod
    def _split_points(cls, value: object) -> object:
        return _listed(value)

    @model_validator(mode="after")
    def _check_store(self) -> Self:
        problems = []
        if self.kind == "cql" and not self.contact_points:
            problems.append("kind 'cql' needs contact_points, for example 127.0.0.1:9042,127.0.0.2:9042")
        points = [*self.contact_points, *self.public_contact_points]
        problems.extend(f"contact point {point!r} is not host:port" for point in points if not _is_address(point))
        if (self.username is None) != (self.password is None):
            problems.append("username and password belong together; set both or none")
        if (self.reader_username is None) != (self.reader_password is None):
            problems.append("reader_username and reader_password belong together; set both or none")
        if self.ca_file is not None and not self.ca_file.is_file():
            problems.append(f"ca_file {self.ca_file} is not there")
        if problems:
            raise ValueError("; ".join(problems))
        return self


class QueueSettings(_Group):
    kind: Literal["local", "celery"] = "local"
    redis_url: Annotated[str | None, Field(repr=False)] = None

    @model_validator(mode="after")
    def _check_queue(self) -> Self:
        _check_redis(self.redis_url, is_needed=self.kind == "celery")
        return self


class EventsSettings(_Group):
    kind: Literal["catalog", "redis"] = "catalog"
    redis_url: Annotated[str | None, Field(repr=False)] = None

    @model_validator(mode="after")
    def _check_events(self) -> Self:
        _check_redis(self.redis_url, is_needed=self.kind == "redis")
        return self


class IngestSettings(_Group):
    allowed_roots: Annotated[list[Path], NoDecode] = Field(default_factory=list)
    max_bad_share: Annotated[float, Field(ge=0, le=1)] = 0.1

    @field_validator("allowed_roots", mode="before")
    @classmethod
    def _split_roots(cls, value: object) -> object:
        return _listed(value, separator=os.pathsep if isinstance(value, str) and os.pathsep in value else ",")

    @field_validator("allowed_roots")
    @classmethod
    def _check_roots(cls, value: list[Path]) -> list[Path]:
        relative = [str(root) for root in value if not root.expanduser().is_absolute()]
        if relative:
            msg = f"allowed_roots must be absolute folders, got {', '.join(relative)}"
            raise ValueError(msg)
        return [root.expanduser() for root in value]


class AuthSettings(_Group):
    session_hours: Annotated[float, Field(gt=0, le=24 * 30)] = 12
    code_minutes: Annotated[float, Field(gt=0, le=60)] = 10


class LimitSettings(_Group):
    """Far above what the page and a cluster's loaders need: they stop a script that has gone wild."""

    requests_per_minute: Annotated[int, Field(ge=1)] = 60_000
    refused_per_minute: Annotated[int, Field(ge=1)] = 600
    failed_logins_per_minute: Annotated[int, Field(ge=1)] = 30


class LogSettings(_Group):
    level: Literal["debug", "info", "warning", "error"] | None = None
    format: Literal["json", "console"] = "console"

    @field_validator("level", "format", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @property
    def effective_level(self) -> Literal["debug", "info", "warning", "error"]:
        """A terminal should show the address to open and what goes wrong; a log collector wants everything."""
        return self.level or ("info" if self.format == "json" else "warning")


class Settings(BaseSettings):
    """All settings. Every default is the embedded way to run."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="ignore", validate_default=True
    )

    data_folder: Path = Path("~/.local/share/penstock")
    state_folder: Path = Path("~/.local/state/penstock")
    server: ServerSettings = Field(default_factory=ServerSettings)
    catalog: CatalogSettings = Field(default_factory=CatalogSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    queue: QueueSettings = Field(default_factory=QueueSettings)
    events: EventsSettings = Field(default_factory=EventsSettings)
    ingest: IngestSettings = Field(default_factory=IngestSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    log: LogSettings = Field(default_factory=LogSettings)

    @model_validator(mode="after")
    def _fill_folders(self) -> Self:
        self.data_folder = self.data_folder.expanduser().absolute()
        self.state_folder = self.state_folder.expanduser().absolute()
        # Copies: a group that was given as a default must not keep the folder of another Settings.
        if not self.catalog.url:
            self.catalog = self.catalog.model_copy(update={"url": f"sqlite:///{self.data_folder / 'catalog.sqlite3'}"})
        if self.store.path is None:
            self.store = self.store.model_copy(update={"path": self.data_folder / "store"})
        roots = self.ingest.allowed_roots or [Path.home()]
        if self.data_folder not in roots:
            roots = [self.data_folder, *roots]
        self.ingest = self.ingest.model_copy(update={"allowed_roots": roots})
        return self

    @property
    def discovery_file(self) -> Path:
        return self.state_folder / "server.json"


def load_settings(**overrides: Any) -> Settings:
    """Reads the environment; raises SettingsInvalid with every problem at once."""
    problems = _unknown_groups(os.environ)
    try:
        settings = Settings(**overrides)
    except ValidationError as error:
        problems.extend(_describe(item["loc"], item["msg"]) for item in error.errors())
        raise SettingsInvalid(problems) from None
    if problems:
        raise SettingsInvalid(problems)
    return settings


def _describe(location: tuple[int | str, ...], message: str) -> str:
    name = PREFIX + "__".join(str(part).upper() for part in location if isinstance(part, str))
    text = message.removeprefix("Value error, ")
    return f"{name}: {'there is no such setting' if text.startswith('Extra inputs') else text}"


def _unknown_groups(environment: Mapping[str, str]) -> list[str]:
    groups = {name.upper() for name in Settings.model_fields}
    return [
        f"{name}: there is no such group of settings; the groups are {', '.join(sorted(groups)).lower()}"
        for name in sorted(environment)
        if name.startswith(PREFIX) and "__" in name and name.removeprefix(PREFIX).partition("__")[0] not in groups
    ]


def _listed(value: object, *, separator: str = ",") -> object:
    """A list in the environment: JSON, or parts with a separator."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            msg = f"{value!r} is no JSON list"
            raise ValueError(msg) from None
    return [part.strip() for part in value.split(separator) if part.strip()]


def _is_address(point: str) -> bool:
    host, _, port = point.rpartition(":")
    return bool(host) and port.isdigit() and 0 < int(port) < 65536


def _check_redis(url: str | None, *, is_needed: bool) -> None:
    if url is None:
        if is_needed:
            msg = "redis_url is needed, for example redis://127.0.0.1:6379/0"
            raise ValueError(msg)
    elif not url.startswith(("redis://", "rediss://", "unix://")):
        msg = "redis_url must begin with redis://, rediss:// or unix://"
        raise ValueError(msg)
