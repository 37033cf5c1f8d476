"""The compose file and the Dockerfiles, judged by their structure: no engine runs where the tests do."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.run import ROOT
from penstock_server.settings import load_settings

COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCUMENTED = {
    line.split("=")[0] for line in (ROOT / ".env.example").read_text().splitlines() if re.match(r"[A-Z_]+=", line)
}
STORE_PUBLIC_ADDRESS = "${STORE_PUBLIC_ADDRESS:?set it in .env}"
USED = set(re.findall(r"\$\{([A-Z_]+)", COMPOSE_TEXT))


def test_every_part_of_production_is_there() -> None:
    assert {"postgres", "redis", "scylla", "migrate", "api", "worker"} == set(SERVICES)


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"migrate"}))
def test_every_long_running_service_has_a_health_check_and_restarts(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]
    assert SERVICES[name]["restart"] == "unless-stopped"


def test_variables_are_documented_required_and_without_defaults() -> None:
    assert USED == DOCUMENTED
    assert set(re.findall(r"\$\{([A-Z_]+):\?", COMPOSE_TEXT)) == USED
    values = [line for line in (ROOT / ".env.example").read_text().splitlines() if re.match(r"[A-Z_]+=.", line)]
    assert values == []


def test_named_volumes_are_declared_and_used() -> None:
    used = {
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if not volume.startswith(("$", "/", "."))
    }
    assert used == set(COMPOSE["volumes"])


def test_workers_can_be_scaled() -> None:
    assert "container_name" not in SERVICES["worker"]
    assert "ports" not in SERVICES["worker"]


def test_nothing_listens_beyond_loopback_but_the_store_where_the_operator_says() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"api": ["127.0.0.1:8080:8080"], "scylla": [f"{STORE_PUBLIC_ADDRESS}:9042:9042"]}


def test_loaders_are_told_the_address_that_the_store_is_published_on_and_announces() -> None:
    assert f"--broadcast-rpc-address={STORE_PUBLIC_ADDRESS}" in SERVICES["scylla"]["command"]
    for name in ("migrate", "api", "worker"):
        points = SERVICES[name]["environment"]["PENSTOCK_STORE__PUBLIC_CONTACT_POINTS"]
        assert json.loads(points) == [f"{STORE_PUBLIC_ADDRESS}:9042"]


def test_store_wants_passwords_and_nothing_starts_before_its_first_account_is_closed() -> None:
    assert "--authenticator=PasswordAuthenticator" in SERVICES["scylla"]["command"]
    assert "--authorizer=CassandraAuthorizer" in SERVICES["scylla"]["command"]
    assert SERVICES["migrate"]["command"] == ["penstock", "migrate"]
    for name in ("api", "worker"):
        assert SERVICES[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


@pytest.mark.parametrize("name", ["migrate", "api", "worker"])
def test_settings_of_the_server_in_the_compose_file_are_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    example = {"STORE_REPLICATION_FACTOR": "1", "STORE_PUBLIC_ADDRESS": "192.0.2.7", "ALLOW_REMOTE_HTTP": "false"}
    example |= {"PUBLIC_URL": "https://penstock.test"}
    for variable, text in SERVICES[name]["environment"].items():
        filled = re.sub(r"\$\{([A-Z_]+):\?[^}]*\}", lambda match: example.get(match[1], "filled"), text)
        monkeypatch.setenv(variable, filled)

    settings = load_settings()

    assert settings.store.public_contact_points == ["192.0.2.7:9042"]
    assert settings.store.contact_points == ["scylla:9042"]


@pytest.mark.parametrize("dockerfile", sorted((ROOT / "docker").glob("*.Dockerfile")), ids=lambda path: path.name)
def test_images_are_multi_stage_and_run_as_nobody_special(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    assert len(re.findall(r"^FROM ", text, re.MULTILINE)) > 1
    last_stage = text[text.rindex("\nFROM ") :]
    assert re.search(r"^USER (?!root|0)", last_stage, re.MULTILINE)
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for name in source.split():
            assert (ROOT / name).exists(), f"{dockerfile.name} copies {name}, which is not there"


@pytest.mark.skipif(
    shutil.which("docker") is None
    or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0,
    reason="docker compose is not here",
)
def test_compose_itself_accepts_the_file() -> None:
    environment = {name: "1" for name in DOCUMENTED} | {
        "DATASETS_FOLDER": "/srv",
        "STORE_PUBLIC_ADDRESS": "192.0.2.7",
        "PATH": "/usr/bin:/bin:/usr/local/bin",
    }
    ended = subprocess.run(
        ["docker", "compose", "-f", ROOT / "docker-compose.yml", "config", "-q"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
