"""The page: strict content policy with a fresh nonce, immutable assets, nothing outside its folder."""

import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from penstock_server.settings import Settings

from .conftest import LiveServer

Starter = Callable[..., LiveServer]


@pytest.fixture(scope="module")
def page(start_server: Starter, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> LiveServer:
    tmp_path = tmp_path_factory.mktemp("page")
    folder = tmp_path / "dist"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text('<meta name="csp-nonce" content="__CSP_NONCE__"><p>penstock</p>')
    (folder / "assets" / "index-abc.js").write_text("//" + "x" * 5000)
    (folder / "favicon.svg").write_text("<svg/>")
    (tmp_path / "secret.js").write_text("secret")
    (folder / "assets" / "escape.js").symlink_to(tmp_path / "secret.js")
    server = settings.server.model_copy(update={"page_folder": folder})
    return start_server(settings.model_copy(update={"server": server}))


@pytest.mark.parametrize("path", ["/", "/login", "/datasets/demo", "/live/01a1e47e", "/apiary"])
def test_every_place_of_the_page_gets_index_with_a_nonce(page: LiveServer, path: str) -> None:
    answers = [httpx.get(page.url + path) for _ in range(2)]

    nonces = []
    for answer in answers:
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        policy = answer.headers["content-security-policy"]
        nonce = re.search(r'content="([A-Za-z0-9_-]{24})"', answer.text)
        assert nonce is not None
        assert f"style-src 'self' 'nonce-{nonce.group(1)}'" in policy
        nonces.append(nonce.group(1))
    assert nonces[0] != nonces[1]


def test_the_policy_is_strict(page: LiveServer) -> None:
    answer = httpx.get(page.url)
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))

    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["style-src-attr"] == "'none'"
    assert policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in str(policy)
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_assets_are_immutable_and_small_on_the_wire(page: LiveServer) -> None:
    zipped = httpx.get(f"{page.url}/assets/index-abc.js")
    plain = httpx.get(f"{page.url}/assets/index-abc.js", headers={"Accept-Encoding": "identity"})

    assert zipped.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert zipped.headers["content-encoding"] == "gzip"
    assert int(zipped.headers["content-length"]) < 500
    assert zipped.text == plain.text
    assert zipped.headers["content-type"].startswith("text/javascript")


def test_other_files_are_asked_for_again(page: LiveServer) -> None:
    assert httpx.get(f"{page.url}/favicon.svg").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "path", ["/assets/none.js", "/none.css", "/assets/escape.js", "/assets/..%2f..%2fsecret.js", "/..%2fsecret.js"]
)
def test_what_is_not_in_the_folder_is_not_found(page: LiveServer, path: str) -> None:
    answer = httpx.get(page.url + path)

    assert answer.status_code == 404
    assert "secret" not in answer.text.replace("secret.js", "")


def test_the_page_takes_no_posts(page: LiveServer) -> None:
    assert httpx.post(f"{page.url}/datasets").status_code == 405


def test_without_a_build_it_says_so(start_server: Starter, settings: Settings, tmp_path: Path) -> None:
    server = settings.server.model_copy(update={"page_folder": tmp_path / "nothing"})
    answer = httpx.get(start_server(settings.model_copy(update={"server": server})).url)

    assert answer.status_code == 503
    assert "make run" in answer.text


def test_answers_of_the_api_may_run_nothing(page: LiveServer) -> None:
    policy = httpx.get(f"{page.url}/healthz").headers["content-security-policy"]

    assert policy == "default-src 'none'; frame-ancestors 'none'; sandbox"
