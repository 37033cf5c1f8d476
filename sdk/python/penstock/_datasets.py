"""A dataset as a handle: ingest into it, split it, browse it."""

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock._errors import ConfigError, Conflict, NotFound
from penstock._jobs import Job
from penstock._models import DatasetInfo, JobInfo, Split, Version
from penstock._reading import read
from penstock._transport import Transport, pages
from penstock.contract.codes import ErrorCode

if TYPE_CHECKING:
    import pyarrow as pa


class Dataset:
    """A dataset by name; every property asks the server anew.

    >>> patches = client.dataset("patches")
    >>> patches.ingest("slides/", label="tumor", group="patient").wait()
    Job('job-1', 'succeeded')
    >>> split = patches.split("by-patient", {"train": 0.8, "val": 0.2}, group_by="patient")
    """

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self.name = name
        self._path = f"/datasets/{quote(name, safe='')}"

    def __repr__(self) -> str:
        return f"Dataset({self.name!r})"

    @property
    def info(self) -> DatasetInfo:
        """What the catalog knows of it. Raises NotFound when it does not exist."""
        return read(DatasetInfo, self._transport.get(self._path))

    @property
    def versions(self) -> tuple[Version, ...]:
        """All published versions."""
        return tuple(read(Version, item) for item in pages(self._transport, f"{self._path}/versions"))

    @property
    def splits(self) -> tuple[Split, ...]:
        """All splits, of all versions."""
        return tuple(read(Split, item) for item in pages(self._transport, f"{self._path}/splits"))

    def find_split(self, reference: str) -> Split:
        """The split `name[@number]`; the newest of that name when no number is given."""
        return read(Split, self._transport.get(f"{self._path}/splits/{quote(reference, safe='@')}"))

    def ingest(
        self,
        folder: str | os.PathLike[str],
        *,
        label: str | None = None,
        group: str | None = None,
        sidecar: str | None = None,
        source: str | None = None,
        create: bool = True,
    ) -> Job:
        """Add a folder of the server's machine as a new version; returns the job that does it.

        Ingesting the same folder again adds nothing; a changed file replaces its sample in the new version only.

        Args:
            folder: With one folder a class, or with a table beside the files (`sidecar`).
            label: Column that is the label; for folders of classes, the name that the label gets.
            group: Column that names the entity (patient, slide) that must not be on two sides of a split.
            sidecar: CSV or Parquet file in the folder, with metadata.
            source: Stable name of this source; the folder's own name by default.
            create: Make the dataset when it does not exist yet.
        """
        path = Path(folder).expanduser().absolute()
        described: dict[str, Any] = {"kind": "folder", "path": os.path.normpath(path)}
        if source is not None:
            described["name"] = source
        body: dict[str, Any] = {"source": described}
        optional = {"label": label, "group": group, "sidecar": sidecar}
        body.update({key: value for key, value in optional.items() if value is not None})
        key = uuid.uuid4().hex
        try:
            answer = self._transport.post(f"{self._path}/ingests", body, idempotency_key=key)
        except NotFound as error:
            if not create or error.code != ErrorCode.DATASET_NOT_FOUND:
                raise
            self._create_unless_there()
            answer = self._transport.post(f"{self._path}/ingests", body, idempotency_key=uuid.uuid4().hex)
        return Job(self._transport, read(JobInfo, answer))

    def split(
        self,
        name: str,
        subsets: Mapping[str, float],
        *,
        group_by: str | None = None,
        stratify_by: str | Sequence[str] = (),
        filter: str | None = None,
        seed: int = 0,
        version: int | None = None,
    ) -> Split:
        """Divide a version into subsets; the result never changes and has a digest.

        Args:
            name: Name of the split; the same name again makes its next number.
            subsets: Ratio of each subset, like `{"train": 0.8, "val": 0.1, "test": 0.1}`, or whole numbers of samples.
            group_by: Column whose values are never on two sides.
            stratify_by: Columns whose shares are kept alike in all subsets.
            filter: Expression; only samples that it is true for are taken.
            seed: Another seed, another division.
            version: Number of the version; the latest by default.
        """
        if not subsets:
            raise ConfigError("a split needs at least one subset, like {'train': 0.8, 'val': 0.2}")
        recipe = {
            "format": 1,
            "subsets": [_portion(subset, value) for subset, value in subsets.items()],
            "group_by": group_by,
            "stratify_by": [stratify_by] if isinstance(stratify_by, str) else list(stratify_by),
            "filter": filter,
            "seed": seed,
        }
        body: dict[str, Any] = {"name": name, "recipe": recipe}
        if version is not None:
            body["version"] = version
        return read(Split, self._transport.post(f"{self._path}/splits", body, idempotency_key=uuid.uuid4().hex))

    def samples(
        self,
        filter: str | None = None,
        *,
        version: int | None = None,
        order: str = "plan",
        limit: int | None = None,
    ) -> "pa.Table":
        """Samples as an Arrow table: id, source, key, row, then the metadata columns.

        >>> client.dataset("demo").samples("site = 'Lund' AND tumor = 'yes'", limit=100).column_names
        ['id', 'source', 'key', 'row', 'tumor', 'age', 'image_bytes']
        """
        from penstock._browse import samples_table

        number: str | int = "latest" if version is None else version
        return samples_table(
            self._transport, f"{self._path}/versions/{number}", expression=filter, order=order, limit=limit
        )

    def _create_unless_there(self) -> None:
        try:
            self._transport.post("/datasets", {"name": self.name}, idempotency_key=uuid.uuid4().hex)
        except Conflict as error:
            if error.code != ErrorCode.DATASET_EXISTS:
                raise


def _portion(subset: str, value: float) -> dict[str, Any]:
    # 1 is a ratio (everything) and 2 can only be a count.
    if isinstance(value, int) and not isinstance(value, bool) and value > 1:
        return {"name": subset, "count": value}
    return {"name": subset, "ratio": float(value)}
