"""What a reader gives back."""

from dataclasses import dataclass, field

from penstock_server.domain.datasets.schemas import DatasetSchema

Value = str | int | float | bool | list[str] | None


@dataclass(frozen=True, slots=True)
class SampleEntry:
    """One sample to be: `files` maps a field's name to a path below the source's folder."""

    source: str
    key: str
    files: dict[str, str]
    values: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that cannot become a sample, and why."""

    key: str
    reason: str


@dataclass(slots=True)
class Listing:
    """All samples of a source in order of (source, key), the schema they ask for, and what was put aside.

    The category columns of an inferred schema have no values yet: see `categories`.
    """

    schema: DatasetSchema
    entries: list[SampleEntry]
    problems: list[Problem] = field(default_factory=list)

    def settle(self) -> None:
        """Sort by (source, key) and put repeated keys aside."""
        self.entries.sort(key=lambda entry: (entry.source, entry.key))
        unique: list[SampleEntry] = []
        for entry in self.entries:
            if unique and (unique[-1].source, unique[-1].key) == (entry.source, entry.key):
                self.problems.append(Problem(f"{entry.source}/{entry.key}", "listed more than once"))
            else:
                unique.append(entry)
        self.entries = unique

    def categories(self) -> dict[str, list[str]]:
        """The texts that occur in each category column, sorted."""
        found: dict[str, set[str]] = {column.name: set() for column in self.schema.columns if column.is_categorical}
        for entry in self.entries:
            for name, texts in found.items():
                value = entry.values.get(name)
                if isinstance(value, str):
                    texts.add(value)
                elif isinstance(value, list):
                    texts.update(value)
        return {name: sorted(texts) for name, texts in found.items()}
