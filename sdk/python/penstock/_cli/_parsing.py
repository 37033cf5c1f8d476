"""What all commands share: `--json`, `--url`, and a client for the server."""

import argparse
from collections.abc import Callable
from typing import Any

from penstock._cli import _exits
from penstock._cli._printing import Printer
from penstock._client import Client

# argparse names this class privately; it is what `add_subparsers` returns.
Subparsers = Any
Handler = Callable[[argparse.Namespace, Client, Printer], int | None]


def add_group(commands: Subparsers, name: str, summary: str) -> Subparsers:
    """A command that only holds others, like `datasets`."""
    parser = commands.add_parser(name, help=summary, description=summary)
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def add_command(commands: Subparsers, name: str, summary: str, handler: Handler) -> argparse.ArgumentParser:
    """A command that talks to the server."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=_exits.DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--url", metavar="URL", help="address of the server (default: PENSTOCK_URL)")
    parser.set_defaults(handler=lambda parsed: _with_client(parsed, handler))
    return parser


def _with_client(parsed: argparse.Namespace, handler: Handler) -> int | None:
    with Client(parsed.url) as client:
        return handler(parsed, client, Printer(is_json=parsed.json))
