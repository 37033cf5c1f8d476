"""Loaders end in time whatever else hangs: a server that never answers, a picture that takes a minute to decode."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

# 2 s, with slack for a busy machine.
END_SECONDS = 6.0

SCRIPT = """
import json, sys, threading, time, uuid
from contextlib import ExitStack
from PIL import Image
from unit.sdk import conftest
from unit.sdk.http_front import served
from penstock import Client, _native

is_decoding, is_asked = threading.Event(), threading.Event()

def decode_for_a_minute(file, name):
    is_decoding.set()
    time.sleep(60)

def never_answer(request):
    is_asked.set()
    time.sleep(3600)

Image.register_open("SLOW", decode_for_a_minute, lambda start: start.startswith(b"SLOW"))
usual_picture = conftest.picture
conftest.picture = lambda index: usual_picture(index) if index < 8 else b"SLOW picture"
api = conftest.FakeApi()
training = conftest.Training(api, {"kind": "memory", "name": "ending"}, count=64, rows_a_part=64)
store = _native.Store.open(json.dumps(training.store_config))
training.write_to(store)
api.serve("POST", "/loaders", never_answer)
stack = ExitStack()
client = Client(stack.enter_context(served(api)), "pst_x")
loaders = [client.loader("demo", split="train", batch_size=8, in_order=True, output="numpy") for _ in range(4)]
running = [iter(loader) for loader in loaders]
for each in running:
    next(each)
assert is_decoding.wait(30) and is_asked.wait(30)
print(time.monotonic(), flush=True)
"""

ENDINGS = {
    "exit": "",
    "close": "loaders[0].close()\nprint(time.monotonic(), flush=True)\nimport os\nos._exit(0)",
    "exit after close": "loaders[0].close()",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_several_loaders_end_in_time_beside_a_hung_server_and_a_slow_decode(ending: str, tmp_path: Path) -> None:
    environment = os.environ | {"PENSTOCK_CACHE_FOLDER": str(tmp_path)}
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", SCRIPT + ENDINGS[ending]],
        env=environment | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    after = time.monotonic()
    assert ended.returncode == 0, ended.stderr
    marks = [float(word) for word in ended.stdout.split()]
    assert (marks[1] if ending == "close" else after) - marks[0] < END_SECONDS
