"""Scripts in processes of their own that end in every way while requests are in flight."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness.run import Run

TESTS = Path(__file__).parents[1]
# 2 s, with slack for a busy machine.
EXIT_SECONDS = 6.0
ABORTED = ("Fatal", "panicked", "Segmentation", "Aborted", "terminate called")

# A name, what the script does with `loader` and its iterator `running`, and the exit code.
ENDINGS = {
    "end of the script": ("pass", 0),
    "close": ("loader.close()", 0),
    "sys.exit": ("sys.exit(5)", 5),
    "exception in the consumer": ("raise RuntimeError('consumer')", 1),
    "exception inside with": ("with loader:\n    raise RuntimeError('consumer')", 1),
    "loader forgotten": ("del loader, running", 0),
    "Ctrl-C in the consumer": ("os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)", -2),
    "Ctrl-C while waiting": (
        "threading.Thread(target=interrupt_when_waiting, daemon=True).start()\nwhile True:\n    consume()",
        -2,
    ),
    "thread left waiting": (
        "threading.Thread(target=consume, daemon=True).start()\nwhile kind != 'lmdb' and not is_waiting(): pass",
        0,
    ),
}

# What the endings use.
ENDING_HEAD = """
def is_waiting():
    return loader._meter._waiting_since is not None

def consume():
    for _ in loader:
        pass

def interrupt_when_waiting():
    while not is_waiting():
        time.sleep(0.01)
    mark()
    os.kill(os.getpid(), signal.SIGINT)

def mark():
    print(time.monotonic(), flush=True)
"""

# What a forked child does with the loader of its parent: `state` and `running` were made before the fork.
INHERITED_USES = """
def refuse_all_uses(loader, running, state):
    started = time.monotonic()
    uses = [lambda: next(running), lambda: next(iter(loader)), lambda: len(loader), loader.state_dict,
            loader.gather_state, lambda: loader.load_state_dict(state), lambda: loader.set_epoch(3),
            loader.failures, loader.stats]
    for use in uses:
        try:
            use()
        except penstock.ForkedProcess as error:
            assert "make the loader inside the child" in str(error), error
        else:
            os._exit(3)
    loader.close()
    assert time.monotonic() - started < 3  # 1 s, with slack
"""


def script_environment(run: Run, **variables: str) -> dict[str, str]:
    """The environment of a script that imports what the tests import, has no settings of the user, and ends with us."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return run.environment({"PYTHONPATH": os.pathsep.join(paths), **variables})


def run_script(run: Run, text: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", text, *arguments],
        env=script_environment(run, **variables),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def assert_ends_at_once(run: Callable[[str], subprocess.CompletedProcess[str]], head: str, ending: str) -> None:
    """Run a script that makes `loader` and `running` with requests in flight, and let it end in this way."""
    code, expected_code = ENDINGS[ending]
    ended = run(f"{ENDING_HEAD}{head}mark()\n{code}")
    after = time.monotonic()
    assert_sound(ended, expected_code)
    assert after - float(ended.stdout.split()[-1]) < EXIT_SECONDS


def assert_sound(ended: subprocess.CompletedProcess[str], code: int = 0) -> None:
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert not [word for word in ABORTED if word in ended.stderr], ended.stderr
