import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from penstock import _telemetry
from penstock._meter import Gauges, Meter
from penstock._telemetry import MOST_KEPT_POINTS, Telemetry
from penstock.contract.telemetry import LoaderPoint

BODY = {"run": "r", "rank": 0}


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def started(api: Any, meter: Meter, *, interval_seconds: float = 0.01, gauges: Any = Gauges) -> Telemetry:
    return Telemetry(api.client()._transport, BODY, meter, gauges=gauges, interval_seconds=interval_seconds)


def points(api: Any) -> list[LoaderPoint]:
    sent = api.bodies("POST", "/loaders/loader-1/points")
    return [LoaderPoint.from_json(point) for body in sent for point in body["points"]]


def test_points_add_up_to_the_totals(api: Any, training: Any) -> None:
    meter = Meter()
    telemetry = started(api, meter)
    meter.stand(epoch=2, step=7, steps=9)
    for _ in range(5):
        meter.count_batch(samples=8, byte_count=100, decode_seconds=0.5)
        time.sleep(0.01)
    telemetry.stop()
    sent = points(api)
    assert sum(point.samples for point in sent) == 40
    assert sum(point.bytes for point in sent) == 500
    assert (sent[-1].epoch, sent[-1].step, sent[-1].steps) == (2, 7, 9)
    assert api.bodies("POST", "/loaders") == [BODY]
    assert api.bodies("POST", "/loaders/loader-1/end") == [{"state": "ended"}]


def test_failure_is_told_at_the_end(api: Any, training: Any) -> None:
    telemetry = started(api, Meter())
    telemetry.fail("SampleMissing: x")
    telemetry.stop()
    assert api.bodies("POST", "/loaders/loader-1/end") == [{"state": "failed", "message": "SampleMissing: x"}]


def test_a_wait_under_way_counts_as_it_grows(api: Any, training: Any) -> None:
    meter = Meter()
    telemetry = started(api, meter)
    meter.begin_wait()
    until(lambda: sum(point.wait_seconds for point in points(api)) > 0.05)
    telemetry.stop()
    assert all(point.wait_seconds <= point.seconds for point in points(api))


def test_live_address_is_printed_once(api: Any, training: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        started(api, Meter()).stop()
    assert capsys.readouterr().err.count("watch this loader at http://127.0.0.1:9/live/") == 1


def test_other_ranks_print_nothing(api: Any, training: Any, capsys: pytest.CaptureFixture[str]) -> None:
    Telemetry(api.client()._transport, BODY | {"rank": 1}, Meter(), gauges=Gauges).stop()
    assert capsys.readouterr().err == ""


def test_server_that_is_down_costs_nothing_and_keeps_a_bounded_queue(api: Any, training: Any) -> None:
    api.is_down = True
    telemetry = started(api, Meter(), interval_seconds=0.0005)
    until(lambda: len(telemetry._points) == MOST_KEPT_POINTS)
    began = time.monotonic()
    telemetry.stop()
    assert time.monotonic() - began < 6.0
    assert len(telemetry._points) <= MOST_KEPT_POINTS


def test_server_that_comes_back_gets_the_points(api: Any, training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_telemetry, "_RETRY_SECONDS", 0.01)
    api.is_down = True
    meter = Meter()
    telemetry = started(api, meter)
    meter.count_batch(samples=8, byte_count=1, decode_seconds=0.0)
    until(lambda: len(telemetry._points) > 3)
    api.is_down = False
    until(lambda: sum(point.samples for point in points(api)) == 8)
    telemetry.stop()


def test_server_that_hangs_holds_the_end_for_a_second_at_most(api: Any, training: Any) -> None:
    released = threading.Event()

    def hang(request: httpx.Request) -> httpx.Response:
        released.wait(20)
        return httpx.Response(204)

    api.serve("POST", "/loaders/loader-1/points", hang)
    telemetry = started(api, Meter())
    until(lambda: api.bodies("POST", "/loaders/loader-1/points"))
    began = time.monotonic()
    telemetry.stop()
    took = time.monotonic() - began
    released.set()
    assert took < 4.5
    telemetry._thread.join(10)


@pytest.mark.parametrize("status", [401, 403])
def test_refused_token_is_not_tried_again(api: Any, training: Any, status: int) -> None:
    api.answer("POST", "/loaders", {"code": "auth.forbidden", "detail": "no"}, status)
    telemetry = started(api, Meter())
    until(lambda: telemetry._is_refused)
    time.sleep(0.05)
    telemetry.stop()
    assert len(api.bodies("POST", "/loaders")) == 1


def test_forgotten_loader_registers_anew(api: Any, training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_telemetry, "_RETRY_SECONDS", 0.01)
    gone = iter([True])

    def sometimes(request: httpx.Request) -> httpx.Response:
        if next(gone, False):
            return httpx.Response(404, json={"code": "loader.not_found", "detail": "no"})
        return httpx.Response(204)

    api.serve("POST", "/loaders/loader-1/points", sometimes)
    telemetry = started(api, Meter())
    until(lambda: len(api.bodies("POST", "/loaders")) == 2)
    telemetry.stop()


def test_broken_gauges_and_answers_never_surface(api: Any, training: Any) -> None:
    def broken() -> Gauges:
        raise RuntimeError("engine is gone")

    api.answer("POST", "/loaders", ["not", "an", "object"], 201)
    telemetry = started(api, Meter(), gauges=broken)
    until(lambda: len(telemetry._points) > 2)
    assert telemetry._thread.is_alive()
    telemetry.stop()


def test_loader_reports_and_ends(training: Any, capsys: pytest.CaptureFixture[str]) -> None:
    client = training.api.client()
    with client.loader("demo", split="train", batch_size=8, output="numpy", run="mine", rank=0, world_size=1) as loader:
        assert len(list(loader)) == 13
    body = training.api.bodies("POST", "/loaders")[0]
    expected = {"run": "mine", "dataset": "demo", "version": 3, "split": "by-patient@2", "subset": "train", "rank": 0,
                "world_size": 1, "batch_size": 8, "sample_count": 101, "output": "numpy"}  # fmt: skip
    assert expected.items() <= body.items()
    sent = points(training.api)
    assert sum(point.samples for point in sent) == 101
    assert sum(point.batches for point in sent) == 13
    assert sent[-1].steps == 13
    assert training.api.bodies("POST", "/loaders/loader-1/end") == [{"state": "ended"}]
    assert "watch this loader" in capsys.readouterr().err


def test_loader_that_is_not_iterated_reports_nothing(training: Any) -> None:
    with training.api.client().loader("demo", split="train", output="numpy"):
        pass
    assert training.api.bodies("POST", "/loaders") == []


def test_exception_of_the_training_is_told(training: Any) -> None:
    def train() -> None:
        with training.api.client().loader("demo", split="train", output="numpy") as loader:
            next(iter(loader))
            raise ZeroDivisionError("loss")

    with pytest.raises(ZeroDivisionError):
        train()
    end = training.api.bodies("POST", "/loaders/loader-1/end")
    assert end == [{"state": "failed", "message": "ZeroDivisionError: loss"}]


def test_script_that_just_ends_sends_its_last_point(lmdb_training: Any, tmp_path: Any) -> None:
    """No `close`, no `with`: the end of the interpreter is enough."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    api = lmdb_training.api
    api.answer("POST", "/loaders/resolve", lmdb_training.plan())

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            request = httpx.Request(self.command, f"http://127.0.0.1{self.path}", content=body)
            response = api.handle(request)
            self.send_response(response.status_code)
            self.send_header("content-length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content)

        do_GET = do_POST = _answer

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        script = f"""
import penstock
client = penstock.Client("http://127.0.0.1:{server.server_port}", "pst_x")
loader = client.loader("demo", split="train", batch_size=8, output="numpy")
print(sum(len(batch["ids"]) for batch in loader))
"""
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert done.stdout == "101\n"
    assert "watch this loader" in done.stderr
    assert "Traceback" not in done.stderr
    assert sum(point.samples for point in points(api)) == 101
    assert api.bodies("POST", "/loaders/loader-1/end") == [{"state": "ended"}]
    assert time.monotonic() - began < 30
