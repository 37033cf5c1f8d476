"""`penstock splits`."""

import argparse

from penstock._cli._parsing import Subparsers, add_command, add_group
from penstock._cli._printing import Printer
from penstock._client import Client
from penstock._models import Split


def register(commands: Subparsers) -> None:
    """Add the commands."""
    group = add_group(commands, "splits", "list, show and create splits")
    listing = add_command(group, "list", "list the splits of a dataset, or of all", _list)
    listing.add_argument("dataset", nargs="?", help="only those of this dataset")
    show = add_command(group, "show", "show one split and its subsets", _show)
    show.add_argument("dataset")
    show.add_argument("split", help="name[@number]")
    create = add_command(group, "create", "divide a version into subsets", _create)
    create.add_argument("dataset")
    create.add_argument("name")
    create.add_argument("subsets", nargs="+", type=_subset, metavar="SUBSET=SHARE", help="train=0.8, or train=5000")
    create.add_argument("--version", type=int, metavar="N", help="version to divide (default: the latest)")
    create.add_argument("--group-by", metavar="COLUMN", help="its values are never on two sides")
    create.add_argument("--stratify-by", metavar="COLUMN", action="append", default=[], help="may be given repeatedly")
    create.add_argument("--filter", metavar="EXPRESSION", help="take only samples that it is true for")
    create.add_argument("--seed", type=int, default=0)


def _list(parsed: argparse.Namespace, client: Client, printer: Printer) -> None:
    names = [parsed.dataset] if parsed.dataset else [info.slug for info in client.datasets()]
    printer.rows(
        [split for name in names for split in client.dataset(name).splits],
        ("DATASET", lambda item: item.dataset),
        ("SPLIT", lambda item: f"{item.name}@{item.number}"),
        ("VERSION", lambda item: item.version),
        ("SUBSETS", lambda item: ", ".join(f"{subset.name} {subset.count:,}" for subset in item.subsets)),
        ("DEFAULT", lambda item: "yes" if item.is_default else ""),
        ("CREATED", lambda item: item.created_at),
    )


def _show(parsed: argparse.Namespace, client: Client, printer: Printer) -> None:
    _print_one(client.dataset(parsed.dataset).find_split(parsed.split), printer)


def _create(parsed: argparse.Namespace, client: Client, printer: Printer) -> None:
    split = client.dataset(parsed.dataset).split(
        parsed.name,
        dict(parsed.subsets),
        group_by=parsed.group_by,
        stratify_by=parsed.stratify_by,
        filter=parsed.filter,
        seed=parsed.seed,
        version=parsed.version,
    )
    _print_one(split, printer)


def _subset(text: str) -> tuple[str, float]:
    name, equals, share = text.partition("=")
    try:
        value = int(share) if share.isdigit() else float(share)
    except ValueError:
        equals = ""
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: expected SUBSET=SHARE, like train=0.8")
    return name, value


def _print_one(split: Split, printer: Printer) -> None:
    printer.record(
        split,
        ("split", f"{split.name}@{split.number}"),
        ("dataset", f"{split.dataset}@{split.version}"),
        ("digest", split.digest),
        ("default", "yes" if split.is_default else "no"),
        ("unused", split.unused),
        ("created", split.created_at),
    )
    for subset in split.subsets:
        groups = "" if subset.groups is None else f", {subset.groups:,} groups"
        asked = "" if subset.asked is None or subset.achieved is None else (
            f", asked {subset.asked:.1%}, got {subset.achieved:.1%}"
        )  # fmt: skip
        printer.note(f"  {subset.name}: {subset.count:,} samples{groups}{asked}")
