"""`python -m penstock_server.child <parent pid> <module> [arguments]`: runs a module that dies with its parent.

Set in the child itself: code between fork and exec of a parent with threads may hang.
"""

import contextlib
import ctypes
import os
import runpy
import signal
import sys
import threading
import time

# The option with which a parent hands a watched child its end of the pipe for signs of life.
LIFELINE_OPTION = "--lifeline"
SIGN_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """The kernel sends SIGTERM to this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit(0)


def give_signs_of_life(handle: int) -> None:
    """A byte a second to the parent, from a thread of its own: long work is no silence, a frozen process is."""
    threading.Thread(target=_give_signs, args=(handle,), name="signs-of-life", daemon=True).start()


def _give_signs(handle: int) -> None:
    # A parent that is gone hears nothing any more.
    with contextlib.suppress(OSError):
        while True:
            os.write(handle, b".")
            time.sleep(SIGN_SECONDS)


def main() -> None:
    parent_pid, module = int(sys.argv[1]), sys.argv[2]
    die_with_parent(parent_pid)
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
