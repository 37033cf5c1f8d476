"""Cassandra's jars, fetched once with Maven into a cache folder that all checkouts share."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.errors import HarnessError
from harness.programs import find_maven

VERSION = "5.0.8"
_POM = Path(__file__).with_name("pom.xml")


def cassandra_jars() -> Path:
    """The folder with the jars; the first call on a machine takes about a minute and says so."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    target = home / f"cassandra-{VERSION}"
    if _is_complete(target):
        return target
    home.mkdir(parents=True, exist_ok=True)
    with (home / f"cassandra-{VERSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_complete(target):
            _fetch(home, target)
    return target


def _fetch(home: Path, target: Path) -> None:
    sys.stderr.write(f"harness: fetching Cassandra {VERSION} with Maven, once on this machine (about a minute)\n")
    draft = Path(tempfile.mkdtemp(prefix="cassandra-draft-", dir=home))
    try:
        argv = [str(find_maven()), "-B", "-q", "-f", str(_POM)]
        argv += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        done = subprocess.run(
            [*argv, f"-DoutputDirectory={draft}"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            raise HarnessError(
                f"Maven could not fetch Cassandra {VERSION}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        (draft / "stamp").write_text(_stamp(draft))
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _is_complete(folder: Path) -> bool:
    stamp = folder / "stamp"
    return stamp.exists() and stamp.read_text() == _stamp(folder)


def _stamp(folder: Path) -> str:
    """What was asked for and what came, so that a changed pom or a damaged cache is fetched again."""
    jars = sorted(f"{jar.name} {jar.stat().st_size}" for jar in folder.glob("*.jar"))
    return hashlib.sha256("\n".join([_POM.read_text(), *jars]).encode()).hexdigest()
