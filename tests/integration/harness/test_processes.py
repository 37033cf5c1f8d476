"""What a handle of a program can do with it."""

import os
from pathlib import Path

from harness.services import Services


def test_program_that_gives_way_comes_after_others(services: Services) -> None:
    program = services.run.spawn("gives-way", ["sleep", "60"])
    try:
        program.give_way()
        assert os.getpriority(os.PRIO_PROCESS, program.pid) == 10
        of_session = Path(f"/proc/{program.pid}/autogroup")
        if of_session.exists():
            assert of_session.read_text().endswith(" nice 10\n")
    finally:
        program.kill()
