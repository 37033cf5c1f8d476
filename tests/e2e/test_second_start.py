"""A server that has been set up once is there again in seconds."""

import time
from pathlib import Path

from harness.deployments import LOGIN_LINE, PENSTOCK, START_SECONDS, Process, clean_environment, free_port

# Under 10 s is promised; three times slack for a busy machine.
SECOND_START_SECONDS = 30


def test_second_start_is_quick(run_folder: Path) -> None:
    environment = clean_environment(run_folder)
    for is_first in (True, False):
        began = time.monotonic()
        server = Process("server", [str(PENSTOCK), "up", "--port", str(free_port())], environment)
        try:
            server.wait_for(LOGIN_LINE, START_SECONDS)
            assert is_first or time.monotonic() - began < SECOND_START_SECONDS
        finally:
            server.stop()
