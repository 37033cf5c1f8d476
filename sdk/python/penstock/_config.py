"""Where the server is and who we are: arguments, then the environment, then a local `penstock up`."""

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from penstock._errors import ConfigError

URL_VARIABLE = "PENSTOCK_URL"
TOKEN_VARIABLE = "PENSTOCK_TOKEN"  # noqa: S105 (the name of a variable)
DATASET_VARIABLE = "PENSTOCK_DATASET"
STATE_VARIABLE = "PENSTOCK_STATE_FOLDER"
CACHE_VARIABLE = "PENSTOCK_CACHE_FOLDER"
DISCOVERY_FILE = "server.json"

_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


class ServerUnknown(ConfigError):
    """Nobody has said where the server is: the command line then advises in its own words."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Settings of one client; the token is kept out of its text form."""

    base_url: str
    token: str | None = field(default=None, repr=False)
    dataset: str | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this machine."""
        host = urlsplit(self.base_url).hostname or ""
        return host in _LOOPBACK_HOSTS or host.startswith("127.")


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a running local server has written down for its user."""

    url: str
    token: str = field(repr=False)


def resolve_config(
    base_url: str | None = None,
    token: str | None = None,
    *,
    dataset: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ClientConfig:
    """Settings from arguments, else the environment, else the local server's discovery file."""
    url = base_url or environ.get(URL_VARIABLE)
    token = token or environ.get(TOKEN_VARIABLE)
    dataset = dataset or environ.get(DATASET_VARIABLE) or None
    if url is not None:
        url = _checked_url(url)
        # The local server's token belongs to its address and is sent to no other.
        if token is None and (found := _quietly_discovered(environ)) and _checked_url(found.url) == url:
            token = found.token
        return ClientConfig(url, _checked_token(token), dataset)
    found = discover(environ)
    if found is None:
        raise ServerUnknown(server_unknown("pass base_url=..."))
    return ClientConfig(_checked_url(found.url), _checked_token(token or found.token), dataset)


def server_unknown(*ways: str) -> str:
    """What to do when no server is known; `ways` are those that only the caller has."""
    known = [*ways, f"set {URL_VARIABLE} (and {TOKEN_VARIABLE})"]
    return f"no Penstock server is known: {', '.join(known)}, or start one on this machine with `penstock up`"


def discover(environ: Mapping[str, str] = os.environ) -> Discovery | None:
    """The local server of this user, or None when none has said that it runs.

    Raises ConfigError for a file that another user could have written or read: on a shared machine it could lead to
    somebody else's server.
    """
    path = state_folder(environ) / DISCOVERY_FILE
    try:
        text = _read_private(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    try:
        document = json.loads(text)
        found = Discovery(str(document["url"]), str(document["token"]))
        pid = int(document["pid"])
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path} is damaged: stop the local server, delete the file, run `penstock up`") from None
    return found if _is_own_process(pid) else None


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Folder of the discovery file."""
    given = environ.get(STATE_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".local" / "state" / "penstock"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Folder of everything that can be downloaded again."""
    if given := environ.get(CACHE_VARIABLE):
        return Path(given).expanduser()
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penstock"


def _quietly_discovered(environ: Mapping[str, str]) -> Discovery | None:
    try:
        return discover(environ)
    except ConfigError:
        return None


def _read_private(path: Path) -> str:
    # Opened first and judged by its handle, so that the file judged is the file read.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is no regular file: delete it and run `penstock up` again")
        if status.st_uid != os.getuid():
            raise ConfigError(f"{path} belongs to another user and is not trusted: delete it or set {STATE_VARIABLE}")
        if status.st_mode & 0o077:
            raise ConfigError(
                f"{path} can be read or written by other users and is not trusted: "
                f"run `chmod 600 {path}`, then restart `penstock up`, which makes a new token"
            )
        return file.read(1 << 20)


def _is_own_process(pid: int) -> bool:
    # After a crash of the server its port may be taken by anybody: a dead server's token is not sent.
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError, OverflowError):
        return False
    return True


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url.strip())
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        port_is_valid = False
    if not port_is_valid or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{url!r} is no address of a server: expected something like http://127.0.0.1:8080")
    if parts.username or parts.password:
        raise ConfigError(f"the server's address must not hold a user or password: give the token by {TOKEN_VARIABLE}")
    if parts.query or parts.fragment:
        raise ConfigError(
            "the server's address has a '?' or '#' part (a login link?): give the part before it, "
            f"and a token by {TOKEN_VARIABLE}"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _checked_token(token: str | None) -> str | None:
    if token is None:
        return None
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"the token is empty or has characters that no token has: check {TOKEN_VARIABLE}")
    return token
