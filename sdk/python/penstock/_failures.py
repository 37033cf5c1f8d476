"""Samples that could not be delivered: how many may be, and what is told of them.

The report speaks of steps that the user has, as the state does: what is done was delivered or stands in it, never both.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from penstock._errors import LoaderFailure, SampleCorrupt

# As in the native core: up to so many samples may fail in an epoch before their share is looked at.
FREE_FAILURES = 8
# Also as there: what is kept of samples that failed, and of sound ones that were lost with them.
MAX_FAILED = 1000
MAX_LOST = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFailure:
    """One sample that a step did not deliver: skipped, replaced, raised, or sound and lost with its batch.

    Attributes:
        epoch: The epoch in which it was wanted.
        sample_id: Its id, as in `batch.id_strings()`.
        fields: The binary fields that could not be had; none for a sound sample.
        node: The node of the store that answered last, where that is known.
        attempts: How often it was asked for; None when the bytes came.
        reason: What went wrong.
        lost_with: None for a sample that could not be read or decoded. Else this one is sound, and that other sample
            of its batch could not: its error took the place of the batch (`on_error="raise"`).
    """

    epoch: int
    sample_id: str
    fields: tuple[str, ...]
    node: str | None
    attempts: int | None
    reason: str
    lost_with: str | None = None

    @classmethod
    def from_native(
        cls,
        epoch: int,
        sample_id: bytes,
        fields: Sequence[str],
        node: str | None,
        attempts: int | None,
        reason: str,
        lost_with: bytes | None,
    ) -> "SampleFailure":
        """A row of `Engine.failures()`."""
        if lost_with is not None:
            return cls.lost(epoch, str(UUID(bytes=sample_id)), str(UUID(bytes=lost_with)))
        return cls(
            epoch=epoch,
            sample_id=str(UUID(bytes=sample_id)),
            fields=tuple(fields),
            node=node,
            attempts=attempts,
            reason=reason,
        )

    @classmethod
    def undecodable(cls, epoch: int, sample_id: str, errors: Sequence[tuple[str, SampleCorrupt]]) -> "SampleFailure":
        """A sample whose bytes came, with its bad fields and their errors."""
        return cls(
            epoch=epoch,
            sample_id=sample_id,
            fields=tuple(field for field, _ in errors),
            node=None,
            attempts=None,
            reason="; ".join(str(error) for _, error in errors),
        )

    @classmethod
    def lost(cls, epoch: int, sample_id: str, lost_with: str) -> "SampleFailure":
        """A sound sample whose batch was given up for another."""
        return cls(
            epoch=epoch,
            sample_id=sample_id,
            fields=(),
            node=None,
            attempts=None,
            reason=f"lost with its batch, because of sample {lost_with}",
            lost_with=lost_with,
        )


def joined(failures: Iterable[SampleFailure]) -> list[SampleFailure]:
    """By epoch, each sample once, failed ones first; only the newest when there are too many."""
    by_sample: dict[tuple[int, str], SampleFailure] = {}
    for failure in sorted(failures, key=lambda failure: (failure.epoch, failure.lost_with is not None)):
        by_sample.setdefault((failure.epoch, failure.sample_id), failure)
    failed = [failure for failure in by_sample.values() if failure.lost_with is None]
    lost = [failure for failure in by_sample.values() if failure.lost_with is not None]
    return sorted([*failed[-MAX_FAILED:], *lost[-MAX_LOST:]], key=lambda failure: failure.epoch)


class DecodeFailures:
    """Samples whose bytes came but are no picture, array or text; limited as those that did not come."""

    def __init__(self, max_failed_share: float) -> None:
        self._max_failed_share = max_failed_share
        self._kept: deque[SampleFailure] = deque(maxlen=MAX_FAILED)
        self._lost: deque[SampleFailure] = deque(maxlen=MAX_LOST)
        self._failed = 0
        self._outcomes = 0

    def restart(self) -> None:
        """Count from nothing, as the native core does at every start, also of an epoch that is read again."""
        self._failed = self._outcomes = 0

    def count(self, outcomes: int, failed: Sequence[SampleFailure], errors: Sequence[SampleCorrupt]) -> None:
        """Count a batch; past the limit its failures are kept at once, and LoaderFailure is raised."""
        self._outcomes += outcomes
        self._failed += len(failed)
        if failed and self._failed > max(FREE_FAILURES, self._max_failed_share * self._outcomes):
            self.keep(failed)
            raise LoaderFailure(
                f"{self._failed} of {self._outcomes} samples of this epoch could not be decoded, more than the share "
                f"of {self._max_failed_share} that is allowed",
                errors,
            )

    def keep(self, missed: Sequence[SampleFailure]) -> None:
        """The user has the step that these are missing from."""
        for failure in missed:
            (self._kept if failure.lost_with is None else self._lost).append(failure)

    def to_list(self) -> list[SampleFailure]:
        """The newest."""
        return [*self._kept, *self._lost]
