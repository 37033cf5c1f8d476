"""Every route names its action, refuses strangers, and answers a token with a documented status."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import text

from penstock.contract.codes import ErrorCode
from penstock.contract.ids import uuid7
from penstock_server.commands.catalog_start import FirstRows
from penstock_server.domain.tokens.schemas import TokenCreate
from penstock_server.domain.tokens.service import TokenService
from penstock_server.models import User
from penstock_server.policy import PUBLIC_ACTIONS, Action

ROOT = Path(__file__).resolve().parents[3]
PROBLEM_KEYS = {"type", "title", "status", "detail", "code", "request_id", "context"}
STREAMS = {"/api/v1/events"}


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def concrete(path: str) -> str:
    """A path with values that exist nowhere."""
    values = {"version": "1", "field": "image"}
    return re.sub(r"{(\w+)}", lambda match: values.get(match.group(1), str(uuid7())), path)


def test_every_route_names_an_action_and_they_are_all_known(document: dict[str, Any]) -> None:
    named = {(method, path): operation.get("x-action") for method, path, operation in operations(document)}

    assert [place for place, action in named.items() if action not in set(Action)] == []
    assert set(named.values()) == {str(action) for action in set(Action) - {Action.PAGE_READ}}


def test_the_documented_door_is_the_real_one(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        is_open = operation.get("security") == []
        assert is_open == (operation["x-action"] in PUBLIC_ACTIONS), f"{method} {path}"


def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]

    assert len(ids) == len(set(ids))


def test_without_a_token_every_route_refuses(document: dict[str, Any], client: httpx.Client) -> None:
    for method, path, operation in operations(document):
        if operation["x-action"] in PUBLIC_ACTIONS:
            continue
        answer = client.request(method, concrete(path), json={} if method in {"POST", "PATCH"} else None)
        assert answer.status_code == 401, f"{method} {path} answered {answer.status_code}"
        assert answer.json()["code"] == "auth.unauthenticated"
        assert_problem(answer)


def test_with_a_wrong_token_every_route_refuses(document: dict[str, Any], client: httpx.Client) -> None:
    wrong = {"Authorization": f"Bearer pst_00000000_{'0' * 64}"}
    for method, path, operation in operations(document):
        if operation["x-action"] not in PUBLIC_ACTIONS:
            assert client.request(method, concrete(path), headers=wrong).status_code == 401, f"{method} {path}"


def test_with_a_token_every_route_lets_in_and_keeps_to_its_answers(
    document: dict[str, Any], client: httpx.Client, rows: FirstRows
) -> None:
    """Nothing exists and bodies are empty: what is left is a success, a 404, or a complaint about the input."""
    for method, path, operation in operations(document):
        if path in STREAMS or operation["x-action"] in {Action.SESSION_CREATE, Action.SESSION_READ}:
            continue
        body: dict[str, str] | None = {} if method in {"POST", "PATCH"} else None
        headers = {"Authorization": f"Bearer {rows.token}"}
        answer = client.request(method, concrete(path), json=body, headers=headers)
        assert answer.status_code not in {401, 403}, f"{method} {path}: {answer.text}"
        assert answer.status_code < 500 or path == "/readyz", f"{method} {path}: {answer.text}"
        if answer.status_code >= 400:
            assert_problem(answer)
        else:
            assert str(answer.status_code) in operation["responses"], f"{method} {path}: {answer.status_code}"


def test_a_member_is_refused_what_is_the_admins(document: dict[str, Any], client: httpx.Client, app: Any) -> None:
    with app.state.services.catalog.unit() as unit:
        member = User(name="member", role="member", created_at=unit.now())
        unit.session.add(member)
        unit.session.flush()
        secret = TokenService(unit).create(member.id, TokenCreate(name="x")).secret
    refused = set()
    for method, path, operation in operations(document):
        if path in STREAMS:
            continue
        answer = client.request(method, concrete(path), headers={"Authorization": f"Bearer {secret}"})
        if answer.status_code == 403:
            refused.add(operation["x-action"])

    assert refused == {"session.issue", "metrics.read"}


def test_the_stream_lets_a_token_in(client: httpx.Client, rows: FirstRows) -> None:
    with client.stream("GET", "/api/v1/events", headers={"Authorization": f"Bearer {rows.token}"}) as answer:
        assert answer.status_code == 200
        assert next(answer.iter_lines()).startswith("retry:")


def test_every_unsafe_route_with_a_session_needs_the_csrf_token(
    document: dict[str, Any], client: httpx.Client, rows: FirstRows
) -> None:
    bearer = {"Authorization": f"Bearer {rows.token}"}
    code = client.post("/api/v1/session/code", headers=bearer).json()["code"]
    with httpx.Client(base_url=client.base_url, timeout=30) as browser:
        assert browser.post("/api/v1/session", json={"code": code}).status_code == 200
        for method, path, operation in operations(document):
            if method == "GET" or operation["x-action"] in PUBLIC_ACTIONS:
                continue
            answer = browser.request(method, concrete(path), json={})
            assert (answer.status_code, answer.json()["code"]) == (403, "auth.csrf"), f"{method} {path}"


def test_lists_have_one_shape(document: dict[str, Any]) -> None:
    pages = {name: schema for name, schema in document["components"]["schemas"].items() if name.startswith("Page_")}

    assert len(pages) >= 8
    for name, schema in pages.items():
        assert set(schema["properties"]) == {"items", "next_cursor", "prev_cursor", "total"}, name


def test_the_committed_file_is_what_the_code_says(document: dict[str, Any]) -> None:
    committed = json.loads((ROOT / "openapi.json").read_text())

    assert committed == json.loads(json.dumps(document)), "run `make openapi` and commit the result"


def test_the_file_has_the_closed_set_of_codes_and_problems_for_every_route(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    assert set(schemas["ErrorCode"]["enum"]) == {str(code) for code in ErrorCode}
    assert set(schemas["Problem"]["properties"]) >= PROBLEM_KEYS
    for method, path, operation in operations(document):
        for family in ("4XX", "5XX"):
            content = operation["responses"][family]["content"]
            assert list(content) == ["application/problem+json"], f"{method} {path}"


def test_making_the_app_touches_no_disk(tmp_path: Path) -> None:
    from penstock_server.app import create_app
    from penstock_server.settings import Settings

    create_app(Settings(data_folder=tmp_path / "data", state_folder=tmp_path / "state")).openapi()

    assert list(tmp_path.iterdir()) == []


def test_the_walk_left_no_rows_without_an_owner(app: Any) -> None:
    with app.state.services.catalog.unit(is_read_only=True) as unit:
        assert unit.session.execute(text("PRAGMA foreign_key_check")).all() == []


def assert_problem(answer: httpx.Response) -> None:
    body = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(body) >= PROBLEM_KEYS
    assert set(body) <= PROBLEM_KEYS | {"errors"}
    assert body["code"] in set(ErrorCode)
    assert body["status"] == answer.status_code
    assert body["request_id"] == answer.headers["x-request-id"]
    assert len(body["detail"]) > 10
