"""A worker of the kind that the settings ask for (`python -m penstock_workers`)."""

import sys

from penstock_server.settings import SettingsInvalid, load_settings


def main() -> int:
    try:
        kind = load_settings().queue.kind
    except SettingsInvalid as error:
        sys.stderr.write("".join(f"penstock: {problem}\n" for problem in error.problems))
        return 2
    if kind == "celery":
        from penstock_workers.app import main as run_celery

        return run_celery()
    from penstock_workers.local import main as run_local

    return run_local()


if __name__ == "__main__":
    sys.exit(main())
