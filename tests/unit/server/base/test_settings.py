"""Settings: defaults for the embedded way, all problems at once, no secrets in their text."""

import os
from pathlib import Path

import pytest

from penstock_server.settings import SettingsInvalid, load_settings


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)


def test_defaults_put_everything_into_the_data_folder(tmp_path: Path) -> None:
    settings = load_settings(data_folder=tmp_path)

    assert settings.catalog.url == f"sqlite:///{tmp_path / 'catalog.sqlite3'}"
    assert settings.store.path == tmp_path / "store"
    assert settings.ingest.allowed_roots == [tmp_path, Path.home()]
    assert settings.server.url == "http://127.0.0.1:8080"


def test_two_settings_do_not_share_their_folders(tmp_path: Path) -> None:
    load_settings(data_folder=tmp_path / "one")

    assert load_settings(data_folder=tmp_path / "two").store.path == tmp_path / "two" / "store"


def test_every_problem_is_listed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {
        "PENSTOCK_SERVER__PORT": "eighty",
        "PENSTOCK_STORE__KIND": "cql",
        "PENSTOCK_QUEUE__KIND": "celery",
        "PENSTOCK_CATALOG__URL": "mysql://x/y",
        "PENSTOCK_INGEST__ALLOWED_ROOTS": "relative/folder",
        "PENSTOCK_LOG__COLOUR": "red",
        "PENSTOCK_SEVRER__PORT": "80",
    }
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(SettingsInvalid) as caught:
        load_settings()

    text = "\n".join(caught.value.problems)
    for expected in (
        "PENSTOCK_SERVER__PORT",
        "contact_points",
        "redis_url is needed",
        "PENSTOCK_CATALOG__URL",
        "must be absolute",
        "PENSTOCK_LOG__COLOUR: there is no such setting",
        "PENSTOCK_SEVRER__PORT: there is no such group",
    ):
        assert expected in text
    assert len(caught.value.problems) == len(wrong)


@pytest.mark.parametrize("text", ['["127.0.0.1:9042", "127.0.0.2:9042"]', "127.0.0.1:9042, 127.0.0.2:9042"])
def test_lists_are_read_as_json_or_with_commas(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PENSTOCK_STORE__KIND", "cql")
    monkeypatch.setenv("PENSTOCK_STORE__CONTACT_POINTS", text)

    assert load_settings().store.contact_points == ["127.0.0.1:9042", "127.0.0.2:9042"]


def test_plain_http_on_the_network_needs_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SERVER__HOST", "0.0.0.0")
    with pytest.raises(SettingsInvalid, match="ALLOW_REMOTE_HTTP"):
        load_settings()

    monkeypatch.setenv("PENSTOCK_SERVER__ALLOW_REMOTE_HTTP", "true")
    assert load_settings().server.url == "http://127.0.0.1:8080"

    monkeypatch.delenv("PENSTOCK_SERVER__ALLOW_REMOTE_HTTP")
    monkeypatch.setenv("PENSTOCK_SERVER__PUBLIC_URL", "https://penstock.test/")
    assert load_settings().server.url == "https://penstock.test"


def test_passwords_are_not_in_the_text_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CATALOG__URL", "postgresql://user:hunter2@127.0.0.1/x")
    monkeypatch.setenv("PENSTOCK_STORE__USERNAME", "writer")
    monkeypatch.setenv("PENSTOCK_STORE__PASSWORD", "hunter2")
    monkeypatch.setenv("PENSTOCK_QUEUE__REDIS_URL", "redis://:hunter2@127.0.0.1:6379/0")

    settings = load_settings()

    assert settings.catalog.url.startswith("postgresql+psycopg://user:hunter2@")
    assert "hunter2" not in repr(settings)


def test_arguments_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SERVER__PORT", "9000")
    monkeypatch.setenv("PENSTOCK_SERVER__MAX_BODY_BYTES", "2048")

    server = load_settings(server={"port": 9001}).server

    assert (server.port, server.max_body_bytes) == (9001, 2048)


def test_the_data_folder_is_always_an_allowed_root(tmp_path: Path) -> None:
    settings = load_settings(data_folder=tmp_path, ingest={"allowed_roots": ["/datasets"]})

    assert settings.ingest.allowed_roots == [tmp_path, Path("/datasets")]
