"""The server's commands, added to the `penstock` program by the entry point group `penstock.commands`.

Imports stay inside the functions: `penstock datasets` must not pay for the server.
"""

import argparse
from pathlib import Path


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    up = subparsers.add_parser("up", help="run Penstock on this machine: server, worker and page")
    up.add_argument("--demo", action="store_true", help="also make and ingest the demo dataset")
    up.add_argument("--host", help="address to listen on (default 127.0.0.1, this machine only)")
    up.add_argument("--port", type=int, help="port of the page and the API (default 8080; 0 takes a free one)")
    up.add_argument("--data-folder", type=Path, help="where everything is kept (default ~/.local/share/penstock)")
    up.add_argument("--api-only", action="store_true", help="start no worker; `penstock worker` runs elsewhere")
    up.set_defaults(handler=_up)

    demo = subparsers.add_parser("demo", help="make the demo dataset on the running server")
    demo.add_argument("--json", action="store_true", help="print the result as JSON")
    demo.set_defaults(handler=_demo)

    worker = subparsers.add_parser("worker", help="run a worker only (local or Celery, as the settings say)")
    worker.add_argument("--data-folder", type=Path, help="folder of the embedded catalog and store")
    worker.set_defaults(handler=_worker)

    migrate = subparsers.add_parser("migrate", help="bring the catalog to the shape this version needs")
    migrate.add_argument("--data-folder", type=Path, help="folder of the embedded catalog")
    migrate.set_defaults(handler=_migrate)

    link = subparsers.add_parser("login-link", help="print a new one-time link to the page")
    link.add_argument("--data-folder", type=Path, help="folder of the embedded catalog")
    link.set_defaults(handler=_login_link)


def _up(arguments: argparse.Namespace) -> int:
    from penstock_server.commands.up import run

    return run(
        host=arguments.host,
        port=arguments.port,
        data_folder=arguments.data_folder,
        is_demo=arguments.demo,
        has_worker=not arguments.api_only,
    )


def _demo(arguments: argparse.Namespace) -> int:
    from penstock_server.commands.demo import run

    return run(is_json=arguments.json)


def _worker(arguments: argparse.Namespace) -> int:
    from penstock_server.commands.maintenance import run_worker

    return run_worker(data_folder=arguments.data_folder)


def _migrate(arguments: argparse.Namespace) -> int:
    from penstock_server.commands.maintenance import run_migrate

    return run_migrate(data_folder=arguments.data_folder)


def _login_link(arguments: argparse.Namespace) -> int:
    from penstock_server.commands.maintenance import run_login_link

    return run_login_link(data_folder=arguments.data_folder)
