"""Commands that the server's distribution adds."""

import argparse
import sys
from collections.abc import Callable
from importlib.metadata import entry_points

from penstock._cli import _exits
from penstock._cli._parsing import Subparsers

GROUP = "penstock.commands"

_SERVER_COMMANDS = {
    "up": "run a whole Penstock on this machine",
    "worker": "run a worker only",
    "migrate": "bring the catalog to this release",
    "login-link": "print a new one-time link to the page",
    "demo": "make the demo dataset",
}


def add_server_commands(commands: Subparsers) -> None:
    """Register all commands of other distributions; those of an absent server say what to install."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()(commands)
        except Exception as error:
            # One broken plug-in must not take the other commands with it.
            sys.stderr.write(f"penstock: the commands of {entry.value} cannot be loaded: {error}\n")
    for name, summary in _SERVER_COMMANDS.items():
        if name not in commands.choices:
            parser = commands.add_parser(name, help=f"{summary} (needs penstock-server)", add_help=False)
            # Its options are not known here, and are no mistake of the user's.
            parser.set_defaults(handler=_absent(name), is_absent=True)


def _absent(name: str) -> Callable[[argparse.Namespace], int]:
    def handler(parsed: argparse.Namespace) -> int:
        del parsed
        sys.stderr.write(
            f"penstock: `penstock {name}` is part of the server, which is not installed here: "
            "run `pip install penstock-server` (or `make run` in a clone)\n"
        )
        return _exits.USAGE

    return handler
