"""What a loader reads: the pinned subset, and which of its fields and columns."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock._errors import ConfigError
from penstock._models import LoaderPlan
from penstock.contract.members import MembersColumn, MembersField, MembersHeader

RESERVED_NAMES = ("ids", "valid")


@dataclass(frozen=True, slots=True)
class LoadedSubset:
    """A subset, pinned; stands where torch's DataLoader has its dataset, so its `len` is the number of samples."""

    dataset: str
    version: int
    split: str
    split_version: int
    subset: str
    digest: str
    count: int

    @classmethod
    def of(cls, plan: LoaderPlan) -> "LoadedSubset":
        """The subset of a plan."""
        return cls(
            plan.dataset.slug,
            plan.version.number,
            plan.split.name,
            plan.split.number,
            plan.subset.name,
            plan.subset.digest,
            plan.subset.count,
        )

    def __len__(self) -> int:
        return self.count

    def __str__(self) -> str:
        return f"{self.dataset}@{self.version} {self.split}@{self.split_version}/{self.subset}"


def chosen_fields(header: MembersHeader, names: Sequence[str] | None) -> tuple[MembersField, ...]:
    """The fields to read, in the order asked for."""
    known = {field.name: field for field in header.fields}
    wanted = tuple(known) if names is None else tuple(names)
    _require_known("fields", wanted, known)
    if not wanted:
        raise ConfigError(f"fields=[] reads nothing: choose from {_listed(known)}")
    return tuple(known[name] for name in wanted)


def chosen_columns(
    header: MembersHeader, names: Sequence[str] | None, *, fields: Sequence[MembersField]
) -> tuple[MembersColumn, ...]:
    """The metadata columns to put into the batch, in the order asked for."""
    known = {column.name: column for column in header.columns}
    wanted = tuple(known) if names is None else tuple(names)
    _require_known("columns", wanted, known)
    taken = (*RESERVED_NAMES, *(field.name for field in fields))
    if clashing := [name for name in wanted if name in taken]:
        raise ConfigError(f"columns {_listed(clashing)} would stand twice in a batch: leave them out of columns=")
    return tuple(known[name] for name in wanted)


def _require_known(
    argument: str, wanted: Sequence[str], known: dict[str, MembersField] | dict[str, MembersColumn]
) -> None:
    if missing := [name for name in wanted if name not in known]:
        raise ConfigError(f"{argument}: this split has no {_listed(missing)}; it carries {_listed(known)}")


def _listed(names: Sequence[str] | dict[str, MembersField] | dict[str, MembersColumn]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
