"""Samples that cannot be had: raised, skipped or replaced, and always reported."""

import json
import time
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from unit.sdk.loading import assert_paired, indices, loader_of, valid_indices

import penstock
from penstock import _errors as errors
from penstock import _native

LOST = (3, 40, 41, 100)
# The batches of eight in which they are, in order.
LOST_STEPS = (0, 5, 12)


@pytest.fixture(params=["memory", "lmdb"])
def training(request: pytest.FixtureRequest, training: Any, lmdb_training: Any) -> Any:
    """A store that is read sample by sample, and one that fills batches itself."""
    chosen = training if request.param == "memory" else lmdb_training
    chosen._offer()
    return chosen


only_memory = pytest.mark.parametrize("training", ["memory"], indirect=True)


def writable(training: Any) -> dict[str, Any]:
    config = dict(training.store_config)
    return config | {"is_read_only": False} if config["kind"] == "lmdb" else config


def lose(training: Any, rows: Any) -> None:
    with _native.Store.open(json.dumps(writable(training))) as store:
        store.delete("samples", training.dataset_id.bytes, [training.object_ids[row].bytes for row in rows])


def restore(training: Any) -> None:
    with _native.Store.open(json.dumps(writable(training))) as store:
        training.write_to(store)


def spoil(training: Any, rows: Any) -> Any:
    """The same dataset with samples whose bytes are sound and no pictures."""
    again = type(training)(training.api, training.store_config, count=101, rows_a_part=60)
    for row in rows:
        again.payloads[row]["image"] = b"no picture"
    again.parts = [again._part(range(60)), again._part(range(60, 101))]
    again._offer()
    restore(again)
    return again


@pytest.fixture(params=["lost", "spoiled"])
def hurt(request: pytest.FixtureRequest, training: Any) -> Any:
    if request.param == "spoiled":
        return spoil(training, LOST)
    lose(training, LOST)
    return training


def taken(running: Any, steps: int) -> tuple[list[Any], list[int]]:
    """The batches of some steps, and the steps at which an error came instead."""
    batches, failed = [], []
    for step in range(steps):
        try:
            batches.append(next(running))
        except errors.StoreError:
            failed.append(step)
    return batches, failed


def test_skip_makes_batches_shorter_and_keeps_the_steps(hurt: Any) -> None:
    with loader_of(hurt, on_error="skip", max_failed_share=0.5, in_order=True) as loader:
        batches = list(loader)
        assert len(batches) == len(loader) == 13
        for batch in batches:
            assert_paired(hurt, batch)
            assert batch["valid"].all()
        assert [len(batch["ids"]) for batch in batches] == [7] + [8] * 4 + [6] + [8] * 6 + [4]
    assert valid_indices(hurt, batches) == [row for row in range(101) if row not in LOST]


def test_replace_puts_flagged_repeats(hurt: Any) -> None:
    with loader_of(hurt, on_error="replace", max_failed_share=0.5, in_order=True) as loader:
        batches = list(loader)
        assert len(batches) == len(loader)
        for batch in batches:
            assert_paired(hurt, batch)
        assert [len(batch["ids"]) for batch in batches] == [8] * 12 + [5]
        assert sum(int((~batch["valid"]).sum()) for batch in batches) == len(LOST)
    assert valid_indices(hurt, batches) == [row for row in range(101) if row not in LOST]
    assert not set(LOST) & {row for batch in batches for row in indices(hurt, batch)}


@only_memory
@pytest.mark.parametrize("way", ["lost", "spoiled"])
def test_an_epoch_that_is_read_again_may_fail_as_much_as_before(training: Any, way: str) -> None:
    rows = (3, 20, 40, 41, 100)
    if way == "spoiled":
        training = spoil(training, rows)
    else:
        lose(training, rows)
    # The limit is the first eight of every pass: five are below it, and two passes together are not.
    with loader_of(training, on_error="skip", max_failed_share=0.0) as loader:
        for _ in range(3):
            loader.set_epoch(0)
            assert len(valid_indices(training, loader)) == 96


def test_failures_are_reported_also_after_closing(hurt: Any) -> None:
    with loader_of(hurt, on_error="skip", max_failed_share=0.5) as loader:
        assert loader.failures() == []
        list(loader)
    first = [failure for failure in loader.failures() if failure.epoch == 0]
    assert sorted(hurt.index_of[failure.sample_id] for failure in first) == list(LOST)
    for failure in first:
        assert "image" in failure.fields
        assert failure.node is None
        assert failure.reason


def test_failed_samples_count_as_done_in_the_state(hurt: Any) -> None:
    with loader_of(hurt, on_error="skip", max_failed_share=0.5, in_order=True) as loader:
        running = iter(loader)
        seen = [next(running) for _ in range(6)]
        state = loader.state_dict()
    with loader_of(hurt, on_error="skip", max_failed_share=0.5, in_order=True) as loader:
        loader.load_state_dict(state)
        seen += list(loader)
    assert valid_indices(hurt, seen) == [row for row in range(101) if row not in LOST]


def test_raise_names_the_sample_and_reports_it(hurt: Any) -> None:
    with loader_of(hurt, in_order=True) as loader:
        running = iter(loader)
        with pytest.raises(errors.StoreError, match=str(hurt.sample_ids[3])):
            next(running)
        assert str(hurt.sample_ids[3]) in {failure.sample_id for failure in loader.failures()}


def test_raise_names_all_samples_of_the_batch_in_the_error(hurt: Any) -> None:
    with loader_of(hurt, in_order=True) as loader:
        running = iter(loader)
        with pytest.raises(errors.StoreError, match="the 7 other samples of its batch are lost with it") as caught:
            next(running)
    assert hurt.index_of[caught.value.sample_id] == 3
    assert sorted(hurt.index_of[text] for text in caught.value.lost_ids) == [0, 1, 2, 4, 5, 6, 7]


def named_by(loader: Any, training: Any, epoch: int = 0) -> list[int]:
    return sorted(training.index_of[failure.sample_id] for failure in loader.failures() if failure.epoch == epoch)


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize("world_size", [1, 3])
def test_everything_comes_or_is_named_over_ranks_and_a_resume(hurt: Any, on_error: str, world_size: int) -> None:
    options = {"on_error": on_error, "max_failed_share": 0.5, "shuffle": True, "seed": 3}
    come: list[int] = []
    named: list[int] = []
    raised: list[int] = []
    states = []
    for rank in range(world_size):
        with loader_of(hurt, rank=rank, world_size=world_size, batch_size=4, **options) as loader:
            take_up_to(loader, 4, hurt, come, raised)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                states.append(loader.state_dict())
            named += named_by(loader, hurt)
    merged = penstock.merge_states(states)
    for rank in range(2):
        with loader_of(hurt, rank=rank, world_size=2, batch_size=8, **options) as loader:
            loader.load_state_dict(merged)
            take_up_to(loader, len(loader), hurt, come, raised)
            named += named_by(loader, hurt)
    assert set(LOST) <= set(named)
    assert sorted(come + named) == list(range(101)), "each once: come, or named"
    if on_error == "raise":
        # Padding that cannot be read is an error too, about a sample that is another's.
        assert set(named) <= set(raised) <= set(named) | set(LOST)
    else:
        assert sorted(named) == list(LOST)
        assert raised == []


def take_up_to(loader: Any, steps: int, training: Any, come: list[int], raised: list[int]) -> None:
    """Go on until so many steps of the epoch are done, and note what came and what the errors name."""
    running = iter(loader)
    while loader.epoch == 0 and loader.stats()["step"] < steps:
        try:
            come += valid_indices(training, [next(running)])
        except errors.StoreError as error:
            raised += [training.index_of[text] for text in (error.sample_id, *error.lost_ids)]


def test_the_report_tells_failed_samples_from_those_lost_with_them(hurt: Any) -> None:
    with loader_of(hurt, in_order=True) as loader:
        taken(iter(loader), len(loader))
    of_epoch = [failure for failure in loader.failures() if failure.epoch == 0]
    failed = {hurt.index_of[failure.sample_id] for failure in of_epoch if failure.lost_with is None}
    assert failed == set(LOST)
    lost = {hurt.index_of[failure.sample_id]: failure for failure in of_epoch if failure.lost_with is not None}
    assert set(lost) == {row for row in range(101) if row // 8 in LOST_STEPS} - set(LOST)
    for row, failure in lost.items():
        assert failure.lost_with is not None
        assert hurt.index_of[failure.lost_with] // 8 == row // 8
        assert (failure.fields, failure.attempts) == ((), None)
        assert failure.lost_with in failure.reason


def test_a_batch_that_was_not_taken_is_not_in_the_report(hurt: Any) -> None:
    with loader_of(hurt, in_order=True) as loader:
        batches, _ = taken(iter(loader), 4)
        # The error of the sixth step has left the engine and waits behind the fifth.
        pipeline = loader._resources.pipeline
        assert pipeline is not None
        deadline = time.monotonic() + 20
        while pipeline.ready_batches < 2:
            assert time.monotonic() < deadline
        assert named_by(loader, hurt) == list(range(8))
        # It is dropped, and what was wrong is mended meanwhile.
        state = loader.state_dict()
        restore(hurt)
        loader.load_state_dict(state)
        rest, failed = taken(iter(loader), 9)
        is_mended = hurt.payloads[3]["image"] != b"no picture"
        assert failed == ([] if is_mended else [1, 8])
        assert sorted(valid_indices(hurt, [*batches, *rest]) + named_by(loader, hurt)) == list(range(101))
        assert named_by(loader, hurt) == [row for row in range(101) if row // 8 in LOST_STEPS[: 1 if is_mended else 3]]


def test_raise_costs_the_batch_of_the_sample_and_no_other(hurt: Any) -> None:
    with loader_of(hurt, in_order=True) as loader:
        for epoch in range(2):
            batches, failed = taken(iter(loader), len(loader))
            assert tuple(failed) == LOST_STEPS
            assert loader.epoch == epoch + 1
            whole = [row for row in range(101) if row // 8 not in LOST_STEPS]
            assert valid_indices(hurt, batches) == whole
            for batch in batches:
                assert_paired(hurt, batch)


def test_raise_ends_the_loop_after_the_last_step(hurt: Any) -> None:
    with loader_of(hurt) as loader:
        running = iter(loader)
        steps = len(loader)
        batches, failed = taken(running, steps)
        assert len(batches) + len(failed) == steps
        assert list(running) == []
        assert loader.epoch == 1


def test_an_epoch_after_a_loss_that_was_mended_is_whole(training: Any) -> None:
    lose(training, [3])
    with loader_of(training, in_order=True) as loader:
        batches, failed = taken(iter(loader), len(loader))
        assert (len(batches), failed) == (12, [0])
        restore(training)
        # Not the next one, which may have been read ahead.
        loader.set_epoch(5)
        assert valid_indices(training, loader) == list(range(101))


def test_states_after_a_caught_error_merge_and_go_on(hurt: Any) -> None:
    states, seen, lengths = [], [], set()
    for rank in range(2):
        with loader_of(hurt, in_order=True, rank=rank, world_size=2, shuffle=False) as loader:
            batches, failed = taken(iter(loader), 2)
            assert failed == ([] if rank == 0 else [0])
            seen += valid_indices(hurt, batches)
            with pytest.warns(UserWarning, match="alone"):
                states.append(loader.state_dict())
        with loader_of(hurt, in_order=True, rank=rank, world_size=2, batch_size=3) as loader:
            loader.load_state_dict(states[-1])
            lengths.add((loader.stats()["step"], len(loader)))
    assert lengths == {(2, 2 + 12)}
    merged = penstock.merge_states(states)
    with loader_of(hurt, on_error="skip", max_failed_share=0.5) as loader:
        loader.load_state_dict(merged)
        seen += valid_indices(hurt, loader)
    # The second rank's first batch is done: it was 1, 3, 5, ... 15.
    assert sorted(seen) == [row for row in range(101) if row not in LOST and row not in range(1, 16, 2)]


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_bytes_beside_a_lost_sample_are_whole(training: Any, on_error: str) -> None:
    lose(training, LOST)
    with loader_of(training, decode=None, on_error=on_error, max_failed_share=0.5, in_order=True) as loader:
        batches, failed = taken(iter(loader), len(loader))
        reported = named_by(loader, training)
    assert tuple(failed) == (LOST_STEPS if on_error == "raise" else ())
    for batch in batches:
        for row, image, mask in zip(indices(training, batch), batch["image"], batch["mask"], strict=True):
            assert bytes(image) == training.payloads[row]["image"]
            assert bytes(mask) == training.payloads[row]["mask"]
    gone = [row for row in range(101) if row // 8 in LOST_STEPS] if on_error == "raise" else list(LOST)
    assert reported == gone
    assert valid_indices(training, batches) == [row for row in range(101) if row not in gone]


def test_too_many_failures_raise_a_group(training: Any) -> None:
    lose(training, range(20, 60))
    with loader_of(training, on_error="skip", in_order=True) as loader:
        running = iter(loader)
        with pytest.raises(errors.LoaderFailure, match=r"could not be read, more than the share of 0\.01") as caught:
            list(running)
        assert {type(member) for member in caught.value.exceptions} == {errors.SampleMissing}
        with pytest.raises(errors.LoaderFailure):
            next(running)


def test_too_many_undecodable_samples_raise_a_group(training: Any) -> None:
    spoiled = spoil(training, range(20, 60))
    with (
        loader_of(spoiled, on_error="replace", in_order=True) as loader,
        pytest.raises(errors.LoaderFailure, match="could not be decoded, more than the share") as caught,
    ):
        list(loader)
    assert {type(member) for member in caught.value.exceptions} == {errors.SampleCorrupt}


def test_replacing_needs_one_good_sample(training: Any) -> None:
    spoiled = spoil(training, range(8))
    with (
        loader_of(spoiled, on_error="replace", max_failed_share=1.0, in_order=True) as loader,
        pytest.raises(errors.SampleCorrupt, match=str(spoiled.sample_ids[0])),
    ):
        next(iter(loader))


@only_memory
def test_a_slow_sample_comes_within_its_displacement(training: Any) -> None:
    slow = training.store_config | {"faults": {"seed": 5, "delay_ms": [0, 1], "slow_share": 0.1, "slow_ms": 150}}
    training.api.answer(
        "POST", "/loaders/resolve",
        training.plan(store={"reach": "direct", "config": slow, "host": None, "reason": None}),
    )  # fmt: skip
    with loader_of(training, max_displacement=2) as loader:
        late = [row // 8 - step for step, batch in enumerate(loader) for row in indices(training, batch)]
    assert min(late) >= -2
    assert Counter(late)[0] < 101


@only_memory
@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"missing_share": 1.0}, "has no"),
        ({"corrupt_share": 1.0}, 'field "image": '),
        ({"unavailable_share": 1.0}, "failed after"),
    ],
)
def test_the_report_has_fields_attempts_and_a_reason(training: Any, faults: dict[str, Any], words: str) -> None:
    store = {"reach": "direct", "config": training.store_config | {"faults": faults}, "host": None, "reason": None}
    training.api.answer("POST", "/loaders/resolve", training.plan(store=store))
    with loader_of(training, store_wait_seconds=0) as loader:
        with pytest.raises(errors.StoreError):
            next(iter(loader))
        failure = loader.failures()[0]
    assert failure.fields == ("image", "mask")
    assert failure.attempts is not None
    assert failure.attempts >= 1
    assert words in failure.reason


def test_batches_held_and_written_to_do_no_harm(training: Any) -> None:
    with loader_of(training, decode=None, shuffle=True) as loader:
        held = []
        for _ in range(3):
            for batch in loader:
                for row, image in zip(indices(training, batch), batch["image"], strict=True):
                    assert bytes(image) == training.payloads[row]["image"]
                    image[:] = row % 256
                held.append(batch)
        for batch in held:
            for row, image in zip(indices(training, batch), batch["image"], strict=True):
                assert np.all(image == row % 256)
