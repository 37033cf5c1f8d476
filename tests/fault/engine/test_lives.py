"""Consumers that are killed, slow or give up (storage.md 6.1: S9 and S11)."""

import itertools
import json
import random
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from fault.engine.checker import check_exactly_once
from fault.engine.processes import Life, Resources, abort_epochs, child, receive
from fault.engine.ring import EngineRing

from harness.soak import IS_SOAK, repetitions, time_limit
from penstock._native import Engine

pytestmark = pytest.mark.timeout(time_limit(900))

WORLDS = (4, 2, 3)
LIFE_SECONDS = 120
# A hundred epochs are over before the allocator has all it needs; a thousand are not.
RSS_SLACK = 0.05 if IS_SOAK else 0.25


def test_s9_killed_consumers_resume_from_their_checkpoints(ring: EngineRing, run_folder: Path) -> None:
    chance = random.Random(9)
    ring.pace()
    kept: dict[int, list[int]] = {}
    state: str | None = None
    lives = repetitions(3, 50)
    for number, world_size in zip(range(lives), itertools.cycle(WORLDS), strict=False):
        batch_size = chance.choice([8, 16, 24])
        ranks = [
            Life(
                config=json.dumps(ring.config),
                samples=ring.samples,
                rank=rank,
                world_size=world_size,
                batch_size=batch_size,
                state=state,
                journal=run_folder / f"life-{number}-rank-{rank}",
            )
            for rank in range(world_size)
        ]
        # The last life goes on until an epoch is whole.
        epoch = max(kept, default=0) + 1 if number == lives - 1 else 0
        state = _live_and_die(ranks, kept, chance, epoch=epoch)
    assert len(kept) > 1
    for _, delivered in sorted(kept.items())[:-1]:
        check_exactly_once(delivered, ring.samples.n)


def _live_and_die(ranks: list[Life], kept: dict[int, list[int]], chance: random.Random, *, epoch: int) -> str:
    """Run all ranks until every one has made some steps (or reached an epoch), kill them, and return the checkpoint.

    The checkpoint is the last step that all of them have made: what came after it was never delivered.
    """
    wanted = chance.randrange(2, 20)
    processes = [rank.start() for rank in ranks]
    try:
        deadline = time.monotonic() + LIFE_SECONDS
        while not all(rank.has_made(wanted, epoch) for rank in ranks):
            assert all(process.is_alive() for process in processes), "a rank ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
    journals = [rank.steps() for rank in ranks]
    checkpoint = min((steps[-1][0], steps[-1][1]) for steps in journals)
    states = []
    for steps in journals:
        for in_epoch, step, taken, state in steps:
            if (in_epoch, step) <= checkpoint:
                kept.setdefault(in_epoch, []).extend(taken)
            if (in_epoch, step) == checkpoint:
                states.append(state)
    return Engine.merge_states(states)


def test_s11_a_slow_consumer_and_given_up_epochs_leave_nothing_behind(ring: EngineRing) -> None:
    slow_steps, epochs = repetitions(2, 12), repetitions(100, 1000)
    # With their number fixed no spare connection is closed when there is little to do, nor one opened.
    config = json.dumps(ring.config | {"lanes": 2})
    with child(abort_epochs, config, ring.samples, slow_steps, epochs) as connection:
        seen: list[tuple[Resources, RelayCounts]] = []
        for _ in range(10):
            seen.append((receive(connection, seconds=300), RelayCounts.of(ring)))
            connection.send("go on")
        assert receive(connection, seconds=120) > 0, "answers that nobody waited for were received"
    assert {counts.closed for _, counts in seen} == {seen[0][1].closed}, "connections were given up"
    (first, _), *later = seen[4:]
    for now, _ in later:
        assert abs(now.rss_bytes - first.rss_bytes) < RSS_SLACK * first.rss_bytes, [each.rss_bytes for each, _ in seen]
        assert now.threads == first.threads
        assert now.files == first.files


@dataclass(frozen=True)
class RelayCounts:
    """Connections of the one consumer, as the relays see them."""

    open: int
    closed: int

    @classmethod
    def of(cls, ring: EngineRing) -> "RelayCounts":
        stats = [relay.stats() for relay in ring.relays]
        return cls(sum(each.open for each in stats), sum(each.accepted - each.open for each in stats))
