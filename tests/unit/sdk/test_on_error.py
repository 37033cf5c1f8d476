"""Samples that cannot be had: raised, skipped or replaced, and always reported."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from unit.sdk.loading import assert_paired, indices, loader_of, valid_indices

from penstock import _errors as errors
from penstock import _native

LOST = (3, 40, 41, 100)


def lose(training: Any, rows: Any) -> None:
    with _native.Store.open(json.dumps(training.store_config)) as store:
        store.delete("samples", training.dataset_id.bytes, [training.object_ids[row].bytes for row in rows])


def spoil(training: Any, rows: Any) -> Any:
    """The same dataset with samples whose bytes are sound and no pictures."""
    again = type(training)(training.api, training.store_config, count=101, rows_a_part=60)
    for row in rows:
        again.payloads[row]["image"] = b"no picture"
    again.parts = [again._part(range(60)), again._part(range(60, 101))]
    again._offer()
    again.write()
    return again


@pytest.fixture(params=["lost", "spoiled"])
def hurt(request: pytest.FixtureRequest, training: Any) -> Any:
    if request.param == "spoiled":
        return spoil(training, LOST)
    lose(training, LOST)
    return training


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
