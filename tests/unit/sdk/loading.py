"""Loaders over the `Training` of conftest, and checks of their batches."""

from typing import Any

import numpy as np

from penstock import Batch
from penstock._loader import Loader


def loader_of(training: Any, **options: Any) -> Loader:
    options = {"split": "train", "output": "numpy", "batch_size": 8, "telemetry": False} | options
    loader: Loader = training.api.client().loader("demo", **options)
    return loader


def indices(training: Any, batch: Batch, *, only_valid: bool = False) -> list[int]:
    found = [training.index_of[text] for text in batch.id_strings()]
    return [index for index, is_valid in zip(found, batch["valid"], strict=True) if is_valid] if only_valid else found


def valid_indices(training: Any, batches: Any) -> list[int]:
    """The samples of all batches, without repeats that only fill up."""
    return [row for batch in batches for row in indices(training, batch, only_valid=True)]


def assert_paired(training: Any, batch: Batch) -> None:
    """Every sample has its own picture, mask and metadata."""
    rows = np.array(indices(training, batch))
    assert np.array_equal(
        np.asarray(batch["image"]), np.stack([training.pixels(row).transpose(2, 0, 1) for row in rows])
    )
    assert np.array_equal(np.asarray(batch["mask"])[:, 0, 0], rows % 7)
    assert np.array_equal(np.asarray(batch["age"]), rows)
    assert np.array_equal(np.asarray(batch["tumor"]), rows % 4 - 1)
    assert batch["note"] == [f"note {row}" for row in rows]
