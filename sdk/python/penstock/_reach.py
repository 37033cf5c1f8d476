"""Whether the bytes of a plan can be read from this machine, and by which settings."""

import hashlib
import platform
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock._errors import ConfigError
from penstock._models import LoaderPlan

# Written by an embedded server into the folder of its store (or the one above the project's).
STORE_ID_FILE = "store-id"


def reachable_config(plan: LoaderPlan, *, lanes: int | None = None) -> Mapping[str, Any]:
    """The store's settings for the native core; raises ConfigError when it cannot be reached from here.

    `lanes` fixes the number of connections a node, where there are nodes.
    """
    store = plan.store
    if store.reach == "direct" and store.config is not None:
        has_nodes = store.config.get("kind") == "cql"
        return {**store.config, "lanes": lanes} if has_nodes and lanes is not None else store.config
    if store.reach == "local_only" and store.config is not None:
        folder = Path(str(store.config.get("path", "")))
        if store.host is not None and _machine_id(folder) == store.host:
            return store.config
        raise ConfigError(
            f"the store of {plan.dataset.slug!r} cannot be reached: this embedded store can be read on the server's "
            f"own machine only, not yet from {socket.gethostname()!r}. Run the training there, or move the server to "
            "Cassandra or ScyllaDB (docker-compose.yml), which loaders on other machines read directly"
        )
    if store.reach == "http":
        raise ConfigError(
            f"the server offers {plan.dataset.slug!r} through its HTTP data plane only, which this release of the SDK "
            f"cannot read yet{': ' + store.reason if store.reason else ''}; use a token that may read the whole project"
        )
    raise ConfigError(f"the server names a store of reach {store.reach!r}, unknown to this SDK: update penstock")


def _machine_id(folder: Path) -> str | None:
    for place in (folder, folder.parent):
        try:
            store_id = (place / STORE_ID_FILE).read_text().strip()
        except OSError:
            continue
        return hashlib.sha256(f"{_machine()}:{store_id}".encode()).hexdigest()
    return None


def _machine() -> str:
    for name in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text:
            return text
    return platform.node()
