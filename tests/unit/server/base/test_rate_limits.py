"""Every caller has a bucket of its own, is told what is left in it, and gets 429 and a time when it is empty."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from unit.server.base.conftest import LiveServer, new_settings, start

from penstock_server.api.rate_limits import Buckets
from penstock_server.domain.tokens.schemas import TokenCreate
from penstock_server.domain.tokens.service import TokenService
from penstock_server.settings import LimitSettings, ServerSettings

LIMITS = LimitSettings(requests_per_minute=4, refused_per_minute=3, failed_logins_per_minute=2)
WRONG = {"Authorization": f"Bearer pst_00000000_{'0' * 64}"}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def start_limited(tmp_path: Path, empty_catalog: Path) -> Iterator[Callable[..., LiveServer]]:
    made: list[LiveServer] = []

    def starter(**server: str) -> LiveServer:
        settings = new_settings(tmp_path, empty_catalog)
        update = {"limits": LIMITS, "server": ServerSettings.model_validate(server)}
        made.append(start(settings.model_copy(update=update)))
        return made[-1]

    yield starter
    for server in made:
        server.stop()


def assert_limited(answer: httpx.Response, *, policy: str, quota: int) -> None:
    assert (answer.status_code, answer.json()["code"]) == (429, "request.rate_limited")
    assert answer.headers["content-type"] == "application/problem+json"
    assert 1 <= int(answer.headers["retry-after"]) <= 60 / quota
    assert answer.json()["context"] == {"retry_after_seconds": int(answer.headers["retry-after"])}
    assert answer.headers["ratelimit-policy"] == f'"{policy}";q={quota};w=60'
    assert re.fullmatch(rf'"{policy}";r=0;t=\d+', answer.headers["ratelimit"])


def test_bucket_empties_and_fills_with_time() -> None:
    clock = Clock()
    buckets = Buckets("actor", 6, clock=clock)

    assert [buckets.take("a").remaining for _ in range(6)] == [5, 4, 3, 2, 1, 0]
    refused = buckets.take("a")
    assert (refused.remaining, refused.reset_seconds, refused.wait_seconds) == (0, 60, 10)
    assert buckets.take("b").wait_seconds == 0
    clock.now += 9
    assert buckets.take("a").wait_seconds == 1
    clock.now += 1
    assert buckets.take("a").wait_seconds == 0
    clock.now += 3600
    assert buckets.take("a").remaining == 5


def test_look_costs_nothing() -> None:
    buckets = Buckets("login", 1, clock=Clock())

    assert [buckets.take("a", 0).remaining for _ in range(3)] == [1, 1, 1]
    buckets.take("a")
    assert buckets.take("a", 0).wait_seconds == 60


def test_callers_that_nobody_has_seen_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_server.api.rate_limits._BUCKETS", 2)
    buckets = Buckets("actor", 2, clock=Clock())
    for caller in ("a", "a", "b", "c"):
        buckets.take(caller)

    assert len(buckets._buckets) == 2
    assert buckets.take("a").remaining == 1


def test_token_that_asks_too_much_waits_and_others_do_not(start_limited: Callable[..., LiveServer]) -> None:
    server = start_limited()
    with server.app.state.services.catalog.unit() as unit:
        user_id = TokenService(unit).find(server.rows.token)[1].id  # type: ignore[index]  # it is there
        other = TokenService(unit).create(user_id, TokenCreate(name="other")).secret
    with server.client(is_admin=True) as client:
        answers = [client.get("/api/v1/projects") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 429]
        assert answers[0].headers["ratelimit"].startswith('"actor";r=3;t=')
        assert_limited(answers[4], policy="actor", quota=4)
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
        assert "ratelimit" not in client.get("/healthz").headers
        free = client.get("/api/v1/projects", headers={"Authorization": f"Bearer {other}"})
        assert free.status_code == 200


def test_address_without_a_valid_token_waits_and_valid_ones_do_not(start_limited: Callable[..., LiveServer]) -> None:
    server = start_limited()
    with server.client() as client:
        answers = [client.get("/api/v1/projects", headers=headers) for headers in (WRONG, {}, WRONG, {})]
        assert [answer.status_code for answer in answers] == [401, 401, 401, 429]
        assert_limited(answers[3], policy="address", quota=3)
        assert client.get("/api/v1/projects", headers=server.bearer).status_code == 200


def test_failed_logins_are_few_and_good_ones_are_free(start_limited: Callable[..., LiveServer]) -> None:
    server = start_limited()
    code = server.rows.login_code.code
    with server.client() as client:
        assert client.post("/api/v1/session", json={"code": code}).status_code == 200
        answers = [client.post("/api/v1/session", json={"code": "wrong"}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [401, 401, 429]
        assert [answer.headers["ratelimit"].split(";")[1] for answer in answers] == ["r=1", "r=0", "r=0"]
        assert_limited(answers[2], policy="login", quota=2)


@pytest.mark.parametrize(("server", "is_kept_apart"), [({"public_url": "https://penstock.example"}, True), ({}, False)])
def test_address_behind_a_proxy_is_the_one_that_the_proxy_saw(
    start_limited: Callable[..., LiveServer], server: dict[str, str], is_kept_apart: bool
) -> None:
    running = start_limited(**server)
    with running.client() as client:
        for _ in range(4):
            client.get("/api/v1/projects", headers={"X-Forwarded-For": "6.6.6.6, 10.0.0.1"})
        other = client.get("/api/v1/projects", headers={"X-Forwarded-For": "6.6.6.6, 10.0.0.2"})

    assert (other.status_code == 401) == is_kept_apart
