"""`python -m penstock_server.openapi_file`: prints the OpenAPI file. Needs no database, store or network."""

import json
import sys
import tempfile
from pathlib import Path

from penstock_server.app import create_app
from penstock_server.settings import Settings


def openapi_text() -> str:
    """The same text for the same code: settings choose parts, never routes."""
    nowhere = Path(tempfile.gettempdir()) / "penstock-openapi"
    settings = Settings(data_folder=nowhere, state_folder=nowhere)
    return json.dumps(create_app(settings).openapi(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(openapi_text())
