"""`penstock tokens`."""

import argparse

from penstock._cli._parsing import Subparsers, add_command, add_group
from penstock._cli._printing import Printer, plain
from penstock._client import Client


def register(commands: Subparsers) -> None:
    """Add the commands."""
    group = add_group(commands, "tokens", "list, create and revoke your access tokens")
    add_command(group, "list", "list your tokens (never their secrets)", _list)
    create = add_command(group, "create", "create a token and print its secret, once", _create)
    create.add_argument("name", help="what it is for")
    create.add_argument("--expires-in-days", type=int, metavar="N")
    revoke = add_command(group, "revoke", "make a token useless", _revoke)
    revoke.add_argument("token", help="its id")


def _list(parsed: argparse.Namespace, client: Client, printer: Printer) -> None:
    del parsed
    printer.rows(
        client.tokens(),
        ("ID", lambda item: item.id),
        ("NAME", lambda item: item.name),
        ("BEGINS WITH", lambda item: item.prefix),
        ("CREATED", lambda item: item.created_at),
        ("LAST USED", lambda item: item.last_used_at),
        ("EXPIRES", lambda item: item.expires_at),
    )


def _create(parsed: argparse.Namespace, client: Client, printer: Printer) -> None:
    token = client.create_token(parsed.name, expires_in_days=parsed.expires_in_days)
    printer.record(
        {**plain(token.info), "secret": token.secret},
        ("id", token.info.id),
        ("name", token.info.name),
        ("secret", token.secret),
    )
    printer.note("Keep the secret now: it is not shown again. Set it as PENSTOCK_TOKEN.")


def _revoke(parsed: argparse.Namespace, client: Client, printer: Printer) -> None:
    client.revoke_token(parsed.token)
    printer.record({"id": parsed.token, "is_revoked": True}, ("revoked", parsed.token))
