"""What every kind of worker does first: refuse, in clear words, what it cannot work with."""

import json
import sys
import threading
from collections.abc import Sequence

import structlog
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from penstock_server.db import Catalog
from penstock_server.db.migrations import CatalogUnusable, require_current
from penstock_server.settings import SettingsInvalid

EXIT_REFUSED = 1
EXIT_SETTINGS = 2
CATALOG_WAIT_SECONDS = 1.0

_log = structlog.get_logger(__name__)


def wait_for_catalog(catalog: Catalog, *, stopping: threading.Event) -> None:
    """Returns when the catalog is there; raises CatalogUnusable for one that is not of this version."""
    while not stopping.is_set():
        try:
            require_current(catalog)
        except (OperationalError, InterfaceError) as error:
            _log.warning("worker.catalog_away", reason=type(error).__name__)
            stopping.wait(CATALOG_WAIT_SECONDS)
        except DBAPIError as error:
            raise CatalogUnusable(f"the catalog cannot be read ({error.orig}): check PENSTOCK_CATALOG__URL") from None
        else:
            return


def refuse(error: SettingsInvalid | CatalogUnusable, *, is_json: bool) -> int:
    """Says why there is no worker, in the form of the `penstock` command, and gives the exit code for it."""
    is_settings = isinstance(error, SettingsInvalid)
    exit_code = EXIT_SETTINGS if is_settings else EXIT_REFUSED
    problems: Sequence[str] = error.problems if isinstance(error, SettingsInvalid) else [str(error)]
    if is_json:
        code = "settings.invalid" if is_settings else "command.refused"
        told = {"code": code, "detail": "; ".join(problems), "request_id": None, "exit_code": exit_code}
        sys.stderr.write(json.dumps({"error": told}) + "\n")
    else:
        sys.stderr.write("".join(f"penstock: {problem}\n" for problem in problems))
    return exit_code
