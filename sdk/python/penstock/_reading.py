"""Turns JSON of the server into the frozen dataclasses of `_models`, by their annotations."""

import dataclasses
import types
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from penstock._errors import TransportError

T = TypeVar("T")


def read(model: type[T], document: object) -> T:
    """Build `model` from a decoded JSON value.

    Members that the model does not know are ignored, so that a newer server can be talked to.
    """
    try:
        value = _read(model, document, "")
    except (TypeError, ValueError) as error:
        raise TransportError(
            f"the server's answer is no {model.__name__}: {error}; is this address a Penstock server of this release?"
        ) from None
    assert isinstance(value, model)  # noqa: S101 (tells mypy what _read built)
    return value


@cache
def _hints(model: type) -> dict[str, Any]:
    return get_type_hints(model)


def _read(kind: Any, value: object, place: str) -> object:
    if kind is Any:
        return value
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(kind) if option is not type(None)]
        return None if value is None else _read(options[0], value, place)
    if origin is tuple:
        items = _expect(list, value, place)
        return tuple(_read(get_args(kind)[0], item, f"{place}[{index}]") for index, item in enumerate(items))
    if origin is not None:
        members = _expect(dict, value, place)
        return {name: _read(get_args(kind)[1], item, f"{place}.{name}") for name, item in members.items()}
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, value, place)
    return _read_scalar(kind, value, place)


def _read_dataclass(kind: Any, value: object, place: str) -> object:
    document: Mapping[str, object] = _expect(dict, value, place)
    members = {}
    for field in dataclasses.fields(kind):
        if field.name in document:
            members[field.name] = _read(_hints(kind)[field.name], document[field.name], f"{place}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{place}.{field.name} is missing".lstrip("."))
    return kind(**members)


def _read_scalar(kind: Any, value: object, place: str) -> object:
    if kind is datetime:
        moment = datetime.fromisoformat(_expect(str, value, place))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return _expect(kind, value, place)


def _expect(kind: Any, value: object, place: str) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{place.lstrip('.') or 'it'} should be {kind.__name__}, got {type(value).__name__}")
    return value
