import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock import __version__
from penstock._cli import _main, _parsing, main
from penstock._client import Client

NOW = "2026-11-16T12:00:00Z"
DATASET = {"id": "1", "slug": "demo", "project": "default", "description": "", "schema": {"fields": [], "columns": []},
           "latest_version": 1, "default_split": "s", "sample_count": 3000, "byte_count": 30, "created_at": NOW,
           "updated_at": NOW}  # fmt: skip
JOB = {"id": "job-1", "kind": "ingest", "dataset": "demo", "state": "succeeded", "created_at": NOW,
       "progress": {"done": 3, "total": 3, "phase": "publish", "unit": "samples"},
       "result": {"version": 2, "sample_count": 3, "quarantined_count": 1}, "error": None,
       "quarantined": [{"key": "bad\x1b[2J.png", "reason": "no picture"}]}  # fmt: skip
SPLIT = {"id": "s", "dataset": "demo", "name": "by-patient", "number": 1, "version": 1, "digest": "b3:0", "recipe": {},
         "created_at": NOW,
         "subsets": [{"name": "train", "count": 2, "digest": "b3:1", "asked": 0.7, "achieved": 0.66}]}  # fmt: skip
TOKEN = {"id": "t", "name": "ci", "prefix": "pst_ab", "created_at": NOW}


def page(*items: Any) -> dict[str, Any]:
    return {"items": list(items), "next_cursor": None}


@pytest.fixture(autouse=True)
def served(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def client(url: str | None = None) -> Client:
        return Client(url or "http://127.0.0.1:9", "pst_x", http_transport=httpx.MockTransport(api.handle))

    monkeypatch.setattr(_parsing, "Client", client)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    api.answer("GET", "/datasets", page(DATASET))
    api.answer("GET", "/datasets/demo", DATASET)
    api.answer("POST", "/datasets", DATASET, 201)
    api.answer("POST", "/datasets/demo/ingests", JOB, 202)
    api.answer("GET", "/datasets/demo/splits", page(SPLIT))
    api.answer("POST", "/datasets/demo/splits", SPLIT, 201)
    api.answer("GET", "/datasets/demo/splits/by-patient@1", SPLIT)
    api.answer("GET", "/jobs", page(JOB))
    api.answer("GET", "/jobs/job-1", JOB)
    api.answer("POST", "/jobs/job-1/cancel", JOB, 202)
    api.answer("GET", "/tokens", page(TOKEN))
    api.answer("POST", "/tokens", TOKEN | {"secret": "pst_abcdef"}, 201)
    api.serve("DELETE", "/tokens/t", lambda request: httpx.Response(204))


COMMANDS = [
    (["datasets", "list"], "demo"),
    (["datasets"], "demo"),
    (["datasets", "--url", "http://127.0.0.1:9"], "demo"),
    (["splits"], "by-patient@1"),
    (["jobs"], "job-1"),
    (["jobs", "--state", "failed"], "job-1"),
    (["tokens"], "pst_ab"),
    (["datasets", "show", "demo"], "3,000"),
    (["datasets", "create", "demo", "--description", "d"], "demo"),
    (["ingest", "demo", "/x", "--label", "tumor"], "succeeded"),
    (["ingest", "demo", "/x", "--no-wait"], "succeeded"),
    (["splits", "list", "demo"], "by-patient@1"),
    (["splits", "show", "demo", "by-patient@1"], "asked 70.0%"),
    (["splits", "create", "demo", "by-patient", "train=0.8", "val=.1", "--group-by", "patient"], "by-patient@1"),
    (["jobs", "list"], "job-1"),
    (["jobs", "show", "job-1"], "no picture"),
    (["jobs", "wait", "job-1"], "succeeded"),
    (["jobs", "cancel", "job-1"], "job-1"),
    (["tokens", "list"], "pst_ab"),
    (["tokens", "create", "ci"], "pst_abcdef"),
    (["tokens", "revoke", "t"], "revoked"),
]


@pytest.mark.parametrize(
    ("command", "words"), COMMANDS, ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None
)
def test_every_command_works_for_people_and_programs(
    command: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 0
    assert words in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    captured = capsys.readouterr()
    assert isinstance(json.loads(captured.out), dict)
    assert captured.err == ""


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    main(["jobs", "list"])
    main(["datasets", "list"])
    main(["jobs", "show", "job-1"])
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(401, "auth.unauthenticated", 4), (403, "auth.forbidden", 4), (404, "dataset.not_found", 3),
     (409, "dataset.exists", 4), (422, "request.invalid", 2), (500, "server.internal", 1),
     (503, "catalog.unavailable", 5)],
)  # fmt: skip
def test_exit_codes(status: int, code: str, expected: int, api: Any, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer("GET", "/datasets/demo", {"status": status, "code": code, "detail": "why", "request_id": "r-1"}, status)
    assert main(["datasets", "show", "demo"]) == expected
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("penstock: why [")
    assert main(["datasets", "show", "demo", "--json"]) == expected
    error = json.loads(capsys.readouterr().err)["error"]
    assert error == {"code": code, "detail": "why", "request_id": "r-1", "exit_code": expected}


def test_unreachable_server_is_5(api: Any, capsys: pytest.CaptureFixture[str]) -> None:
    api.is_down = True
    assert main(["datasets", "list"]) == 5
    assert "is it running" in capsys.readouterr().err


def test_failed_job_is_1(api: Any, capsys: pytest.CaptureFixture[str]) -> None:
    failed = JOB | {"state": "failed", "error": {"code": "ingest.folder_empty", "detail": "no pictures in it"}}
    api.answer("POST", "/datasets/demo/ingests", failed, 202)
    assert main(["ingest", "demo", "/x"]) == 1
    assert "no pictures in it" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [["datasets", "show", "Bad Name"], ["datasets", "create", "demo", "--schema", "/nowhere.json"],
     ["splits", "create", "demo", "s", "train"], ["splits", "create", "demo", "s", "train=x"], ["ingest"],
     ["datasets", "fly"], ["jobs", "list", "--state", "odd"]],
)  # fmt: skip
def test_wrong_usage_is_2(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: int | str | None = main(command)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_interrupt_is_130(api: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(request: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    api.serve("GET", "/datasets", interrupted)
    assert main(["datasets", "list"]) == 130


@pytest.mark.parametrize("group", ["datasets", "splits", "jobs", "tokens"])
def test_help_of_a_group_is_its_own(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([group, "--help"])
    assert "without a command: list" in capsys.readouterr().out


def test_help_tells_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["--help"], ["datasets", "list", "--help"], ["jobs", "wait", "--help"]):
        with pytest.raises(SystemExit):
            main(command)
        assert "exit codes:" in capsys.readouterr().out


def test_commands_of_an_absent_server_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("penstock._cli._plugins.entry_points", lambda group: [])
    for name in ("up", "worker", "demo"):
        assert main([name, "--demo"]) == 2
        assert "pip install penstock-server" in capsys.readouterr().err


def test_plugins_add_commands_and_a_broken_one_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Entry:
        value = "somewhere:register"

        def __init__(self, register: Any) -> None:
            self._register = register

        def load(self) -> Any:
            return self._register

    def register(commands: Any) -> None:
        commands.add_parser("up").set_defaults(handler=lambda parsed: 7)

    def broken(commands: Any) -> None:
        raise ImportError("no module named x")

    monkeypatch.setattr("penstock._cli._plugins.entry_points", lambda group: [Entry(broken), Entry(register)])
    assert main(["up"]) == 7
    assert "no module named x" in capsys.readouterr().err


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().err


class TestProcess:
    """The command as a shell runs it."""

    def run(self, *arguments: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
        environ = os.environ | {"PENSTOCK_STATE_FOLDER": str(tmp_path), "HOME": str(tmp_path)}
        code = "import sys; from penstock._cli import main; sys.exit(main())"
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            env=environ,
            timeout=60,
            check=False,
        )

    def test_version(self, tmp_path: Path) -> None:
        assert self.run("--version", tmp_path=tmp_path).stdout == f"penstock {__version__}\n"

    def test_no_server_known_is_2_and_says_what_a_shell_can_do(self, tmp_path: Path) -> None:
        done = self.run("datasets", "list", tmp_path=tmp_path)
        assert done.returncode == 2
        assert done.stderr == (
            "penstock: no Penstock server is known: pass --url URL, set PENSTOCK_URL (and PENSTOCK_TOKEN), "
            "or start one on this machine with `penstock up`\n"
        )
        as_json = self.run("datasets", "list", "--json", tmp_path=tmp_path)
        error = json.loads(as_json.stderr)["error"]
        assert (error["code"], error["exit_code"]) == ("sdk.configerror", 2)
        assert "--url URL" in error["detail"]

    def test_closed_port_is_5(self, tmp_path: Path) -> None:
        done = self.run("datasets", "list", "--url", "http://127.0.0.1:9", "--json", tmp_path=tmp_path)
        assert done.returncode == 5
        assert json.loads(done.stderr)["error"]["code"] == "sdk.unreachable"


def test_own_commands_are_all_registered() -> None:
    assert sorted(_main._OWN) == ["datasets", "ingest", "jobs", "splits", "tokens"]
