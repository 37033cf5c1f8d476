"""Fails when a lock file does not fit what it locks or names a host, or when there is more than one version number."""

import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK_FILES = (
    "requirements/run.lock",
    "requirements/test.lock",
    "frontend/package-lock.json",
)


def requirement_names(source: Path) -> set[str]:
    names = set()
    for line in source.read_text().splitlines():
        if match := re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)", line.strip()):
            names.add(normalised(match.group(1)))
    return names


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked_names(lock: Path) -> set[str]:
    return {
        normalised(match)
        for match in re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==", lock.read_text(), re.MULTILINE)
    }


def lock_problems() -> list[str]:
    found = []
    for lock in LOCK_FILES:
        for number, line in enumerate((ROOT / lock).read_text().splitlines(), start=1):
            if '"resolved"' in line or "--index-url" in line or "--find-links" in line:
                found.append(f"{lock}:{number} names a host; run `make lock` or `npm install --package-lock-only`")
                break
    for name in ("run", "test"):
        missing = requirement_names(ROOT / f"requirements/{name}.in") - locked_names(ROOT / f"requirements/{name}.lock")
        if missing:
            found.append(f"requirements/{name}.lock lacks {', '.join(sorted(missing))}; run `make lock`")
    return found


def stated_versions() -> dict[str, str]:
    """Every place that states the version of Penstock, with what it says."""
    server = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = {
        "pyproject.toml": server["version"],
        "sdk/pyproject.toml": tomllib.loads((ROOT / "sdk/pyproject.toml").read_text())["project"]["version"],
        "sdk/Cargo.toml": tomllib.loads((ROOT / "sdk/Cargo.toml").read_text())["workspace"]["package"]["version"],
        "sdk/python/penstock/_version.py": _only(r'^__version__ = "(.*)"$', "sdk/python/penstock/_version.py"),
        "frontend/package.json": json.loads((ROOT / "frontend/package.json").read_text())["version"],
        "frontend/package-lock.json": json.loads((ROOT / "frontend/package-lock.json").read_text())["version"],
        "image in docker-compose.yml": _only(r"^ *image: penstock-server:(\S+)$", "docker-compose.yml"),
    }
    extras = server["optional-dependencies"].values()
    for requirement in [*server["dependencies"], *(each for extra in extras for each in extra)]:
        if pin := re.fullmatch(r"(penstock(?:\[.*\])?)(?![\w-])(.*)", requirement):
            stated[f"{pin[1]} in pyproject.toml"] = pin[2].strip().removeprefix("==")
    return stated


def _only(pattern: str, path: str) -> str:
    found = re.findall(pattern, (ROOT / path).read_text(), re.MULTILINE)
    return found[0] if len(found) == 1 else f"{len(found)} versions"


def problems() -> list[str]:
    found = lock_problems()
    versions = stated_versions()
    if len(set(versions.values())) != 1:
        found.append(f"one version number, but {', '.join(f'{place}: {text}' for place, text in versions.items())}")
    return found


if __name__ == "__main__":
    messages = problems()
    for message in messages:
        print(message, file=sys.stderr)
    sys.exit(1 if messages else 0)
