"""Names that people type: datasets, splits, subsets, fields and columns."""

import re
from dataclasses import dataclass
from typing import Self

SLUG_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
COLUMN_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,62}$"

_SLUG = re.compile(SLUG_PATTERN)
_COLUMN = re.compile(COLUMN_PATTERN)
_NUMBER = re.compile(r"^[1-9][0-9]{0,8}$")


class InvalidName(ValueError):
    """A name that breaks the rules; the message says which one and what is allowed."""


def require_slug(value: str, *, what: str) -> str:
    """Return `value` when it may name a dataset, split or subset."""
    # `$` also matches before a trailing newline, so fullmatch it is.
    if not _SLUG.fullmatch(value):
        msg = (
            f"{value!r} is no valid {what} name: use 1 to 63 lower-case letters, digits, '.', '_' or '-', "
            "beginning with a letter or a digit"
        )
        raise InvalidName(msg)
    return value


def require_column(value: str, *, what: str) -> str:
    """Return `value` when it may name a field or a metadata column."""
    if not _COLUMN.fullmatch(value):
        msg = f"{value!r} is no valid {what} name: use 1 to 63 letters, digits or '_', beginning with a letter or '_'"
        raise InvalidName(msg)
    return value


@dataclass(frozen=True, slots=True)
class DatasetRef:
    """`name[@version]`; no version (or `latest`) means the latest published one."""

    name: str
    version: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `patches`, `patches@3` or `patches@latest`."""
        name, number = _with_number(text, what="dataset")
        return cls(name, number)

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class SplitRef:
    """`[split[@version]/]subset`; no split means the dataset's default one."""

    subset: str
    split: str | None = None
    split_version: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `train`, `by-patient/train` or `by-patient@2/train`."""
        head, slash, subset = text.rpartition("/")
        if not slash:
            if "@" in text:
                msg = f"{text!r} names a split and its version but no subset: write 'split@version/subset'"
                raise InvalidName(msg)
            return cls(require_slug(text, what="subset"))
        split, number = _with_number(head, what="split")
        return cls(require_slug(subset, what="subset"), split, number)

    def __str__(self) -> str:
        if self.split is None:
            return self.subset
        number = "" if self.split_version is None else f"@{self.split_version}"
        return f"{self.split}{number}/{self.subset}"


def _with_number(text: str, *, what: str) -> tuple[str, int | None]:
    name, at, number = text.partition("@")
    require_slug(name, what=what)
    if not at or number == "latest":
        return name, None
    if not _NUMBER.fullmatch(number):
        msg = f"{number!r} in {text!r} is no version of a {what}: use a positive whole number or 'latest'"
        raise InvalidName(msg)
    return name, int(number)
