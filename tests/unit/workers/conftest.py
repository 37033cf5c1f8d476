"""An embedded server without HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.jobs.stage import Stage, embedded_settings, open_stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = open_stage(embedded_settings(tmp_path))
    yield stage
    stage.services.close()
