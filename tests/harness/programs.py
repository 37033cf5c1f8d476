"""Finding the programs of the machine that tests need; a missing one is named in one line with its cure."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from harness.errors import HarnessError

_INSTALL = "run scripts/install_test_services.sh"


def find_redis_server() -> Path:
    return _find("redis-server", "Redis is needed by the tests of the queue and the event bus")


def find_postgres_programs() -> Path:
    """The folder with initdb and postgres: Debian keeps it out of PATH, one for each version."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if versions:
        return versions[-1].parent
    return _find("initdb", "PostgreSQL is needed by the tests of the catalog").resolve().parent


def find_chromium() -> Path:
    chosen = os.environ.get("PENSTOCK_CHROMIUM")
    names = [chosen] if chosen else ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"]
    for name in names:
        if path := shutil.which(name):
            return Path(path)
    raise HarnessError(f"{names[0]} was not found; a browser is needed by the tests of the page: {_INSTALL}")


def find_java() -> Path:
    home = os.environ.get("JAVA_HOME")
    in_home = Path(home, "bin", "java") if home else None
    java = in_home if in_home and in_home.exists() else _find("java", "Java 17 is needed to run Cassandra in tests")
    banner = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    major = re.search(r'version "(\d+)', banner)
    if major is None or major[1] != "17":
        raise HarnessError(f"{java} is not Java 17, which Cassandra 5.0 needs in tests: {_INSTALL}, or set JAVA_HOME")
    return java


def find_maven() -> Path:
    return _find("mvn", "Maven is needed to fetch Cassandra for tests")


def find_cargo() -> Path:
    return _find("cargo", "Rust 1.88 or newer is needed to build the relay", cure="install it with rustup")


def find_openssl() -> Path:
    return _find("openssl", "openssl makes the certificates of the TLS tests", cure="install the package openssl")


def _find(name: str, why: str, *, cure: str = _INSTALL) -> Path:
    path = shutil.which(name)
    if path is None:
        raise HarnessError(f"{name} was not found in PATH. {why}: {cure}")
    return Path(path)
