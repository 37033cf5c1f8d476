"""Checks what was delivered without asking the engine: ids are counted here, bytes are derived again from the ids."""

import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from fault.engine.samples import FIELDS, Samples

from penstock._native import Batch, Engine


class Checker:
    """Every sample of an epoch exactly once, every byte as it was written."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._index_of = {samples.id(index): index for index in range(samples.n)}
        self.delivered: list[int] = []
        """Numbers of the samples of this epoch, in the order in which they came."""

    def take(self, batch: Batch) -> list[int]:
        """Check one batch and return the numbers of its samples, without repeats that stand in for others."""
        indices = [self._index_of[batch.ids[at : at + 16]] for at in range(0, len(batch.ids), 16)]
        assert len(indices) == batch.size == len(batch.valid)
        for field in FIELDS:
            arena, offsets = batch.field(field)
            ends = np.frombuffer(offsets, "<u8").tolist()
            view = memoryview(arena)
            for row, index in enumerate(indices):
                is_right = view[ends[row] : ends[row + 1]].tobytes() == self._samples.content(field, index)
                assert is_right, f"wrong bytes in {field} of sample {index}"
        taken = [index for index, is_valid in zip(indices, batch.valid, strict=True) if is_valid]
        self.delivered += taken
        return taken

    def give_up_epoch(self) -> None:
        """The epoch is left early: check that what came of it came once."""
        check_at_most_once(self.delivered)
        self.delivered = []

    def end_epoch(self) -> list[int]:
        """The epoch is over: check that nothing is missing and nothing came twice, and return what came."""
        check_exactly_once(self.delivered, self._samples.n)
        delivered, self.delivered = self.delivered, []
        return delivered


def check_exactly_once(delivered: list[int], n: int) -> None:
    missing = sorted(set(range(n)) - set(delivered))
    assert not missing, f"{len(missing)} samples never came: {missing[:10]}"
    check_at_most_once(delivered)


def check_at_most_once(delivered: list[int]) -> None:
    twice = sorted(index for index, count in Counter(delivered).items() if count > 1)
    assert not twice, f"{len(twice)} samples came more than once: {twice[:10]}"


class Consumer:
    """Takes batches as a trainer does, has each of them checked, and remembers the longest wait for one."""

    def __init__(self, engine: Engine, samples: Samples) -> None:
        self.engine = engine
        self.longest_wait = 0.0
        self._checker = Checker(samples)
        self._epoch = 0

    def epoch(self) -> Iterator[int]:
        """The next epoch, from the first to the last step; the caller may do harm after each of them."""
        self.engine.start_epoch(self._epoch)
        for step in range(self.engine.steps()):
            started = time.monotonic()
            batch = self.engine.next_batch()
            self.longest_wait = max(self.longest_wait, time.monotonic() - started)
            assert batch is not None
            assert (batch.epoch, batch.step) == (self._epoch, step)
            self._checker.take(batch)
            self.engine.ack(batch.seq)
            yield step
        assert self.engine.next_batch() is None
        self.last_order = self._checker.end_epoch()
        self._epoch += 1

    def give_up_after(self, epoch: int, *, steps: int) -> None:
        """Go to an epoch and leave it after some steps; the next whole epoch is the one after it."""
        self._checker.give_up_epoch()
        self.engine.start_epoch(epoch)
        for step in range(steps):
            batch = self.engine.next_batch()
            assert batch is not None
            assert (batch.epoch, batch.step) == (epoch, step)
            self._checker.take(batch)
            self.engine.ack(batch.seq)
        self._checker.give_up_epoch()
        self._epoch = epoch + 1

    def epochs(self, *, until: Callable[[], bool]) -> Iterator[int]:
        """Whole epochs, at least one, the last of them when `until` says so."""
        yield from self.epoch()
        while not until():
            yield from self.epoch()

    def run(self, epochs: int = 1) -> None:
        for _ in range(epochs):
            for _ in self.epoch():
                pass

    def forget_waits(self) -> None:
        self.longest_wait = 0.0
