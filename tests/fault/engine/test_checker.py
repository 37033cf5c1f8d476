"""The checker itself: what it is there to find, it finds."""

import json
from collections.abc import Iterator

import pytest
from fault.engine.checker import Checker, check_exactly_once
from fault.engine.samples import FIELDS, Samples

from penstock._native import Batch, Engine, Store

SAMPLES = Samples(40, seed=1)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Store.open(json.dumps({"kind": "memory", "name": "checked"})) as store:
        SAMPLES.write(store)
        with SAMPLES.engine(store, batch_size=8) as engine:
            yield engine


def batches(engine: Engine) -> list[Batch]:
    engine.start_epoch(0)
    return [batch for _ in range(engine.steps()) if (batch := engine.next_batch()) is not None]


def test_a_whole_epoch_passes(engine: Engine) -> None:
    checker = Checker(SAMPLES)
    for batch in batches(engine):
        assert len(checker.take(batch)) == 8
    assert sorted(checker.end_epoch()) == list(range(40))


def test_a_batch_that_is_lost_or_comes_twice_is_found(engine: Engine) -> None:
    first, *others = batches(engine)
    checker = Checker(SAMPLES)
    for batch in others:
        checker.take(batch)
    with pytest.raises(AssertionError, match="8 samples never came"):
        checker.end_epoch()
    for batch in (first, first):
        checker.take(batch)
    with pytest.raises(AssertionError, match="8 samples came more than once"):
        checker.end_epoch()


@pytest.mark.parametrize("field", FIELDS)
def test_one_wrong_byte_is_found(engine: Engine, field: str) -> None:
    batch = batches(engine)[2]
    arena, _ = batch.field(field)
    memoryview(arena)[len(arena) // 2] ^= 1
    with pytest.raises(AssertionError, match=f"wrong bytes in {field}"):
        Checker(SAMPLES).take(batch)


def test_a_sample_that_comes_twice_in_an_epoch_that_is_given_up_is_found(engine: Engine) -> None:
    first, second, *_ = batches(engine)
    checker = Checker(SAMPLES)
    for batch in (first, second):
        checker.take(batch)
    checker.give_up_epoch()
    for batch in (first, first):
        checker.take(batch)
    with pytest.raises(AssertionError, match="8 samples came more than once"):
        checker.give_up_epoch()


def test_another_sample_in_the_place_of_one_is_found() -> None:
    with pytest.raises(AssertionError, match="1 samples never came: \\[1\\]"):
        check_exactly_once([0, 0, 2], 3)
