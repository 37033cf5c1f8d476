"""Divides the default read-ahead of this process among its loaders, anew whenever one opens or closes."""

import os
import threading
import weakref
from typing import Protocol


class ShareHolder(Protocol):
    """A loader that counts."""

    def take_share(self, live_loaders: int) -> None:
        """So many loaders divide the budget from now on."""
        ...


class ReadAheadShares:
    """The live loaders of this process."""

    def __init__(self) -> None:
        # A loader may be collected, and so leave, while this thread lets another one join.
        self._lock = threading.RLock()
        self._holders: weakref.WeakSet[ShareHolder] = weakref.WeakSet()

    def join(self, holder: ShareHolder) -> int:
        """Count this one too; returns how many there are."""
        with self._lock:
            self._holders.add(holder)
            return self._divide()

    def leave(self, holder: ShareHolder) -> None:
        """The others divide what this one had."""
        with self._lock:
            if holder in self._holders:
                self._holders.discard(holder)
                self._divide()

    def _divide(self) -> int:
        holders = list(self._holders)
        for holder in holders:
            holder.take_share(len(holders))
        return len(holders)

    def forget_after_fork(self) -> None:
        """The loaders are those of the parent."""
        self._lock = threading.RLock()
        self._holders = weakref.WeakSet()


shares = ReadAheadShares()
os.register_at_fork(after_in_child=shares.forget_after_fork)
