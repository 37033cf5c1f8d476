"""A log of what was delivered, batch by batch: out of order, only this says what a model has seen and when."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

from penstock._batch import Batch
from penstock._errors import ConfigError
from penstock._ranks import Ranks
from penstock._subset import LoadedSubset


class DeliveredLog:
    """Appends one line of JSON for every batch that a loader hands out (docs/formats.md)."""

    def __init__(self, path: str | os.PathLike[str], ranks: Ranks) -> None:
        self._path = Path(path)
        self._is_failed = False
        try:
            self._append(ranks, "")
        except OSError as error:
            raise ConfigError(
                f"delivered_log: {self._file(ranks)} cannot be written ({error.strerror}): name a file in a folder "
                "that exists and may be written"
            ) from None

    def write(self, subset: LoadedSubset, ranks: Ranks, *, epoch: int, step: int, batch: Batch) -> None:
        """Note a batch. A file that cannot be written any more ends the log with a warning, never the training."""
        if self._is_failed:
            return
        valid: list[bool] = batch["valid"].tolist()
        record: dict[str, Any] = {
            "subset": subset.digest,
            "epoch": epoch,
            "step": step,
            "ids": batch.id_strings(),
            "repeats": [row for row, is_valid in enumerate(valid) if not is_valid],
        }
        try:
            self._append(ranks, json.dumps(record, separators=(",", ":")) + "\n")
        except OSError as error:
            self._is_failed = True
            warnings.warn(
                f"delivered_log: {self._file(ranks)} cannot be written any more ({error.strerror}); it ends before "
                f"epoch {epoch}, step {step}",
                UserWarning,
                stacklevel=5,
            )

    def _append(self, ranks: Ranks, text: str) -> None:
        # Opened for each batch: nothing has to be closed, and a process that is killed has written all it delivered.
        with self._file(ranks).open("a", encoding="utf-8") as file:
            file.write(text)

    def _file(self, ranks: Ranks) -> Path:
        """Every rank has its own: lines of several processes in one file may be torn."""
        if ranks.world_size == 1:
            return self._path
        return self._path.with_name(f"{self._path.name}.rank{ranks.rank}")
