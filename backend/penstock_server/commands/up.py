"""`penstock up`: everything on this machine, from one command, until Ctrl-C."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock_server.commands.console import CommandRefused, with_settings
from penstock_server.commands.data_folder import owned, prepare_state_folder
from penstock_server.settings import Settings

_BACKLOG = 512


def run(
    *, host: str | None, port: int | None, data_folder: Path | None, is_demo: bool, has_worker: bool, is_json: bool
) -> int:
    return with_settings(
        lambda settings: up(settings, is_demo=is_demo, has_worker=has_worker, is_json=is_json),
        data_folder=data_folder,
        host=host,
        port=port,
    )


def up(settings: Settings, *, is_demo: bool, has_worker: bool, is_json: bool) -> int:
    prepare_state_folder(settings.state_folder)
    with owned(settings.data_folder), bound(settings) as listener:
        # Imported here: the rest of the server takes a second to load, and a refused start should be quick.
        from penstock_server.commands.start import serve

        port = listener.getsockname()[1]
        settings = settings.model_copy(update={"server": settings.server.model_copy(update={"port": port})})
        serve(settings, listener, is_demo=is_demo, has_worker=has_worker, is_json=is_json)
    if not is_json:
        print("Penstock has stopped.", flush=True)
    return 0


@contextmanager
def bound(settings: Settings) -> Iterator[socket.socket]:
    """The listening socket: bound first of all, so that a taken port costs no work."""
    host, port = settings.server.host, settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise CommandRefused(_port_problem(error, host, port)) from None
    try:
        yield listener
    finally:
        listener.close()


def _port_problem(error: OSError, host: str, port: int) -> str:
    choose = "choose another with --port or PENSTOCK_SERVER__PORT"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use by another program: stop that program, or {choose}"
    if error.errno == errno.EACCES:
        return f"port {port} needs special rights: {choose} (1024 or more)"
    return f"{host} port {port} cannot be opened ({error.strerror or error}): check PENSTOCK_SERVER__HOST, or {choose}"
