import json
import os
from pathlib import Path

import pytest

from penstock._config import cache_folder, discover, resolve_config
from penstock._errors import ConfigError


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


def write_discovery(folder: Path, *, mode: int = 0o600, **changes: object) -> Path:
    path = folder / "server.json"
    document = {"url": "http://127.0.0.1:8080", "token": "pst_local", "pid": os.getpid(), "data_folder": "/x"}
    path.write_text(json.dumps(document | changes))
    path.chmod(mode)
    return path


def environ(folder: Path, **more: str) -> dict[str, str]:
    return {"PENSTOCK_STATE_FOLDER": str(folder), **more}


def test_arguments_win_over_environment_and_discovery(state: Path) -> None:
    write_discovery(state)
    variables = environ(state, PENSTOCK_URL="http://127.0.0.1:1", PENSTOCK_TOKEN="pst_env", PENSTOCK_DATASET="demo")
    config = resolve_config("http://127.0.0.1:2/", "pst_arg", dataset="other", environ=variables)
    assert (config.base_url, config.token, config.dataset) == ("http://127.0.0.1:2", "pst_arg", "other")
    config = resolve_config(environ=variables)
    assert (config.base_url, config.token, config.dataset) == ("http://127.0.0.1:1", "pst_env", "demo")


def test_discovery_is_the_last_resort(state: Path) -> None:
    write_discovery(state)
    config = resolve_config(environ=environ(state))
    assert (config.base_url, config.token) == ("http://127.0.0.1:8080", "pst_local")


def test_local_token_is_used_for_its_own_address_only(state: Path) -> None:
    write_discovery(state)
    assert resolve_config("http://127.0.0.1:8080/", environ=environ(state)).token == "pst_local"
    assert resolve_config("http://127.0.0.1:8081", environ=environ(state)).token is None


def test_nothing_known_says_what_to_do(state: Path) -> None:
    with pytest.raises(ConfigError, match=r"PENSTOCK_URL.*penstock up"):
        resolve_config(environ=environ(state))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666])
def test_discovery_open_to_others_is_refused(state: Path, mode: int) -> None:
    write_discovery(state, mode=mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        resolve_config(environ=environ(state))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a file away")
def test_discovery_of_another_user_is_refused(state: Path) -> None:
    os.chown(write_discovery(state), 12345, 12345)
    with pytest.raises(ConfigError, match="another user"):
        discover(environ(state))


def test_discovery_behind_a_link_is_refused(state: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (state / "server.json").symlink_to(write_discovery(elsewhere))
    with pytest.raises(ConfigError, match="cannot be read"):
        discover(environ(state))


def test_discovery_that_is_a_folder_is_refused(state: Path) -> None:
    (state / "server.json").mkdir()
    with pytest.raises(ConfigError, match=r"no regular file|cannot be read"):
        discover(environ(state))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": "http://127.0.0.1:1"}', '{"url":"a","token":"b","pid":"x"}'])
def test_damaged_discovery_is_said(state: Path, text: str) -> None:
    path = write_discovery(state)
    path.write_text(text)
    with pytest.raises(ConfigError, match="damaged"):
        discover(environ(state))


def test_token_of_a_dead_server_is_not_used(state: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    write_discovery(state, pid=pid)
    assert discover(environ(state)) is None


def test_no_server_known_says_what_python_code_can_do(state: Path) -> None:
    with pytest.raises(ConfigError, match=r"pass base_url=\.\.\., set PENSTOCK_URL.*`penstock up`"):
        resolve_config(environ=environ(state))


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8080", "ftp://127.0.0.1", "http://", "http://127.0.0.1:99999", "http://127.0.0.1:x", ""]
)
def test_wrong_address_is_refused(state: Path, url: str) -> None:
    with pytest.raises(ConfigError, match=r"no address|no Penstock server"):
        resolve_config(url, environ=environ(state))


def test_login_link_is_no_address(state: Path) -> None:
    with pytest.raises(ConfigError, match="login link"):
        resolve_config("http://127.0.0.1:8080/login#code=abc", environ=environ(state))
    with pytest.raises(ConfigError, match="PENSTOCK_TOKEN"):
        resolve_config("http://user:secret@127.0.0.1:8080", environ=environ(state))


@pytest.mark.parametrize("token", [" ", "a b", "a\nb", "tökén"])
def test_wrong_token_is_refused_without_showing_it(state: Path, token: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_config("http://127.0.0.1:1", token, environ=environ(state))
    assert "PENSTOCK_TOKEN" in str(caught.value)
    assert "tökén" not in str(caught.value)


def test_cache_folder_follows_the_environment(tmp_path: Path) -> None:
    assert cache_folder({"PENSTOCK_CACHE_FOLDER": str(tmp_path)}) == tmp_path
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "penstock"
    assert cache_folder({}) == Path.home() / ".cache" / "penstock"
