"""The closed set of codes: what the server raises is in it, and all of it is raised somewhere."""

import ast
from collections.abc import Iterator
from pathlib import Path

import penstock_server
from penstock.contract.codes import ErrorCode
from penstock_server import errors

SERVER = Path(penstock_server.__file__).parent
WORKERS = SERVER.parents[1] / "workers" / "penstock_workers"


def used_codes() -> Iterator[str]:
    for path in [*SERVER.rglob("*.py"), *WORKERS.rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ErrorCode":
                yield node.attr


def test_every_code_that_is_raised_exists() -> None:
    assert set(used_codes()) <= set(ErrorCode.__members__)


def test_every_code_is_raised_somewhere() -> None:
    assert set(ErrorCode.__members__) - set(used_codes()) == set()


def test_every_error_class_has_a_status_of_its_own() -> None:
    classes = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ServerError)
    ]
    statuses = [kind.default_status for kind in classes]

    assert len(statuses) == len(set(statuses))
    assert all(400 <= status < 600 for status in statuses)


def test_names_and_values_of_codes_agree() -> None:
    for name, code in ErrorCode.__members__.items():
        assert name == code.value.upper().replace(".", "_")
