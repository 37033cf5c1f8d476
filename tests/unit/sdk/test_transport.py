import io
import json
import pickle
from collections.abc import Callable, Iterator

import httpx
import pytest

from penstock import _errors as errors
from penstock._config import ClientConfig
from penstock._transport import Transport, mapped, pages

Handler = Callable[[httpx.Request], httpx.Response]
CONFIG = ClientConfig("http://127.0.0.1:9", "pst_secret")


def transport_to(handler: Handler, pauses: list[float] | None = None) -> Transport:
    sleep = (pauses if pauses is not None else []).append
    return Transport(CONFIG, http_transport=httpx.MockTransport(handler), sleep=sleep)


def problem(status: int, code: str = "dataset.not_found", **more: object) -> httpx.Response:
    document = {"type": "about:blank", "title": "t", "status": status, "detail": "no dataset 'x'", "code": code,
                "request_id": "req-1", "context": {"dataset": "x"}} | more  # fmt: skip
    return httpx.Response(status, json=document, headers={"content-type": "application/problem+json"})


def test_request_carries_token_agent_and_parameters() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"ok": True})

    assert transport_to(handler).get("/datasets", query="a b", cursor=None) == {"ok": True}
    assert str(seen[0].url) == "http://127.0.0.1:9/api/v1/datasets?query=a+b"
    assert seen[0].headers["authorization"] == "Bearer pst_secret"
    assert seen[0].headers["user-agent"].startswith("penstock-sdk/")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, errors.InvalidRequest), (401, errors.NotAuthenticated), (403, errors.NotPermitted), (404, errors.NotFound),
     (405, errors.InvalidRequest), (409, errors.Conflict), (412, errors.Conflict), (413, errors.InvalidRequest),
     (422, errors.InvalidRequest), (428, errors.Conflict), (429, errors.RateLimited), (500, errors.ServerFailure),
     (503, errors.ServerFailure)],
)  # fmt: skip
def test_problem_becomes_the_error_of_its_status(status: int, kind: type[errors.APIError]) -> None:
    with pytest.raises(kind) as caught:
        transport_to(lambda request: problem(status)).get("/datasets/x")
    error = caught.value
    assert type(error) is kind
    assert (error.code, error.status, error.request_id) == ("dataset.not_found", status, "req-1")
    assert error.context == {"dataset": "x"}
    assert str(error) == "no dataset 'x' [dataset.not_found, request req-1]"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.status) == (kind, str(error), status)


def test_validation_errors_are_listed() -> None:
    faults = [{"pointer": "/name", "message": "too long"}]
    with pytest.raises(errors.InvalidRequest, match="/name: too long"):
        transport_to(lambda request: problem(422, "request.invalid", errors=faults)).post("/datasets", {})


def test_missing_token_is_pointed_out() -> None:
    http = httpx.MockTransport(lambda request: problem(401, "auth.unauthenticated"))
    with pytest.raises(errors.NotAuthenticated, match="PENSTOCK_TOKEN"):
        Transport(ClientConfig("http://127.0.0.1:9"), http_transport=http).get("/datasets")


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_get_is_retried_until_it_works(status: int) -> None:
    answers = [problem(status), problem(status), httpx.Response(200, json=1)]
    pauses: list[float] = []
    assert transport_to(lambda request: answers.pop(0), pauses).get("/x") == 1
    assert len(pauses) == 2
    assert 0.1 <= pauses[0] <= 0.3 < pauses[1] * 2


def test_retry_after_is_obeyed() -> None:
    answers = [httpx.Response(429, headers={"Retry-After": "7"}), httpx.Response(200, json=1)]
    pauses: list[float] = []
    transport_to(lambda request: answers.pop(0), pauses).get("/x")
    assert pauses == [7.0]


def test_retries_end() -> None:
    calls: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        return problem(503, "store.unavailable")

    with pytest.raises(errors.ServerFailure) as caught:
        transport_to(handler).get("/x")
    assert caught.value.code == "store.unavailable"
    assert len(calls) == 4


def broken(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("reset", request=request)


def test_post_without_key_is_not_repeated_once_sent() -> None:
    pauses: list[float] = []
    with pytest.raises(errors.ConnectError):
        transport_to(broken, pauses).post("/jobs/1/cancel")
    assert pauses == []


def test_post_with_key_is_repeated_with_the_same_key() -> None:
    keys: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) < 3:
            raise httpx.ReadTimeout("slow", request=request)
        return httpx.Response(201, json={"body": json.loads(request.content)})

    assert transport_to(handler).post("/datasets", {"name": "x"}, idempotency_key="k") == {"body": {"name": "x"}}
    assert keys == ["k", "k", "k"]


def test_every_httpx_error_has_one_of_ours() -> None:
    def subclasses(kind: type[httpx.HTTPError]) -> set[type[httpx.HTTPError]]:
        return {kind, *(below for direct in kind.__subclasses__() for below in subclasses(direct))}

    request = httpx.Request("GET", "http://127.0.0.1")
    for kind in subclasses(httpx.HTTPError):
        if kind is httpx.HTTPStatusError:
            continue
        error = kind("x")
        error.request = request
        ours = mapped(error, "http://127.0.0.1")
        if issubclass(kind, httpx.TimeoutException):
            assert type(ours) is errors.Timeout
        elif issubclass(kind, httpx.TransportError):
            assert type(ours) is errors.ConnectError
        else:
            assert type(ours) is errors.TransportError


def test_unreachable_port_is_a_connect_error() -> None:
    transport = Transport(ClientConfig("http://127.0.0.1:9"), sleep=lambda seconds: None)
    with pytest.raises(errors.ConnectError, match="is it running"):
        transport.get("/x")


@pytest.mark.parametrize("status", [302, 404, 502])
def test_answer_of_another_program_is_said(status: int) -> None:
    response = httpx.Response(status, text="<html>nginx</html>", headers={"location": "http://127.0.0.1:1/"})
    with pytest.raises(errors.PenstockError, match=f"status {status} and no error of Penstock"):
        transport_to(lambda request: response).get("/x")


def test_html_page_is_no_answer() -> None:
    with pytest.raises(errors.TransportError, match="not JSON"):
        transport_to(lambda request: httpx.Response(200, text="<html>")).get("/x")


def test_download_starts_anew_after_a_break() -> None:
    class Breaking(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield b"half and"
            raise httpx.ReadError("reset")

    answers = [httpx.Response(200, stream=Breaking()), httpx.Response(200, content=b"whole")]
    file = io.BytesIO()
    transport_to(lambda request: answers.pop(0)).download("/api/v1/datasets/d/members/1", file)
    assert file.getvalue() == b"whole"


def test_download_sends_the_token_to_its_own_server_only() -> None:
    calls: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        return httpx.Response(200, content=b"x")

    transport = transport_to(handler)
    transport.download("http://127.0.0.1:9/api/v1/a", io.BytesIO())
    transport.download("/datasets/d/members/1", io.BytesIO())
    assert [str(call.url) for call in calls] == [
        "http://127.0.0.1:9/api/v1/a",
        "http://127.0.0.1:9/api/v1/datasets/d/members/1",
    ]
    for foreign in ("http://127.0.0.1:10/a", "http://127.0.0.1:99/a", "a", "//127.0.0.2/a"):
        count = len(calls)
        try:
            transport.download(foreign, io.BytesIO())
        except errors.TransportError:
            continue
        assert all(call.url.host == "127.0.0.1" and call.url.port == 9 for call in calls[count:])


def test_pages_are_followed_to_the_end() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        start = int(request.url.params.get("cursor", 0))
        following = str(start + 2) if start < 4 else None
        return httpx.Response(200, json={"items": [start, start + 1], "next_cursor": following})

    assert list(pages(transport_to(handler), "/x")) == [0, 1, 2, 3, 4, 5]


def test_secret_is_in_no_text_and_no_pickle() -> None:
    transport = transport_to(lambda request: httpx.Response(200, json=1))
    assert "pst_secret" not in repr(transport) + repr(CONFIG)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(transport)
