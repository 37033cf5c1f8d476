"""A saved place in a training: one line of text that outlives the process, its ranks and its batch size."""

import base64
import binascii
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from penstock._errors import StateError
from penstock._models import LoaderPlan
from penstock.contract.names import DatasetRef, SplitRef

# One leaf: checkpoint libraries mix several leaves of several ranks.
KEY = "penstock"
FORMAT = "1"
_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user named, before the server pinned the rest."""

    dataset: DatasetRef
    split: SplitRef

    def __str__(self) -> str:
        return f"{self.dataset} {self.split}"


@dataclass(frozen=True, slots=True)
class Pin:
    """The exact subset that a state is about: a newer version of the split has other members."""

    dataset_id: str
    dataset: str
    version: int
    split: str
    split_version: int
    subset: str

    @classmethod
    def of(cls, plan: LoaderPlan) -> Self:
        """The subset of a plan."""
        return cls(
            plan.dataset.id,
            plan.dataset.slug,
            plan.version.number,
            plan.split.name,
            plan.split.number,
            plan.subset.name,
        )

    def __str__(self) -> str:
        return f"{self.dataset}@{self.version} {self.split}@{self.split_version}/{self.subset}"

    def is_same(self, other: Self) -> bool:
        """Whether both name one subset; a dataset may have got another name meanwhile."""
        return dataclasses.replace(self, dataset=other.dataset) == other

    def is_within(self, asked: Asked, dataset_id: str) -> bool:
        """Whether this is one of the subsets that `asked` may stand for."""
        pairs = (
            (asked.dataset.version, self.version),
            (asked.split.split, self.split),
            (asked.split.split_version, self.split_version),
            (asked.split.subset, self.subset),
            (dataset_id, self.dataset_id),
        )
        return all(wanted is None or wanted == own for wanted, own in pairs)

    def as_asked(self, dataset: str) -> Asked:
        """The reference that names exactly this one."""
        return Asked(DatasetRef(dataset, self.version), SplitRef(self.subset, self.split, self.split_version))


@dataclass(frozen=True, slots=True)
class SavedState:
    """A state taken apart: which subset, and the engine's own line about the place in it."""

    pin: Pin
    place: str

    def to_dict(self) -> dict[str, str]:
        """The form that goes into a checkpoint."""
        pin = base64.urlsafe_b64encode(json.dumps(dataclasses.asdict(self.pin)).encode()).decode()
        text = f"{FORMAT}.{pin}.{self.place}"
        return {KEY: f"{text}.{_digest(text)}"}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self | None:
        """Read a state and check it; None for an empty one."""
        if not isinstance(state, Mapping):
            raise StateError(f"a state is a dict as state_dict() gives it, not {type(state).__name__}")
        if not state:
            return None
        text = state.get(KEY)
        if not isinstance(text, str):
            raise StateError(f"this is not a saved state of a loader: it has no text under {KEY!r}")
        found_format, _, rest = text.partition(".")
        if found_format != FORMAT and found_format.isdigit():
            raise StateError(
                f"the state has format {found_format}, this version of Penstock reads {FORMAT}: "
                "use the version that saved it"
            )
        pin, _, place_and_digest = rest.partition(".")
        place, _, digest = place_and_digest.rpartition(".")
        if found_format != FORMAT or not place or not text.isascii():
            raise StateError("this is not a saved state of a loader")
        if digest != _digest(text.removesuffix(f".{digest}")):
            raise StateError("the state is damaged: its digest does not fit; take an older checkpoint")
        try:
            return cls(Pin(**json.loads(base64.urlsafe_b64decode(pin))), place)
        except (TypeError, ValueError, binascii.Error) as error:
            raise StateError(f"the state cannot be read: {error}") from None


def merge_states(states: Sequence[Mapping[str, Any]], *, allow_skew: bool = False) -> dict[str, str]:
    """The states of all ranks as one, which a loader of any rank, world size and batch size can go on from.

    Args:
        states: What `loader.state_dict()` gave on each rank, in any order.
        allow_skew: Take ranks that are missing or stand at different steps as they are. Samples that only a missing
            rank has seen come again.

    Raises:
        StateError: States of different subsets, epochs or worlds, a missing rank, or different steps.

    >>> import penstock
    >>> penstock.merge_states([])
    Traceback (most recent call last):
        ...
    penstock._errors.StateError: these states cannot be merged: there is no state to merge
    """
    from penstock._native import Engine

    saved = [one for state in states if (one := SavedState.from_dict(state)) is not None]
    if other := next((one.pin for one in saved if not one.pin.is_same(saved[0].pin)), None):
        raise StateError(f"these states cannot be merged: they are of {saved[0].pin} and of {other}")
    try:
        place = Engine.merge_states([one.place for one in saved], allow_skew=allow_skew)
    except ValueError as error:
        raise StateError(str(error)) from None
    return SavedState(saved[0].pin, place).to_dict()


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
