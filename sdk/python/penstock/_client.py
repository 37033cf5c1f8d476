"""The client: one server, one identity."""

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import httpx

from penstock._config import DATASET_VARIABLE, resolve_config
from penstock._datasets import Dataset
from penstock._errors import ConfigError
from penstock._jobs import Job
from penstock._models import DatasetInfo, JobInfo, LoaderPlan, NewToken, TokenInfo
from penstock._plan import resolved
from penstock._reading import read
from penstock._state import Asked
from penstock._transport import Transport, pages
from penstock.contract.names import DatasetRef, InvalidName, SplitRef, require_slug

if TYPE_CHECKING:
    from penstock._loader import Loader


class Client:
    """Talks to a Penstock server.

    Without arguments it takes `PENSTOCK_URL`, `PENSTOCK_TOKEN` and `PENSTOCK_DATASET`, and without those it finds a
    `penstock up` that you run on this machine. Pickling a client leaves out the token, which the other process takes
    from its environment, and `http_transport`.

    Args:
        base_url: Address of the server, like `https://penstock.lab`.
        token: Access token (`pst_...`).
        dataset: Name of the dataset that `loader()` takes when none is named.
        timeout_seconds: How long to wait for an answer.
        http_transport: Replaces the network, for tests.

    >>> from penstock import Client
    >>> with Client("http://127.0.0.1:8080", token="pst_example") as client:
    ...     client
    Client('http://127.0.0.1:8080')
    """

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        dataset: str | None = None,
        timeout_seconds: float = 30.0,
        http_transport: httpx.BaseTransport | None = None,
    ) -> None:
        config = resolve_config(base_url, token, dataset=dataset)
        self._timeout_seconds = timeout_seconds
        self._transport = Transport(config, http_transport=http_transport, timeout_seconds=timeout_seconds)

    def __repr__(self) -> str:
        return f"Client({self.base_url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored_client, (self.base_url, self._transport.config.dataset, self._timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def base_url(self) -> str:
        """Address of the server."""
        return self._transport.config.base_url

    def close(self) -> None:
        """Close the connections to the server; loaders go on."""
        self._transport.close()

    def dataset(self, name: str | None = None) -> Dataset:
        """The dataset `name`, as a handle; nothing is asked of the server yet."""
        return Dataset(self._transport, _parsed_dataset(self._named(name)).name)

    def datasets(self, query: str | None = None) -> Iterator[DatasetInfo]:
        """All datasets, or those whose name or description has `query` in it."""
        for item in pages(self._transport, "/datasets", query=query):
            yield read(DatasetInfo, item)

    def create_dataset(
        self,
        name: str,
        *,
        description: str | None = None,
        project: str | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """Make an empty dataset; without a schema the first ingest infers it."""
        body: dict[str, Any] = {"name": _checked_slug(name)}
        optional = {"description": description, "project": project, "schema": schema}
        body.update({key: value for key, value in optional.items() if value is not None})
        self._transport.post("/datasets", body, idempotency_key=uuid.uuid4().hex)
        return Dataset(self._transport, name)

    def job(self, job_id: str) -> Job:
        """The job with this id."""
        return Job(self._transport, read(JobInfo, self._transport.get(f"/jobs/{quote(job_id, safe='')}")))

    def jobs(self, *, state: str | None = None, dataset: str | None = None) -> Iterator[Job]:
        """Jobs, newest first."""
        for item in pages(self._transport, "/jobs", state=state, dataset=dataset):
            yield Job(self._transport, read(JobInfo, item))

    def tokens(self) -> Iterator[TokenInfo]:
        """Your access tokens."""
        for item in pages(self._transport, "/tokens"):
            yield read(TokenInfo, item)

    def create_token(self, name: str, *, expires_in_days: int | None = None) -> NewToken:
        """Make an access token; its secret is in the answer and never shown again."""
        body: dict[str, Any] = {"name": name}
        if expires_in_days is not None:
            body["expires_in_days"] = expires_in_days
        answer = self._transport.post("/tokens", body, idempotency_key=uuid.uuid4().hex)
        return NewToken(read(TokenInfo, answer), str(answer["secret"]))

    def revoke_token(self, token_id: str) -> None:
        """Make a token useless from now on."""
        self._transport.request("DELETE", f"/tokens/{quote(token_id, safe='')}")

    def resolve(self, dataset: str | None = None, *, split: str) -> LoaderPlan:
        """Pin a subset: its version, split, members and store, as the loader will read them."""
        return resolved(self._transport, self._asked(dataset, split))

    def loader(
        self,
        dataset: str | None = None,
        *,
        split: str,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        pin_memory: bool = False,
        in_order: bool = False,
        seed: int = 0,
        fields: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        decode: str | None = "auto",
        output: str = "torch",
        rank: int | None = None,
        world_size: int | None = None,
        last_batch: str | None = None,
        on_error: str = "raise",
        max_failed_share: float = 0.01,
        max_displacement: int = 8,
        prefetch_bytes: int | None = None,
        window_bytes: int | None = None,
        lanes: int | None = None,
        store_wait_seconds: float = 60.0,
        run: str | None = None,
        telemetry: bool = True,
        delivered_log: "str | os.PathLike[str] | None" = None,
        **torch_arguments: Any,
    ) -> "Loader":
        """Stream a subset into this process, batch by batch, each sample exactly once an epoch.

        Args:
            dataset: `name[@version]`; the client's default dataset when left out, its latest version when not given.
            split: `[split[@version]/]subset`, for example `train` or `by-patient@2/val`.
            batch_size: Samples a batch on this rank.
            shuffle: A new order each epoch, from `seed` and the epoch, the same on every machine.
            drop_last: Short for `last_batch="drop"`.
            pin_memory: Copy batches into page-locked memory (torch with CUDA).
            in_order: Keep the order of the plan exactly. By default a batch takes what arrives first, which is faster;
                every sample still comes exactly once.
            seed: Must be equal on all ranks.
            fields: Binary fields to read; all by default.
            columns: Metadata columns in the batch; by default all that the split carries (label, group, ...).
            decode: `"auto"` turns images into uint8 CHW arrays, masks into HW, arrays and text into what they are;
                `None` gives the stored bytes as 1-D uint8 views.
            output: `"torch"` or `"numpy"`.
            rank, world_size: Both or neither; else torch.distributed, RANK/WORLD_SIZE or Slurm decide.
            last_batch: `"drop"`, `"partial"` (default on one rank) or `"pad"` (default on several; repeats are marked
                false in `batch["valid"]`).
            on_error: What a sample that cannot be read (after all retries) or decoded does: `"raise"` puts an error
                that names it in the place of its batch (the next call goes on behind it; the other samples of that
                batch are in the error's `lost_ids` and do not come again in this epoch), `"skip"` makes it shorter,
                `"replace"` puts a repeat in its place that is false in `batch["valid"]`. The number of steps never
                changes, and `loader.failures()` names every sample that did not come.
            max_failed_share: Share of an epoch's samples that may be skipped or replaced before `LoaderFailure` is
                raised; the first eight always may.
            max_displacement: Batches that a slow sample may come late by, and fewer near the end of an epoch; without
                meaning when `in_order`.
            prefetch_bytes: Most bytes requested, arrived and in assembly. By default this loader's share of 1 GiB or of
                a quarter of the free memory, whichever is less, divided anew whenever a loader of this process opens
                or closes; a store on this machine takes less of it. The ranks of a machine divide it as torchrun
                (`LOCAL_WORLD_SIZE`) or Slurm counts them: a script that starts its ranks in another way (as
                `torch.multiprocessing.spawn` does) sets `LOCAL_WORLD_SIZE`, or chooses a budget here.
            window_bytes: Most bytes requested and not yet arrived; the engine finds the best by itself when left out.
            lanes: Connections to each node of the store, up to 64; found by itself when left out. Without meaning for
                a store on this machine.
            store_wait_seconds: How long to wait for a store that does not answer at all.
            run: Name under which all loaders of one training are shown together.
            telemetry: Whether the Live page may show this loader.
            delivered_log: A file to which every batch that is handed out adds a line of JSON with its epoch, step and
                sample ids, to see or repeat later what a model was given; on several ranks each has its own, named
                `<file>.rank<r>`.
            torch_arguments: `num_workers`, `prefetch_factor`, `timeout` and the like are accepted for scripts written
                for torch's DataLoader and explained in a warning.

        Raises:
            NotFound: No such dataset, split or subset.
            ConfigError: Arguments that cannot be, or a store that cannot be reached from here.

        >>> loader = client.loader("demo", split="train", batch_size=64, shuffle=True)
        >>> for batch in loader:
        ...     print(batch["image"].dtype, tuple(batch["image"].shape), tuple(batch["tumor"].shape))
        torch.uint8 (64, 3, 8, 8) (64,)
        torch.uint8 (37, 3, 8, 8) (37,)
        >>> loader.close()
        """
        # Here and not above: the catalog's side of the SDK loads neither numpy nor the native core.
        from penstock._arguments import LoaderArguments
        from penstock._loader import Loader

        arguments = LoaderArguments.checked(
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            pin_memory=pin_memory,
            in_order=in_order,
            seed=seed,
            fields=fields,
            columns=columns,
            decode=decode,
            output=output,
            rank=rank,
            world_size=world_size,
            last_batch=last_batch,
            on_error=on_error,
            max_failed_share=max_failed_share,
            max_displacement=max_displacement,
            prefetch_bytes=prefetch_bytes,
            window_bytes=window_bytes,
            lanes=lanes,
            store_wait_seconds=store_wait_seconds,
            run=run,
            has_telemetry=telemetry,
            delivered_log=delivered_log,
            torch_arguments=torch_arguments,
        )
        return Loader(self._asked(dataset, split), arguments, self._transport)

    def _asked(self, dataset: str | None, split: str) -> Asked:
        reference = _parsed_dataset(self._named(dataset))
        try:
            return Asked(reference, SplitRef.parse(split))
        except InvalidName as error:
            raise ConfigError(str(error)) from None

    def _named(self, dataset: str | None) -> str:
        name = dataset or self._transport.config.dataset
        if name is None:
            raise ConfigError(f"no dataset was named: pass one, or set {DATASET_VARIABLE}")
        return name


def _restored_client(base_url: str, dataset: str | None, timeout_seconds: float) -> Client:
    return Client(base_url, dataset=dataset, timeout_seconds=timeout_seconds)


def _parsed_dataset(text: str) -> DatasetRef:
    try:
        return DatasetRef.parse(text)
    except InvalidName as error:
        raise ConfigError(str(error)) from None


def _checked_slug(name: str) -> str:
    try:
        return require_slug(name, what="dataset")
    except InvalidName as error:
        raise ConfigError(str(error)) from None
