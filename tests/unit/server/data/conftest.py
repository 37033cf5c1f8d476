"""Parts of an embedded server in a temporary folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.server.data.builders import Parts, embedded_settings, open_parts


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    opened = open_parts(embedded_settings(tmp_path))
    yield opened
    opened.close()
