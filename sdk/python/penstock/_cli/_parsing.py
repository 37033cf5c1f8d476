"""What all commands share: `--json`, `--url`, and a client for the server."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from penstock._cli import _exits
from penstock._cli._printing import Printer
from penstock._client import Client

# argparse names this class privately; it is what `add_subparsers` returns.
Subparsers = Any
Handler = Callable[[argparse.Namespace, Client, Printer], int | None]


class CommandParser(argparse.ArgumentParser):
    """A parser that may take one of its commands for granted when none is named."""

    default_command: str | None = None
    known_commands: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does it, with the default command put in front of options that name none."""
        if self.default_command is None or args is None:
            return super().parse_known_args(args, namespace)
        given = list(args)
        is_named = any(word in self.known_commands or word in {"-h", "--help"} for word in given)
        if not is_named and (not given or given[0].startswith("-")):
            given.insert(0, self.default_command)
        return super().parse_known_args(given, namespace)


def add_group(commands: Subparsers, name: str, summary: str) -> Subparsers:
    """A command that only holds others, like `datasets`, and lists when none of them is named."""
    parser = commands.add_parser(name, help=summary, description=f"{summary} (without a command: list)")
    group = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    parser.default_command, parser.known_commands = "list", group.choices.keys()
    return group


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
