"""`penstock jobs`."""

import argparse

from penstock._cli._parsing import Subparsers, add_command, add_group
from penstock._cli._printing import Printer
from penstock._client import Client
from penstock._models import JobInfo


def register(commands: Subparsers) -> None:
    """Add the commands."""
    group = add_group(commands, "jobs", "list, show, wait for and cancel jobs")
    listing = add_command(group, "list", "list jobs, newest first", _list)
    listing.add_argument("--state", choices=("queued", "running", "succeeded", "failed", "cancelled"))
    listing.add_argument("--dataset")
    show = add_command(group, "show", "show one job", _show)
    show.add_argument("job")
    wait = add_command(group, "wait", "wait until a job is finished; fails when it failed", _wait)
    wait.add_argument("job")
    wait.add_argument("--timeout", type=float, metavar="SECONDS", help="stop waiting (the job goes on)")
    cancel = add_command(group, "cancel", "ask a job to stop", _cancel)
    cancel.add_argument("job")


def _list(parsed: argparse.Namespace, client: Client, printer: Printer) -> None:
    printer.rows(
        (job.info for job in client.jobs(state=parsed.state, dataset=parsed.dataset)),
        ("ID", lambda item: item.id),
        ("KIND", lambda item: item.kind),
        ("DATASET", lambda item: item.dataset),
        ("STATE", lambda item: item.state),
        ("PROGRESS", _progress),
        ("CREATED", lambda item: item.created_at),
    )


def _show(parsed: argparse.Namespace, client: Client, printer: Printer) -> None:
    print_job(client.job(parsed.job).info, printer)


def _wait(parsed: argparse.Namespace, client: Client, printer: Printer) -> None:
    print_job(client.job(parsed.job).wait(parsed.timeout).info, printer)


def _cancel(parsed: argparse.Namespace, client: Client, printer: Printer) -> None:
    print_job(client.job(parsed.job).cancel().info, printer)


def print_job(info: JobInfo, printer: Printer) -> None:
    """Show a job with its result or error and the files it left out."""
    printer.record(
        info,
        ("id", info.id),
        ("kind", info.kind),
        ("dataset", info.dataset),
        ("state", info.state),
        ("progress", _progress(info)),
        *((name.replace("_", " "), value) for name, value in (info.result or {}).items()),
        *((("error", f"{info.error.detail} [{info.error.code}]"),) if info.error else ()),
        ("created", info.created_at),
        ("ended", info.ended_at),
    )
    for item in info.quarantined:
        printer.note(f"left out: {item.key}: {item.reason}")


def _progress(info: JobInfo) -> str | None:
    progress = info.progress
    if progress is None or progress.total is None:
        return None
    return f"{progress.done:,}/{progress.total:,} {progress.unit}"
