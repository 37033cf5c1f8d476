"""The server's commands, added to the `penstock` program by the entry point group `penstock.commands`.

Imports stay inside the functions: `penstock datasets` must not pay for the server.
"""

import argparse
from collections.abc import Callable
from pathlib import Path


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    up = _add(subparsers, "up", _up, "run Penstock on this machine: server, worker and page")
    up.add_argument("--demo", action="store_true", help="also make and ingest the demo dataset")
    up.add_argument("--host", help="address to listen on (default 127.0.0.1, this machine only)")
    up.add_argument("--port", type=int, help="port of the page and the API (default 8080; 0 takes a free one)")
    up.add_argument("--data-folder", type=Path, help="where everything is kept (default ~/.local/share/penstock)")
    up.add_argument("--api-only", action="store_true", help="start no worker; `penstock worker` runs elsewhere")

    _add(subparsers, "demo", _demo, "make the demo dataset on the running server")

    worker = _add(subparsers, "worker", _worker, "run a worker only (local or Celery, as the settings say)")
    worker.add_argument("--data-folder", type=Path, help="folder of the embedded catalog and store")

    migrate = _add(subparsers, "migrate", _migrate, "bring the catalog to the shape this version needs")
    migrate.add_argument("--data-folder", type=Path, help="folder of the embedded catalog")

    link = _add(subparsers, "login-link", _login_link, "print a new one-time link to the page")
    link.add_argument("--data-folder", type=Path, help="folder of the embedded catalog")


def _add(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    handler: Callable[[argparse.Namespace], int],
    summary: str,
) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(name, help=summary, description=summary)
    parser.add_argument("--json", action="store_true", help="print JSON, also when it is refused")
    parser.set_defaults(handler=handler)
    return parser


def _up(arguments: argparse.Namespace) -> int:
    from penstock_server.commands.up import run

    return run(
        host=arguments.host,
        port=arguments.port,
        data_folder=arguments.data_folder,
        is_demo=arguments.demo,
        has_worker=not arguments.api_only,
        is_json=arguments.json,
    )


def _demo(arguments: argparse.Namespace) -> int:
    from penstock_server.commands.demo import run

    return run(is_json=arguments.json)


def _worker(arguments: argparse.Namespace) -> int:
    from penstock_server.commands.maintenance import run_worker

    return run_worker(data_folder=arguments.data_folder, is_json=arguments.json)


def _migrate(arguments: argparse.Namespace) -> int:
    from penstock_server.commands.maintenance import run_migrate

    return run_migrate(data_folder=arguments.data_folder, is_json=arguments.json)


def _login_link(arguments: argparse.Namespace) -> int:
    from penstock_server.commands.maintenance import run_login_link

    return run_login_link(data_folder=arguments.data_folder, is_json=arguments.json)
