"""The doors: login codes, sessions, CSRF, bearer tokens, the policy behind them."""

import re
import time
from collections.abc import Callable
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import select, update

from penstock.contract.ids import uuid7
from penstock_server.api.security import CACHE_SECONDS
from penstock_server.domain.secrets import hash_of
from penstock_server.domain.tokens.schemas import TokenCreate
from penstock_server.domain.tokens.service import TokenService
from penstock_server.errors import NotPermitted
from penstock_server.models import ApiToken, AuditEntry, LoginCode, SessionRow, User
from penstock_server.policy import PUBLIC_ACTIONS, Action, Actor, is_allowed, require
from penstock_server.settings import Settings

from .conftest import LiveServer

Starter = Callable[..., LiveServer]


class TestLoginCode:
    def test_a_code_opens_one_session(self, server: LiveServer) -> None:
        code = server.rows.login_code.code
        with server.client() as browser, server.client() as thief:
            answer = browser.post("/api/v1/session", json={"code": code})
            again = thief.post("/api/v1/session", json={"code": code})

        assert answer.status_code == 200
        assert answer.json()["user"]["name"] == "admin"
        assert (again.status_code, again.json()["code"]) == (401, "auth.code_invalid")
        assert "set-cookie" not in again.headers

    def test_an_old_code_is_refused(self, server: LiveServer) -> None:
        catalog = server.app.state.services.catalog
        with catalog.unit() as unit:
            unit.session.execute(update(LoginCode).values(expires_at=unit.now() - timedelta(seconds=1)))
        with server.client() as browser:
            answer = browser.post("/api/v1/session", json={"code": server.rows.login_code.code})

        assert answer.json()["code"] == "auth.code_invalid"

    def test_a_new_link_has_its_code_in_the_fragment(self, server: LiveServer) -> None:
        with server.client(is_admin=True) as client:
            made = client.post("/api/v1/session/code").json()

        assert made["login_url"] == f"{server.url}/login#code={made['code']}"

    def test_nothing_that_opens_a_door_is_kept_in_clear(self, server: LiveServer) -> None:
        with server.login() as (browser, csrf_token):
            secret = next(iter(browser.cookies.jar)).value or ""
        catalog = server.app.state.services.catalog
        with catalog.unit(is_read_only=True) as unit:
            kept = [
                *unit.session.scalars(select(LoginCode.code_hash)),
                *unit.session.scalars(select(SessionRow.token_hash)),
                *unit.session.scalars(select(SessionRow.csrf_hash)),
                *unit.session.scalars(select(ApiToken.secret_hash)),
            ]
        for opener in (server.rows.login_code.code, secret, csrf_token, server.rows.token):
            assert hash_of(opener) in kept
            assert opener not in str(kept)


class TestSession:
    def test_the_cookie_is_for_this_server_and_not_for_scripts(self, server: LiveServer) -> None:
        with server.client() as browser:
            answer = browser.post("/api/v1/session", json={"code": server.rows.login_code.code})

        cookie = answer.headers["set-cookie"]
        port = server.url.rpartition(":")[2]
        assert cookie.startswith(f"penstock_session_{port}=")
        assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
        assert "Secure" not in cookie

    def test_the_cookie_is_secure_behind_https(self, start_server: Starter, settings: Settings) -> None:
        public = settings.server.model_copy(update={"public_url": "https://penstock.test"})
        server = start_server(settings.model_copy(update={"server": public}))
        with server.client() as browser:
            answer = browser.post("/api/v1/session", json={"code": server.rows.login_code.code})

        assert "Secure" in answer.headers["set-cookie"]
        assert "max-age" in answer.headers["strict-transport-security"]

    def test_a_reload_gets_the_same_csrf_token(self, server: LiveServer) -> None:
        with server.login() as (browser, csrf_token):
            assert browser.get("/api/v1/session").json()["csrf_token"] == csrf_token

    def test_logging_out_ends_it_at_once(self, server: LiveServer) -> None:
        with server.login() as (browser, csrf_token), server.client() as copy:
            copy.cookies.update(browser.cookies)
            assert copy.get("/api/v1/projects").status_code == 200
            assert browser.delete("/api/v1/session", headers={"X-CSRF-Token": csrf_token}).status_code == 204
            assert copy.get("/api/v1/projects").status_code == 401

    def test_an_old_session_is_refused(self, server: LiveServer) -> None:
        catalog = server.app.state.services.catalog
        with server.login() as (browser, _):
            with catalog.unit() as unit:
                unit.session.execute(update(SessionRow).values(expires_at=unit.now() - timedelta(seconds=1)))
            assert browser.get("/api/v1/session").status_code == 401

    def test_a_token_is_no_session(self, server: LiveServer) -> None:
        with server.client(is_admin=True) as client:
            assert client.get("/api/v1/session").status_code == 401


class TestCsrf:
    @pytest.mark.parametrize("headers", [{}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "wrong"}])
    def test_an_unsafe_request_without_the_token_is_refused(self, server: LiveServer, headers: dict[str, str]) -> None:
        with server.login() as (browser, _):
            answer = browser.post("/api/v1/tokens", json={"name": "x"}, headers=headers)

        assert (answer.status_code, answer.json()["code"]) == (403, "auth.csrf")

    def test_the_token_of_another_session_does_not_help(self, server: LiveServer) -> None:
        with server.login() as (browser, _), server.login() as (_, foreign):
            answer = browser.post("/api/v1/tokens", json={"name": "x"}, headers={"X-CSRF-Token": foreign})

        assert answer.status_code == 403

    def test_the_right_token_is_let_in(self, server: LiveServer) -> None:
        with server.login() as (browser, csrf_token):
            answer = browser.post("/api/v1/tokens", json={"name": "x"}, headers={"X-CSRF-Token": csrf_token})

        assert answer.status_code == 201


class TestTokens:
    def test_a_secret_is_shown_once_and_works(self, server: LiveServer) -> None:
        with server.client(is_admin=True) as client:
            made = client.post("/api/v1/tokens", json={"name": "gpu", "expires_in_days": 30}).json()
            listed = client.get("/api/v1/tokens").json()["items"]

        assert re.fullmatch(r"pst_[0-9a-f]{8}_[0-9a-f]{64}", made["secret"])
        assert made["secret"].split("_")[1] == made["prefix"]
        assert "gpu" in [token["name"] for token in listed]
        assert all("secret" not in token for token in listed)
        bearer = {"Authorization": f"Bearer {made['secret']}"}
        assert httpx.get(f"{server.url}/api/v1/projects", headers=bearer).status_code == 200

    def test_revoking_works_at_once(self, server: LiveServer) -> None:
        with server.client(is_admin=True) as client:
            made = client.post("/api/v1/tokens", json={"name": "gpu"}).json()
            bearer = {"Authorization": f"Bearer {made['secret']}"}
            assert client.get("/api/v1/projects", headers=bearer).status_code == 200
            assert client.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
            assert client.get("/api/v1/projects", headers=bearer).status_code == 401
            assert client.delete(f"/api/v1/tokens/{made['id']}").json()["code"] == "token.not_found"

    def test_what_another_process_revokes_ends_within_the_cache(self, server: LiveServer) -> None:
        catalog = server.app.state.services.catalog
        with server.client(is_admin=True) as client:
            assert client.get("/api/v1/projects").status_code == 200
            with catalog.unit() as unit:
                unit.session.execute(update(ApiToken).values(revoked_at=unit.now()))
            time.sleep(CACHE_SECONDS + 0.1)
            assert client.get("/api/v1/projects").status_code == 401

    def test_an_old_token_is_refused(self, server: LiveServer) -> None:
        catalog = server.app.state.services.catalog
        with catalog.unit() as unit:
            unit.session.execute(update(ApiToken).values(expires_at=unit.now() - timedelta(seconds=1)))
        with server.client(is_admin=True) as client:
            assert client.get("/api/v1/projects").status_code == 401

    def test_its_use_is_noted(self, server: LiveServer) -> None:
        with server.client(is_admin=True) as client:
            client.get("/api/v1/projects")
            assert client.get("/api/v1/tokens").json()["items"][0]["last_used_at"] is not None

    @pytest.mark.parametrize("header", ["", "Basic YTpi", "Bearer", "Bearer pst_1_2", "Bearer \xff"])
    def test_a_wrong_header_is_unauthenticated(self, server: LiveServer, header: str) -> None:
        answer = httpx.get(f"{server.url}/api/v1/projects", headers={b"Authorization": header.encode("latin-1")})

        assert (answer.status_code, answer.json()["code"]) == (401, "auth.unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"

    def test_pages_go_both_ways(self, server: LiveServer) -> None:
        with server.client(is_admin=True) as client:
            for number in range(4):
                client.post("/api/v1/tokens", json={"name": f"t{number}"})
            names, cursor = [], ""
            while True:
                page = client.get("/api/v1/tokens", params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
                names.append([token["name"] for token in page["items"]])
                if not page["next_cursor"]:
                    break
                cursor = page["next_cursor"]
            back = client.get("/api/v1/tokens", params={"limit": 2, "cursor": page["prev_cursor"]}).json()

        assert names == [["t3", "t2"], ["t1", "t0"], ["local server"]]
        assert [token["name"] for token in back["items"]] == ["t1", "t0"]
        assert back["prev_cursor"]

    def test_a_member_sees_and_revokes_its_own_only(self, server: LiveServer) -> None:
        secret = _member_token(server)
        with server.client(is_admin=True) as admin, httpx.Client(base_url=server.url) as member:
            member.headers["Authorization"] = f"Bearer {secret}"
            admins = admin.get("/api/v1/tokens").json()["items"][0]
            names = [token["name"] for token in member.get("/api/v1/tokens").json()["items"]]
            answer = member.delete(f"/api/v1/tokens/{admins['id']}")

        assert names == ["members"]
        assert answer.status_code == 404


class TestPolicy:
    def test_every_action_is_denied_to_nobody_and_unknown_roles(self) -> None:
        stranger = Actor(uuid7(), "stranger")  # type: ignore[arg-type]
        for action in set(Action) - PUBLIC_ACTIONS:
            assert not is_allowed(None, action)
            assert not is_allowed(stranger, action)

    def test_a_member_may_not_do_what_is_the_admins(self, server: LiveServer) -> None:
        with pytest.raises(NotPermitted):
            require(Actor(uuid7(), "member"), Action.METRICS_READ)
        bearer = {"Authorization": f"Bearer {_member_token(server)}"}
        answer = httpx.get(f"{server.url}/metrics", headers=bearer)

        assert (answer.status_code, answer.json()["code"]) == (403, "auth.forbidden")

    def test_changes_are_in_the_audit_trail_and_reads_are_not(self, server: LiveServer) -> None:
        with server.client(is_admin=True) as client:
            client.get("/api/v1/tokens")
            made = client.post("/api/v1/tokens", json={"name": "gpu"})
            client.post("/api/v1/tokens", json={"name": ""})
        catalog = server.app.state.services.catalog
        with catalog.unit(is_read_only=True) as unit:
            rows = unit.session.scalars(select(AuditEntry)).all()

        assert [(row.action, row.target) for row in rows] == [("token.create", "/api/v1/tokens")]
        assert rows[0].request_id == made.headers["x-request-id"]
        assert made.json()["secret"] not in str([row.detail for row in rows])


def _member_token(server: LiveServer) -> str:
    with server.app.state.services.catalog.unit() as unit:
        user = User(name="mia", role="member", created_at=unit.now())
        unit.session.add(user)
        unit.session.flush()
        return TokenService(unit).create(user.id, TokenCreate(name="members")).secret
