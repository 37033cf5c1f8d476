"""`penstock demo`: the demo dataset, made by a worker's module and ingested through the SDK like anybody's data."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import penstock
from penstock._cli import main
from penstock_server.commands.console import CommandRefused, SettingsRefused, tell
from penstock_server.discovery import read_discovery
from penstock_server.settings import Settings, SettingsInvalid, load_settings

# The server never imports workers: the pictures are made in a process of theirs, which also says what it made.
_MAKE = """
import json, sys
from pathlib import Path
from penstock_server.child import die_with_parent
die_with_parent(int(sys.argv[2]))
from penstock_workers import demo
demo.make_demo(Path(sys.argv[1]))
print(json.dumps({"dataset": demo.DEMO_DATASET, "description": demo.DEMO_DESCRIPTION, "sidecar": demo.DEMO_SIDECAR,
    "label": demo.DEMO_LABEL, "group": demo.DEMO_GROUP, "split": demo.DEMO_SPLIT, "subsets": demo.DEMO_SUBSETS}))
"""


def run(*, is_json: bool) -> int:
    made = make()
    tell(_sentence(made), made, is_json=is_json)
    return 0


def make() -> dict[str, Any]:
    """Makes what is missing of the demo: pictures, version, split; a second call changes nothing."""
    try:
        settings = load_settings()
    except SettingsInvalid as error:
        raise SettingsRefused(error) from None
    folder = _data_folder(settings) / "demo"
    plan = _make_pictures(folder)
    with penstock.Client() as client:
        dataset = client.dataset(plan["dataset"])
        if not _is_there(client, plan["dataset"]):
            client.create_dataset(plan["dataset"], description=plan["description"])
        if dataset.info.latest_version is None:
            columns = {key: plan[key] for key in ("label", "group", "sidecar")}
            dataset.ingest(folder, source="demo", **columns).wait(progress=False)
        if not any(split.name == plan["split"] for split in dataset.splits):
            subsets, group, label = plan["subsets"], plan["group"], plan["label"]
            dataset.split(plan["split"], subsets, group_by=group, stratify_by=label, seed=7)
        info = dataset.info
        return {
            "dataset": plan["dataset"],
            "version": info.latest_version,
            "split": plan["split"],
            "sample_count": info.sample_count,
            "url": f"{client.base_url}/datasets/{plan['dataset']}",
        }


def _is_there(client: penstock.Client, name: str) -> bool:
    return any(info.slug == name for info in client.datasets())


def _data_folder(settings: Settings) -> Path:
    """The running server's own, which is always among the folders that it may ingest from."""
    found = read_discovery(settings.discovery_file)
    return Path(found.data_folder) if found is not None else settings.data_folder


def _make_pictures(folder: Path) -> dict[str, Any]:
    done = subprocess.run(  # noqa: S603 (our own interpreter and code)
        [sys.executable, "-c", _MAKE, str(folder), str(os.getpid())],
        stdout=subprocess.PIPE,
        env=os.environ,
        check=False,
    )
    if done.returncode != 0:
        raise CommandRefused(f"the demo's pictures could not be made in {folder}; the lines above say why")
    plan: dict[str, Any] = json.loads(done.stdout)
    return plan


def _sentence(made: dict[str, Any]) -> str:
    place = f"{made['dataset']}@{made['version']}, split {made['split']}"
    return f"The demo is ready: {made['sample_count']:,} samples in {place}; open {made['url']}"


if __name__ == "__main__":
    sys.exit(main(["demo"]))
