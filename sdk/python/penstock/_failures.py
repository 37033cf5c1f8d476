"""Samples that could not be delivered: how many may be, and what is told of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from penstock._errors import LoaderFailure, SampleCorrupt

# As in the native core: up to so many samples may fail in an epoch before their share is looked at.
FREE_FAILURES = 8
MAX_KEPT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFailure:
    """One sample that was skipped or replaced, or that ended the iteration.

    Attributes:
        epoch: The epoch in which it was wanted.
        sample_id: Its id, as in `batch.id_strings()`.
        fields: The binary fields that could not be had.
        node: The node of the store that answered last, where that is known.
        attempts: How often it was asked for; None when the bytes came but could not be decoded.
        reason: What went wrong.
    """

    epoch: int
    sample_id: str
    fields: tuple[str, ...]
    node: str | None
    attempts: int | None
    reason: str

    @classmethod
    def from_native(
        cls, epoch: int, sample_id: bytes, fields: Sequence[str], node: str | None, attempts: int | None, reason: str
    ) -> "SampleFailure":
        """A row of `Engine.failures()`."""
        return cls(
            epoch=epoch,
            sample_id=str(UUID(bytes=sample_id)),
            fields=tuple(fields),
            node=node,
            attempts=attempts,
            reason=reason,
        )


class DecodeFailures:
    """Samples whose bytes came but are no picture, array or text; limited as those that did not come."""

    def __init__(self, max_failed_share: float) -> None:
        self._max_failed_share = max_failed_share
        self._kept: list[SampleFailure] = []
        self._epoch: int | None = None
        self._failed = 0
        self._outcomes = 0

    def note(
        self, epoch: int, outcomes: int, errors: Sequence[tuple[str, str, SampleCorrupt]], *, is_limited: bool
    ) -> None:
        """Count a batch and keep its failures (sample id, field, error); raises LoaderFailure past the limit."""
        if epoch != self._epoch:
            self._epoch, self._failed, self._outcomes = epoch, 0, 0
        self._outcomes += outcomes
        self._failed += len({sample_id for sample_id, _, _ in errors})
        self._kept += [
            SampleFailure(
                epoch=epoch, sample_id=sample_id, fields=(field,), node=None, attempts=None, reason=str(error)
            )
            for sample_id, field, error in errors
        ]
        del self._kept[:-MAX_KEPT]
        if is_limited and errors and self._failed > max(FREE_FAILURES, self._max_failed_share * self._outcomes):
            raise LoaderFailure(
                f"{self._failed} of {self._outcomes} samples of this epoch could not be decoded, more than the share "
                f"of {self._max_failed_share} that is allowed",
                [error for _, _, error in errors],
            )

    def to_list(self) -> list[SampleFailure]:
        """The last thousand."""
        return list(self._kept)
