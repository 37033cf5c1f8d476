"""What a loader hands out besides batches: its iterations, and a sampler for trainers that look for one."""

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock._batch import Batch

if TYPE_CHECKING:
    from penstock._loader import Loader


class EpochSampler:
    """Stands where torch's DataLoader has its sampler, for trainers that call `sampler.set_epoch`."""

    def __init__(self, loader: "Loader") -> None:
        self._loader = weakref.ref(loader)

    def set_epoch(self, epoch: int) -> None:
        """Same as the loader's."""
        if (loader := self._loader()) is not None:
            loader.set_epoch(epoch)

    def __len__(self) -> int:
        loader = self._loader()
        return 0 if loader is None else len(loader.dataset)


class Iteration(Iterator[Batch]):
    """One pass over an epoch; ends for good when it is through or when a newer one has begun."""

    def __init__(self, loader: "Loader") -> None:
        self._loader = loader
        self._ticket: int | None = None
        self._is_over = False

    def __next__(self) -> Batch:
        if self._is_over:
            raise StopIteration
        if self._ticket is None:
            self._ticket = self._loader._begin()
        batch = self._loader._next(self._ticket)
        if batch is None:
            self._is_over = True
            raise StopIteration
        return batch

    def __len__(self) -> int:
        return len(self._loader)
