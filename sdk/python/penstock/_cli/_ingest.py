"""`penstock ingest`."""

import argparse

from penstock._cli._jobs import print_job
from penstock._cli._parsing import Subparsers, add_command
from penstock._cli._printing import Printer
from penstock._client import Client


def register(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(commands, "ingest", "add a folder to a dataset as a new version", _ingest)
    parser.add_argument("dataset", help="created when it does not exist")
    parser.add_argument("folder", help="folder on the server's machine")
    parser.add_argument("--label", metavar="COLUMN", help="column that is the label")
    parser.add_argument("--group", metavar="COLUMN", help="column that names the patient, slide, ...")
    parser.add_argument("--sidecar", metavar="FILE", help="CSV or Parquet table inside the folder")
    parser.add_argument("--source", metavar="NAME", help="stable name of this source (default: the folder's name)")
    parser.add_argument("--no-wait", action="store_true", help="return as soon as the job is queued")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="stop waiting (the job goes on)")


def _ingest(parsed: argparse.Namespace, client: Client, printer: Printer) -> None:
    job = client.dataset(parsed.dataset).ingest(
        parsed.folder, label=parsed.label, group=parsed.group, sidecar=parsed.sidecar, source=parsed.source
    )
    if not parsed.no_wait:
        job.wait(parsed.timeout)
    print_job(job.info, printer)
