"""Parses the command line, runs one command, turns errors into exit codes."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from penstock._cli import _datasets, _exits, _ingest, _jobs, _splits, _tokens
from penstock._cli._parsing import CommandParser
from penstock._cli._plugins import add_server_commands
from penstock._config import ServerUnknown, server_unknown
from penstock._errors import ConfigError, PenstockError
from penstock._version import __version__

_OWN = {
    "datasets": _datasets.register,
    "ingest": _ingest.register,
    "splits": _splits.register,
    "jobs": _jobs.register,
    "tokens": _tokens.register,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; called by the `penstock` script."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser(given)
    parsed, unknown = parser.parse_known_args(given)
    if unknown and not getattr(parsed, "is_absent", False):
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    handler: Callable[[argparse.Namespace], int | None] | None = getattr(parsed, "handler", None)
    if handler is None:
        parser.print_help(sys.stderr)
        return _exits.USAGE
    is_json = bool(getattr(parsed, "json", False))
    try:
        code = handler(parsed)
        sys.stdout.flush()
    except ServerUnknown:
        ways = ["pass --url URL"] if hasattr(parsed, "url") else []
        return _exits.report(ConfigError(server_unknown(*ways)), is_json=is_json)
    except PenstockError as error:
        return _exits.report(error, is_json=is_json)
    except KeyboardInterrupt:
        sys.stderr.write("\npenstock: interrupted\n")
        return _exits.INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has seen enough; the interpreter must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _exits.OK
    return _exits.OK if code is None else code


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock",
        description="Keeps datasets, versions and splits, and streams them into training.",
        epilog=_exits.DESCRIPTION
        + "\nThe server is PENSTOCK_URL with PENSTOCK_TOKEN, or the `penstock up` that you run on this machine.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=CommandParser)
    for register in _OWN.values():
        register(commands)
    # Loading the server's code takes a second, so commands of our own go without.
    if not given or given[0] not in _OWN:
        add_server_commands(commands)
    return parser
