"""What a loader yields."""

import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID


class Batch(dict[str, Any]):
    """A plain dict: `ids` (uint8, one row of 16 bytes a sample), fields, columns, then `valid`.

    `valid` is false for samples that only fill the batch up. Fields whose samples differ in size, text and undecoded
    bytes are lists; all else is one tensor (or array) with the batch in its first dimension. With several ranks and
    `last_batch="partial"` the last batch may be empty: `len(batch["valid"])` is 0 then, and all else keeps its type.

    >>> import numpy as np
    >>> batch = Batch(ids=np.zeros((1, 16), np.uint8), tumor=np.array([1]), valid=np.array([True]))
    >>> batch.id_strings()
    ['00000000-0000-0000-0000-000000000000']
    """

    def __repr__(self) -> str:
        return f"Batch({', '.join(f'{name}: {_summary(value)}' for name, value in self.items())})"

    def id_strings(self) -> list[str]:
        """The sample ids in their usual text form."""
        ids = self["ids"]
        rows = ids.cpu().numpy() if hasattr(ids, "cpu") else ids
        return [str(UUID(bytes=row.tobytes())) for row in rows]

    def to(self, *arguments: Any, **options: Any) -> "Batch":
        """A batch whose tensors are on another device or of another type, as `torch.Tensor.to` takes it."""
        return self._converted(lambda tensor: tensor.to(*arguments, **options), "to()")

    def pin_memory(self, device: Any = None) -> "Batch":
        """A batch whose tensors are in page-locked memory."""
        # The argument is deprecated in torch and passed on by its pinning code all the same.
        del device
        return self._converted(lambda tensor: tensor.pin_memory(), "pin_memory()")

    def _converted(self, convert: Callable[[Any], Any], what: str) -> "Batch":
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(self.get("ids"), torch.Tensor):
            raise TypeError(f"{what} needs tensors: this batch was made with output='numpy'")

        def walk(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return convert(value)
            return [walk(item) for item in value] if isinstance(value, list) else value

        return type(self)({name: walk(value) for name, value in self.items()})


def _summary(value: Any) -> str:
    if hasattr(value, "shape"):
        return f"{value.dtype}{tuple(value.shape)}".replace("torch.", "")
    return f"{len(value)} items" if isinstance(value, list) else repr(value)
