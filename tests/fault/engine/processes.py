"""Consumers in processes of their own: they can be killed, and their memory is theirs alone."""

import itertools
import json
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fault.engine.checker import Checker, Consumer
from fault.engine.samples import Samples

from penstock._errors import StoreUnavailable
from penstock._native import Engine, Store

_SPAWN = multiprocessing.get_context("spawn")
END_SECONDS = 30


@dataclass(frozen=True)
class Resources:
    """What a process has of the system."""

    rss_bytes: int
    files: int
    threads: int

    @classmethod
    def of_this_process(cls) -> "Resources":
        status = _status()
        return cls(status["VmRSS"] * 1024, len(os.listdir("/proc/self/fd")), status["Threads"])


@contextmanager
def child(work: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    """A process that runs `work(connection, *arguments)` and ends well; here is the other end of the connection."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=work, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
        process.join(END_SECONDS)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()
        ours.close()


def receive(connection: Connection, seconds: float) -> Any:
    """The next message of a child."""
    assert connection.poll(seconds), f"the consumer said nothing for {seconds:.0f} s"
    return connection.recv()


def open_store(config: str) -> Store:
    """A machine on which many processes start at once may be too slow for the first try."""
    for _ in range(4):
        with suppress(StoreUnavailable):
            return Store.open(config)
    return Store.open(config)


def read_until_told(connection: Connection, config: str, samples: Samples, prefetch_bytes: int) -> None:
    """Read epoch after epoch until a message comes; answers with the growth of its memory at the highest.

    The epoch under way is then read to its end: every epoch is checked as a whole. The second answer is their number.
    """
    with open_store(config) as store, samples.engine(store, prefetch_bytes=prefetch_bytes) as engine:
        checker = Checker(samples)
        # From here on the kernel keeps the peak anew.
        Path("/proc/self/clear_refs").write_text("5")
        before = _status()["VmRSS"]
        connection.send("ready")
        is_told = False
        for epoch in itertools.count():
            engine.start_epoch(epoch)
            while (batch := engine.next_batch()) is not None:
                checker.take(batch)
                engine.ack(batch.seq)
                if not is_told and connection.poll():
                    is_told = True
                    connection.send((_status()["VmHWM"] - before) * 1024)
            checker.end_epoch()
            if is_told:
                connection.send(epoch + 1)
                return


def abort_epochs(connection: Connection, config: str, samples: Samples, slow_steps: int, epochs: int) -> None:
    """A consumer that is slow, then gives up one epoch after the other; tells its resources at each tenth of them.

    Every batch of an epoch that is given up is checked, and so is one whole epoch at the end.
    """
    chance = random.Random(11)
    with open_store(config) as store, samples.engine(store, prefetch_bytes=8 << 20) as engine:
        consumer = Consumer(engine, samples)
        steps = consumer.epoch()
        for _ in range(slow_steps):
            next(steps)
            time.sleep(5)
        for epoch in range(1, epochs + 1):
            is_tenth = epoch % (epochs // 10) == 0
            consumer.give_up_after(epoch, steps=max(chance.randrange(4), is_tenth))
            if is_tenth:
                _wait_until_full(engine)
                connection.send(Resources.of_this_process())
                connection.recv()
        consumer.run()
        connection.send(engine.stats()["discarded"])


def _wait_until_full(engine: Engine) -> None:
    """Until all that the budget allows has arrived: then the memory of one moment can be compared with another's."""
    deadline = time.monotonic() + END_SECONDS
    while engine.stats()["inflight_samples"] > 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@dataclass(frozen=True)
class Life:
    """One rank from its start or resume until it is killed."""

    config: str
    samples: Samples
    rank: int
    world_size: int
    batch_size: int
    state: str | None
    journal: Path

    def start(self) -> multiprocessing.process.BaseProcess:
        _ = self.samples.parts  # made once here and handed over with the samples
        process = _SPAWN.Process(target=self.run, daemon=True)
        process.start()
        return process

    def run(self) -> None:
        """Each step ends with one line: what it delivered, and the state after it."""
        changes = {"rank": self.rank, "world_size": self.world_size, "batch_size": self.batch_size}
        with (
            open_store(self.config) as store,
            self.samples.engine(store, last_batch="pad", prefetch_bytes=4 << 20, **changes) as engine,
            self.journal.open("a", buffering=1) as journal,
        ):
            checker = Checker(self.samples)
            epoch = 0 if self.state is None else engine.resume(self.state)[0]
            while True:
                engine.start_epoch(epoch)
                while (batch := engine.next_batch()) is not None:
                    taken = checker.take(batch)
                    engine.ack(batch.seq)
                    journal.write(json.dumps([epoch, batch.step, taken, engine.state()]) + "\n")
                epoch += 1

    def has_made(self, steps: int, epoch: int) -> bool:
        """Whether there are so many steps, and one in this epoch or a later one."""
        if not self.journal.exists():
            return False
        lines = self.journal.read_bytes().split(b"\n")[:-1]
        return len(lines) >= steps and json.loads(lines[-1])[0] >= epoch

    def steps(self) -> list[tuple[int, int, list[int], str]]:
        """What is in the journal: epoch, step, samples and state. A line that was cut short does not count."""
        return [tuple(json.loads(line)) for line in self.journal.read_bytes().split(b"\n")[:-1]]


def _status() -> dict[str, int]:
    """The numbers of /proc/self/status; sizes are in KiB."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}
