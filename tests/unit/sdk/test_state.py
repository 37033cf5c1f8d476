"""Saving a loader's place and going on from it, with other ranks and batch sizes too."""

import io
import json
import statistics
import time
import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from unit.sdk.loading import assert_paired, indices, loader_of, valid_indices

import penstock
from penstock import _errors as errors

ALL = Counter(range(101))
ALONE = "ignore:this is the state of rank:UserWarning"


def taken(loader: Any, steps: int) -> list[Any]:
    running = iter(loader)
    return [next(running) for _ in range(steps)]


def state_after(training: Any, steps: int, **options: Any) -> tuple[list[Any], dict[str, str]]:
    """So many batches of a new loader, and its state behind them."""
    with loader_of(training, **options) as loader:
        batches = taken(loader, steps)
        return batches, loader.state_dict()


class TestResume:
    @pytest.mark.parametrize("steps", [0, 1, 6, 12, 13])
    @pytest.mark.parametrize("in_order", [False, True])
    def test_what_was_not_handed_out_comes_after_it(self, training: Any, steps: int, in_order: bool) -> None:
        options = {"shuffle": True, "in_order": in_order, "seed": 4}
        batches, state = state_after(training, steps, **options)
        with loader_of(training, **options) as loader:
            loader.load_state_dict(state)
            assert loader.epoch == (1 if steps == 13 else 0)
            assert len(loader) == 13
            rest = list(loader)
            assert len(rest) == 13 - steps % 13
            for batch in rest:
                assert_paired(training, batch)
            expected = ALL + ALL if steps == 13 else ALL
            assert Counter(valid_indices(training, batches + rest)) == expected
            assert loader.epoch == (2 if steps == 13 else 1)
            assert Counter(valid_indices(training, loader)) == ALL

    def test_in_order_the_rest_is_the_same_as_without_a_break(self, training: Any) -> None:
        options = {"shuffle": True, "in_order": True}
        _, state = state_after(training, 5, **options)
        with loader_of(training, **options) as whole, loader_of(training, **options) as resumed:
            resumed.load_state_dict(state)
            assert valid_indices(training, list(whole)[5:]) == valid_indices(training, resumed)

    def test_state_counts_what_the_user_has_and_not_what_is_ready(self, training: Any) -> None:
        with loader_of(training) as loader:
            batches = taken(loader, 3)
            deadline = time.monotonic() + 10
            while loader._resources.gauges().ready_batches < 2:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            state = loader.state_dict()
        with loader_of(training) as loader:
            loader.load_state_dict(state)
            assert Counter(valid_indices(training, batches + list(loader))) == ALL

    @pytest.mark.parametrize("batch_size", [1, 5, 64, 200])
    def test_batch_size_may_change(self, training: Any, batch_size: int) -> None:
        batches, state = state_after(training, 5)
        with loader_of(training, batch_size=batch_size) as loader:
            loader.load_state_dict(state)
            steps = len(loader)
            rest = list(loader)
            assert steps == 5 + len(rest)
            assert Counter(valid_indices(training, batches + rest)) == ALL
            assert len(loader) == -(-101 // batch_size)

    @pytest.mark.filterwarnings(ALONE)
    @pytest.mark.parametrize("in_order", [False, True])
    def test_world_and_batch_size_may_change_again_and_again(self, training: Any, in_order: bool) -> None:
        seen: Counter[int] = Counter()
        state: dict[str, str] = {}
        for world_size, batch_size, steps in ((4, 3, 2), (3, 5, 2), (1, 4, 3), (5, 2, 1), (2, 8, 100)):
            states, lengths = [], set()
            for rank in range(world_size):
                with loader_of(
                    training, rank=rank, world_size=world_size, batch_size=batch_size, in_order=in_order, shuffle=True
                ) as loader:
                    loader.load_state_dict(state)
                    lengths.add(len(loader))
                    for batch in loader:
                        seen.update(indices(training, batch, only_valid=True))
                        if loader.stats()["batches"] == steps:
                            break
                    states.append(loader.state_dict())
            assert len(lengths) == 1
            state = penstock.merge_states(states)
        assert seen == ALL
        with loader_of(training, shuffle=True) as loader:
            loader.load_state_dict(state)
            assert (loader.epoch, len(loader)) == (1, 13)

    def test_more_ranks_than_samples_left(self, training: Any) -> None:
        batches, state = state_after(training, 99, batch_size=1)
        for rank in range(7):
            with loader_of(training, rank=rank, world_size=7, batch_size=4) as loader:
                loader.load_state_dict(state)
                rest = list(loader)
                assert len(rest) == 1
                batches += rest
        assert Counter(valid_indices(training, batches)) == ALL

    def test_state_of_a_loader_that_was_only_loaded_is_the_loaded_one(self, training: Any) -> None:
        batches, state = state_after(training, 4)
        with loader_of(training, batch_size=3) as loader:
            loader.load_state_dict(state)
            state = loader.state_dict()
        with loader_of(training) as loader:
            loader.load_state_dict(state)
            assert Counter(valid_indices(training, batches + list(loader))) == ALL

    def test_loading_a_second_time_takes_the_second(self, training: Any) -> None:
        _, early = state_after(training, 2)
        batches, late = state_after(training, 9)
        with loader_of(training) as loader:
            loader.load_state_dict(early)
            next(iter(loader))
            loader.load_state_dict(late)
            assert Counter(valid_indices(training, batches + list(loader))) == ALL

    def test_a_failed_first_step_does_not_lose_the_loaded_place(
        self, training: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(native: Any) -> None:
            raise RuntimeError("no memory")

        batches, state = state_after(training, 9)
        with loader_of(training) as loader:
            loader.load_state_dict(state)
            with monkeypatch.context() as patched:
                patched.setattr(loader._resources._assembler, "assemble", fail)
                with pytest.raises(RuntimeError, match="no memory"):
                    next(iter(loader))
            assert Counter(valid_indices(training, batches + list(loader))) == ALL


class TestForm:
    def test_one_leaf_of_text_that_every_checkpoint_takes(self, training: Any) -> None:
        _, state = state_after(training, 3)
        assert list(state) == ["penstock"]
        assert state["penstock"].isascii()
        assert state["penstock"].isprintable()
        assert json.loads(json.dumps(state)) == state
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        assert torch.load(file, weights_only=True) == state

    def test_taking_it_is_quick_and_small(self, training: Any) -> None:
        with loader_of(training, batch_size=1, shuffle=True) as loader:
            running = iter(loader)
            durations = []
            for _ in range(60):
                next(running)
                started = time.perf_counter()
                state = loader.state_dict()
                durations.append(time.perf_counter() - started)
        assert statistics.median(durations) < 3e-3  # 1 ms, with slack for a busy machine
        assert len(state["penstock"]) < 1024 + 6 * 101

    def test_longest_names_and_numbers_stay_within_a_kilobyte(self, training: Any) -> None:
        old, digest, number = training.plan(), "b3:" + "f" * 64, 999_999_999
        dataset, split, subset = ("d" * 63, "s" * 63, "t" * 63)
        plan = training.plan(
            dataset=old["dataset"] | {"slug": dataset},
            version=old["version"] | {"number": number},
            split=old["split"] | {"name": split, "number": number},
            subset=old["subset"] | {"name": subset, "digest": digest},
        )
        training.api.answer("POST", "/loaders/resolve", plan)
        options = {"shuffle": True, "seed": 2**64 - 1, "in_order": True, "rank": 10**9 - 2, "world_size": 10**9 - 1}
        with loader_of(training, split=f"{split}@{number}/{subset}", **options) as loader:
            loader.set_epoch(2**63 - 1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                state = loader.state_dict()
            assert subset in str(loader.dataset)
        assert len(state["penstock"]) <= 1024

    def test_no_secret_is_in_it(self, training: Any) -> None:
        _, state = state_after(training, 3)
        assert "pst_secret" not in str(state)

    def test_any_changed_character_is_refused(self, training: Any) -> None:
        _, state = state_after(training, 3)
        text = state["penstock"]
        with loader_of(training) as loader:
            for place in range(len(text)):
                for other in {"A", "0", ".", ""} - {text[place]}:
                    damaged = text[:place] + other + text[place + 1 :]
                    with pytest.raises(errors.StateError, match=r"damaged|not a saved state|format"):
                        loader.load_state_dict({"penstock": damaged})
            assert (loader.epoch, len(list(loader))) == (0, 13)

    @pytest.mark.parametrize(
        ("state", "words"),
        [
            ("text", "a state is a dict"),
            (None, "a state is a dict"),
            ({"model": 1}, "no text under 'penstock'"),
            ({"penstock": 3}, "no text under 'penstock'"),
            ({"penstock": "hello"}, "not a saved state"),
            ({"penstock": "1.a.b"}, "not a saved state"),
            ({"penstock": "1.\ud800.a.b.c"}, "not a saved state"),
            ({"penstock": "7.abc.1.def.0"}, "format 7, this version of Penstock reads 1"),
        ],
    )
    def test_what_is_no_state_is_refused(self, training: Any, state: Any, words: str) -> None:
        with loader_of(training) as loader, pytest.raises(errors.StateError, match=words):
            loader.load_state_dict(state)

    def test_empty_state_does_nothing(self, training: Any) -> None:
        with loader_of(training) as loader:
            running = iter(loader)
            first = next(running)
            loader.load_state_dict({})
            assert Counter(valid_indices(training, [first, *running])) == ALL

    @pytest.mark.parametrize("epoch", [0, 1, 9, 10, 12345678901, 2**63])
    def test_start_of_any_epoch_is_what_the_core_would_say(self, training: Any, epoch: int) -> None:
        with loader_of(training, rank=1, world_size=3) as loader:
            engine = loader._engine_in_use()
            place = engine.start_of(epoch)
            engine.resume(place)
            assert engine.state() == place


class TestRefusals:
    @pytest.mark.parametrize(
        ("saved", "here", "words"),
        [
            ({"shuffle": True, "seed": 1}, {"shuffle": True, "seed": 2}, "another seed: 1 was saved"),
            ({"shuffle": True}, {"shuffle": False}, "another choice of shuffle"),
        ],
    )
    def test_another_order_is_refused(self, training: Any, saved: Any, here: Any, words: str) -> None:
        _, state = state_after(training, 2, **saved)
        with loader_of(training, **here) as loader:
            with pytest.raises(errors.StateError, match=words):
                loader.load_state_dict(state)
            assert Counter(valid_indices(training, loader)) == ALL

    @pytest.mark.filterwarnings(ALONE)
    def test_one_rank_alone_is_refused_elsewhere(self, training: Any) -> None:
        _, state = state_after(training, 2, rank=1, world_size=2)
        for here in ({}, {"rank": 0, "world_size": 2}, {"rank": 1, "world_size": 3}):
            with (
                loader_of(training, **here) as loader,
                pytest.raises(errors.StateError, match=r"rank 1 in a world of 2 alone.*merge the states of all ranks"),
            ):
                loader.load_state_dict(state)
        with loader_of(training, rank=1, world_size=2) as loader:
            loader.load_state_dict(state)
            assert len(loader) == 7

    @pytest.mark.filterwarnings(ALONE)
    def test_merging_names_what_is_missing(self, training: Any) -> None:
        states = [state_after(training, 2, rank=rank, world_size=3)[1] for rank in range(3)]
        ahead = state_after(training, 3, rank=2, world_size=3)[1]
        with pytest.raises(errors.StateError, match="rank 1 is missing"):
            penstock.merge_states([states[0], states[2]])
        with pytest.raises(errors.StateError, match="rank 0 is there twice"):
            penstock.merge_states([*states, states[0]])
        with pytest.raises(errors.StateError, match="different steps"):
            penstock.merge_states([*states[:2], ahead])
        with pytest.raises(errors.StateError, match="no state to merge"):
            penstock.merge_states([{}])
        skewed = penstock.merge_states([*states[:2], ahead], allow_skew=True)
        with loader_of(training) as loader:
            loader.load_state_dict(skewed)
            left = valid_indices(training, loader)
        assert len(left) == len(set(left)) == 101 - 16 - 16 - 24

    def test_merging_other_subsets_is_refused(self, training: Any) -> None:
        _, one = state_after(training, 1)
        split = training.plan()["split"] | {"number": 9}
        training.api.answer("POST", "/loaders/resolve", training.plan(split=split))
        _, other = state_after(training, 1)
        with pytest.raises(errors.StateError, match="by-patient@2/train and of demo@3 by-patient@9/train"):
            penstock.merge_states([one, other])


class TestRanks:
    def test_state_of_one_of_several_ranks_warns_when_it_is_saved(self, training: Any) -> None:
        with (
            loader_of(training, rank=1, world_size=4) as loader,
            pytest.warns(UserWarning, match=r"rank 1 of 4 alone.*gather_state.*merge_states"),
        ):
            loader.state_dict()
        with loader_of(training) as loader, warnings.catch_warnings():
            warnings.simplefilter("error")
            loader.state_dict()

    def test_gathering_on_one_rank_gives_a_state_for_any_world(self, training: Any) -> None:
        with loader_of(training) as loader:
            batches = taken(loader, 3)
            state = loader.gather_state()
        for rank in range(2):
            with loader_of(training, rank=rank, world_size=2) as loader:
                loader.load_state_dict(state)
                batches += list(loader)
        assert Counter(valid_indices(training, batches)) == ALL

    def test_gathering_without_a_process_group_says_what_to_do(self, training: Any) -> None:
        with (
            loader_of(training, rank=0, world_size=2) as loader,
            pytest.raises(errors.ConfigError, match=r"needs torch\.distributed.*penstock\.merge_states"),
        ):
            loader.gather_state()

    def test_ranks_that_come_up_after_loading_take_their_share(
        self, training: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batches, state = state_after(training, 5)
        for rank in range(2):
            for name in ("RANK", "WORLD_SIZE"):
                monkeypatch.delenv(name, raising=False)
            with loader_of(training) as loader:
                loader.load_state_dict(state)
                monkeypatch.setenv("RANK", str(rank))
                monkeypatch.setenv("WORLD_SIZE", "2")
                steps = len(loader)
                rest = list(loader)
                assert steps == 5 + len(rest)
                batches += rest
        assert Counter(valid_indices(training, batches)) == ALL

    def test_ranks_that_come_up_before_saving_and_loading_count(
        self, training: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with loader_of(training) as loader:
            monkeypatch.setenv("RANK", "1")
            monkeypatch.setenv("WORLD_SIZE", "2")
            with pytest.warns(UserWarning, match="rank 1 of 2 alone"):
                state = loader.state_dict()
            monkeypatch.delenv("RANK")
            monkeypatch.delenv("WORLD_SIZE")
        with loader_of(training) as loader:
            monkeypatch.setenv("RANK", "1")
            monkeypatch.setenv("WORLD_SIZE", "2")
            loader.load_state_dict(state)
            assert len(list(loader)) == 7


class TestPinnedVersion:
    """The server offers split 3 with 60 samples; version 2 with 101 is there when it is asked for."""

    @pytest.fixture
    def saved(self, training: Any) -> dict[str, str]:
        import httpx

        _, state = state_after(training, 5)
        old = training.plan()
        newer = training.plan(
            split=old["split"] | {"number": 3},
            subset=old["subset"] | {"count": 60, "digest": "b3:" + "2" * 64},
            parts=old["parts"][:1],
        )

        def resolve(request: httpx.Request) -> httpx.Response:
            asked = json.loads(request.content)
            is_old = asked == {"dataset": "demo@3", "split": "by-patient@2/train"}
            return httpx.Response(200, json=old if is_old else newer)

        training.api.serve("POST", "/loaders/resolve", resolve)
        return state

    def test_state_takes_its_own_split_back(self, training: Any, saved: dict[str, str]) -> None:
        with loader_of(training) as loader:
            assert len(loader.dataset) == 60
            loader.load_state_dict(saved)
            assert str(loader.dataset) == "demo@3 by-patient@2/train"
            assert len(loader.dataset) == 101
            assert len(loader) == 13
            assert len(set(valid_indices(training, loader))) == 101 - 40
            assert Counter(valid_indices(training, loader)) == ALL

    def test_running_loader_lets_the_old_split_go(self, training: Any, saved: dict[str, str]) -> None:
        with loader_of(training) as loader:
            running = iter(loader)
            next(running)
            before = loader._resources
            loader.load_state_dict(saved)
            assert before.engine is None
            assert list(running) == []
            assert len(list(loader)) == 13 - 5

    @pytest.mark.parametrize("split", ["by-patient/train", "train"])
    def test_names_without_numbers_let_the_state_choose(self, training: Any, saved: dict[str, str], split: str) -> None:
        with loader_of(training, split=split) as loader:
            loader.load_state_dict(saved)
            assert loader.dataset.split_version == 2

    @pytest.mark.parametrize("split", ["by-patient@3/train", "by-patient/val", "by-slide/train"])
    def test_a_state_of_another_split_is_refused(self, training: Any, saved: dict[str, str], split: str) -> None:
        with loader_of(training, split=split) as loader:
            with pytest.raises(
                errors.StateError,
                match=f"another split: demo@3 by-patient@2/train was saved, this loader is for demo {split}",
            ):
                loader.load_state_dict(saved)
            assert len(list(loader)) == 8

    def test_a_state_of_another_dataset_is_refused(self, training: Any, saved: dict[str, str]) -> None:
        other = training.plan(dataset={"id": "00000000-0000-0000-0000-000000000007", "slug": "demo"})
        training.api.answer("POST", "/loaders/resolve", other)
        with loader_of(training) as loader, pytest.raises(errors.StateError, match="another split"):
            loader.load_state_dict(saved)

    def test_when_nothing_is_newer_the_server_is_not_asked(self, training: Any, saved: dict[str, str]) -> None:
        loader = training.api.client().loader(
            "demo@3", split="by-patient@2/train", batch_size=8, output="numpy", telemetry=False
        )
        training.api.is_down = True
        with loader:
            loader.load_state_dict(saved)
            assert len(list(loader)) == 8

    def test_a_refused_state_changes_nothing(self, training: Any, saved: dict[str, str]) -> None:
        with loader_of(training, shuffle=True) as loader:
            with pytest.raises(errors.StateError, match="shuffle"):
                loader.load_state_dict(saved)
            assert len(loader.dataset) == 60
            assert len(list(loader)) == 8
