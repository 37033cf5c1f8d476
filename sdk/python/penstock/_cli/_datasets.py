"""`penstock datasets`."""

import argparse
import json
from pathlib import Path

from penstock._cli._parsing import Subparsers, add_command, add_group
from penstock._cli._printing import Printer
from penstock._client import Client
from penstock._errors import ConfigError
from penstock._models import DatasetInfo


def register(commands: Subparsers) -> None:
    """Add the commands."""
    group = add_group(commands, "datasets", "list, show and create datasets")
    listing = add_command(group, "list", "list datasets", _list)
    listing.add_argument("query", nargs="?", help="only those with this in their name or description")
    show = add_command(group, "show", "show one dataset and its versions", _show)
    show.add_argument("dataset")
    create = add_command(group, "create", "create an empty dataset", _create)
    create.add_argument("dataset")
    create.add_argument("--description")
    create.add_argument("--project")
    create.add_argument("--schema", metavar="FILE", help="JSON file with fields and columns")


def _list(parsed: argparse.Namespace, client: Client, printer: Printer) -> None:
    printer.rows(
        client.datasets(parsed.query),
        ("NAME", lambda item: item.slug),
        ("VERSION", lambda item: item.latest_version),
        ("SAMPLES", lambda item: item.sample_count),
        ("BYTES", lambda item: item.byte_count),
        ("DEFAULT SPLIT", lambda item: item.default_split),
        ("UPDATED", lambda item: item.updated_at),
    )


def _show(parsed: argparse.Namespace, client: Client, printer: Printer) -> None:
    _print_one(client.dataset(parsed.dataset).info, printer)


def _create(parsed: argparse.Namespace, client: Client, printer: Printer) -> None:
    schema = None
    if parsed.schema is not None:
        try:
            schema = json.loads(Path(parsed.schema).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"--schema {parsed.schema}: {error}") from None
    dataset = client.create_dataset(
        parsed.dataset, description=parsed.description, project=parsed.project, schema=schema
    )
    _print_one(dataset.info, printer)


def _print_one(info: DatasetInfo, printer: Printer) -> None:
    schema = info.schema
    fields = ", ".join(f"{field.name} ({field.kind})" for field in schema.fields) if schema else None
    columns = (
        ", ".join(f"{column.name} ({column.role or column.kind})" for column in schema.columns) if schema else None
    )
    printer.record(
        info,
        ("name", info.slug),
        ("id", info.id),
        ("project", info.project),
        ("description", info.description or None),
        ("latest version", info.latest_version),
        ("samples", info.sample_count),
        ("bytes", info.byte_count),
        ("default split", info.default_split),
        ("fields", fields or None),
        ("columns", columns or None),
        ("created", info.created_at),
        ("updated", info.updated_at),
    )
