import copy
import pickle
from uuid import UUID

import numpy as np
import pytest
import torch

from penstock import Batch

IDS = np.arange(32, dtype=np.uint8).reshape(2, 16)


def torch_batch() -> Batch:
    ragged = [torch.zeros(3, 2, 2, dtype=torch.uint8), torch.ones(3, 4, 4, dtype=torch.uint8)]
    return Batch(ids=torch.from_numpy(IDS.copy()), image=ragged, tumor=torch.tensor([1, 0]), note=["a", "b"])


def test_it_is_a_real_dict_with_ids_first() -> None:
    batch = torch_batch()
    assert isinstance(batch, dict)
    assert next(iter(batch)) == "ids"


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_id_strings(kind: str) -> None:
    batch = torch_batch() if kind == "torch" else Batch(ids=IDS)
    assert batch.id_strings() == [str(UUID(bytes=IDS[0].tobytes())), str(UUID(bytes=IDS[1].tobytes()))]


def test_to_gives_a_batch_and_reaches_into_lists() -> None:
    moved = torch_batch().to(torch.float32)
    assert type(moved) is Batch
    assert {tensor.dtype for tensor in (moved["tumor"], *moved["image"])} == {torch.float32}
    assert moved["note"] == ["a", "b"]
    assert list(moved) == ["ids", "image", "tumor", "note"]


def test_numpy_batch_cannot_be_moved() -> None:
    with pytest.raises(TypeError, match="output='numpy'"):
        Batch(ids=IDS).to("cpu")
    with pytest.raises(TypeError, match="output='numpy'"):
        Batch(ids=IDS).pin_memory()


def test_copies_and_pickles_stay_batches() -> None:
    batch = Batch(ids=IDS)
    for again in (copy.copy(batch), pickle.loads(pickle.dumps(batch))):
        assert type(again) is Batch
        assert np.array_equal(again["ids"], IDS)


def test_repr_shows_shapes_not_pixels() -> None:
    assert repr(torch_batch()) == "Batch(ids: uint8(2, 16), image: 2 items, tumor: int64(2,), note: 2 items)"
