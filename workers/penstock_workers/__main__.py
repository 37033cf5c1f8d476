"""A worker of the kind that the settings ask for (`python -m penstock_workers`)."""

import sys

from penstock_server.settings import SettingsInvalid, load_settings
from penstock_workers.starting import refuse


def main() -> int:
    try:
        kind = load_settings().queue.kind
    except SettingsInvalid as error:
        return refuse(error, is_json="--json" in sys.argv)
    if kind == "celery":
        from penstock_workers.app import main as run_celery

        return run_celery()
    from penstock_workers.local import main as run_local

    return run_local()


if __name__ == "__main__":
    sys.exit(main())
