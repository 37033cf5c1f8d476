"""A dataset for torch's own worker processes; apart, because importing torch takes seconds."""

from collections.abc import Iterator
from typing import Any

import torch.utils.data
from fault.loader_workers import ids_of_rank

import penstock


class OwnLoader(torch.utils.data.IterableDataset[Any]):
    """Makes its loader where it is iterated: in the worker."""

    def __init__(self, client: penstock.Client) -> None:
        self.client = client

    def __iter__(self) -> Iterator[list[str]]:
        worker = torch.utils.data.get_worker_info()
        assert worker is not None
        yield ids_of_rank(self.client, worker.id, worker.num_workers)
