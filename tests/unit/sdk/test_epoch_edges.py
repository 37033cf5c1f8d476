"""Where an epoch begins and ends, in every order in which trainers call a loader."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from unit.sdk.loading import indices, loader_of, valid_indices

from penstock import Batch, Loader
from penstock import _errors as errors

ALL = Counter(range(101))


def exactly(running: Iterator[Batch], count: int) -> list[Batch]:
    """Takes so many batches as trainers do: without ever asking for the end."""
    return [next(running) for _ in range(count)]


def state_after(training: Any, steps: int, *, epoch: int = 0, **options: Any) -> tuple[list[int], dict[str, str]]:
    with loader_of(training, shuffle=True, **options) as loader:
        loader.set_epoch(epoch)
        seen = valid_indices(training, exactly(iter(loader), steps))
        return seen, loader.state_dict()


def order_of(training: Any, epoch: int) -> list[int]:
    with loader_of(training, shuffle=True, in_order=True) as loader:
        loader.set_epoch(epoch)
        return valid_indices(training, loader)


def with_faults(training: Any, **faults: Any) -> None:
    config = training.store_config | {"faults": {"seed": 2} | faults}
    store = {"reach": "direct", "config": config, "host": None, "reason": None}
    training.api.answer("POST", "/loaders/resolve", training.plan(store=store))


class TestEpoch:
    def test_nothing_is_read_before_the_first_next(self, training: Any) -> None:
        with loader_of(training) as loader:
            iter(loader)
            len(loader)
            loader.state_dict()
            loader.set_epoch(3)
            assert loader.stats()["engine"]["requests"] == 0
            assert loader._resources.pipeline is None

    def test_trainers_that_never_ask_for_the_end_get_every_epoch_whole(self, training: Any) -> None:
        with loader_of(training, shuffle=True) as loader:
            for epoch in range(4):
                assert loader.epoch == epoch
                batches = exactly(iter(loader), len(loader))
                assert Counter(valid_indices(training, batches)) == ALL
                assert loader.epoch == epoch + 1

    def test_one_iterator_is_one_epoch(self, training: Any) -> None:
        with loader_of(training) as loader:
            running = iter(loader)
            exactly(running, 13)
            with pytest.raises(StopIteration):
                next(running)
            with pytest.raises(StopIteration):
                next(running)
            assert loader.epoch == 1

    def test_a_thrown_away_iterator_changes_nothing(self, training: Any) -> None:
        with loader_of(training, shuffle=True, in_order=True) as loader:
            iter(loader)
            running = iter(loader)
            iter(loader)
            assert valid_indices(training, running) == order_of(training, 0)

    def test_next_epoch_is_not_mixed_with_this_one(self, training: Any) -> None:
        with_faults(training, delay_ms=[0, 2], slow_share=0.1, slow_ms=60)
        with loader_of(training, shuffle=True, max_displacement=100) as loader:
            for _ in range(5):
                assert Counter(valid_indices(training, loader)) == ALL


class TestSetEpoch:
    @pytest.mark.parametrize("moment", ["before iter", "between iter and next", "twice"])
    def test_to_another_epoch_before_the_first_batch(self, training: Any, moment: str) -> None:
        with loader_of(training, shuffle=True, in_order=True) as loader:
            if moment == "before iter":
                loader.set_epoch(4)
            running = iter(loader)
            if moment == "twice":
                loader.set_epoch(9)
            loader.set_epoch(4)
            assert valid_indices(training, running) == order_of(training, 4)
            assert loader.epoch == 5

    def test_to_the_same_in_the_middle_does_nothing(self, training: Any) -> None:
        with loader_of(training, shuffle=True) as loader:
            loader.set_epoch(2)
            running = iter(loader)
            first = exactly(running, 5)
            loader.set_epoch(2)
            assert Counter(valid_indices(training, [*first, *running])) == ALL

    def test_to_another_in_the_middle_drops_everything(self, training: Any) -> None:
        with loader_of(training, shuffle=True, in_order=True) as loader:
            running = iter(loader)
            exactly(running, 5)
            loader.set_epoch(7)
            assert list(running) == []
            assert (loader.stats()["step"], len(loader)) == (0, 13)
            assert valid_indices(training, loader) == order_of(training, 7)

    def test_to_the_loaded_epoch_keeps_the_loaded_state(self, training: Any) -> None:
        seen, state = state_after(training, 5, epoch=3)
        with loader_of(training, shuffle=True) as loader:
            loader.load_state_dict(state)
            loader.set_epoch(3)
            assert Counter(seen + valid_indices(training, loader)) == ALL

    @pytest.mark.parametrize("is_between_iter_and_next", [False, True])
    def test_to_another_drops_a_loaded_state(self, training: Any, is_between_iter_and_next: bool) -> None:
        _, state = state_after(training, 5, epoch=3)
        with loader_of(training, shuffle=True, in_order=True) as loader:
            loader.load_state_dict(state)
            running = iter(loader)
            loader.set_epoch(4)
            again = running if is_between_iter_and_next else iter(loader)
            assert valid_indices(training, again) == order_of(training, 4)

    def test_a_dropped_state_does_not_come_back(self, training: Any) -> None:
        _, state = state_after(training, 5, epoch=3)
        with loader_of(training, shuffle=True, in_order=True) as loader:
            loader.load_state_dict(state)
            loader.set_epoch(4)
            loader.set_epoch(3)
            assert valid_indices(training, loader) == order_of(training, 3)

    def test_state_after_it_is_the_beginning_of_that_epoch(self, training: Any) -> None:
        with loader_of(training, shuffle=True, in_order=True) as loader:
            exactly(iter(loader), 5)
            loader.set_epoch(6)
            state = loader.state_dict()
        with loader_of(training, shuffle=True, in_order=True) as loader:
            loader.load_state_dict(state)
            assert loader.epoch == 6
            assert valid_indices(training, loader) == order_of(training, 6)

    def test_closed_loader_says_so(self, training: Any) -> None:
        loader = loader_of(training)
        loader.close()
        epochs = (lambda: loader.set_epoch(0), lambda: loader.set_epoch(1))
        for use in (*epochs, loader.state_dict, lambda: loader.load_state_dict({})):
            with pytest.raises(errors.EngineClosed):
                use()

    def test_an_epoch_begins_at_once_while_the_last_one_waits_for_the_store(self, training: Any) -> None:
        with_faults(training, delay_ms=[60_000, 60_000])
        with loader_of(training) as loader:
            for epoch in (0, 1):
                loader.set_epoch(epoch)
                # As Ctrl-C leaves it when it comes during the wait for the first batch.
                loader._begin()
                deadline = time.monotonic() + 6
                while (stats := loader.stats()["engine"])["epoch"] != epoch or not stats["inflight_samples"]:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)


class TestLen:
    def test_it_is_steps_done_and_steps_left(self, training: Any) -> None:
        with loader_of(training) as loader:
            running = iter(loader)
            for done in range(13):
                left = 13 - loader.stats()["step"]
                assert len(loader) == len(running) == done + left == 13  # type: ignore[arg-type]
                next(running)

    @pytest.mark.parametrize(("batch_size", "steps"), [(8, 13), (4, 5 + 16), (61, 5 + 1), (60, 5 + 2)])
    def test_after_a_resume_with_another_batch_size(self, training: Any, batch_size: int, steps: int) -> None:
        seen, state = state_after(training, 5)
        with loader_of(training, shuffle=True, batch_size=batch_size) as loader:
            loader.load_state_dict(state)
            assert len(loader) == steps
            running = iter(loader)
            seen += valid_indices(training, exactly(running, steps - 5))
            assert Counter(seen) == ALL
            assert loader.epoch == 1
            assert len(loader) == -(-101 // batch_size)

    def test_a_rest_too_small_for_a_batch_is_an_empty_end(self, training: Any) -> None:
        _, state = state_after(training, 12, drop_last=True, batch_size=8)
        with loader_of(training, shuffle=True, drop_last=True, batch_size=8) as loader:
            loader.load_state_dict(state)
            assert (loader.epoch, len(loader)) == (1, 12)
        _, state = state_after(training, 11, drop_last=True, batch_size=8)
        with loader_of(training, shuffle=True, drop_last=True, batch_size=50) as loader:
            loader.load_state_dict(state)
            assert (loader.epoch, len(loader)) == (0, 11)
            assert list(loader) == []
            assert (loader.epoch, len(loader)) == (1, 2)
            assert len(list(loader)) == 2


class TestLoadState:
    def test_it_arms_an_iterator_that_has_not_begun(self, training: Any) -> None:
        seen, state = state_after(training, 5)
        with loader_of(training, shuffle=True) as loader:
            running = iter(loader)
            loader.load_state_dict(state)
            assert Counter(seen + valid_indices(training, running)) == ALL

    def test_it_ends_an_iterator_that_has(self, training: Any) -> None:
        seen, state = state_after(training, 5)
        with loader_of(training, shuffle=True) as loader:
            running = iter(loader)
            exactly(running, 2)
            loader.load_state_dict(state)
            assert list(running) == []
            assert Counter(seen + valid_indices(training, loader)) == ALL

    def test_a_second_iteration_after_it_is_the_next_epoch(self, training: Any) -> None:
        _, state = state_after(training, 5)
        with loader_of(training, shuffle=True, in_order=True) as loader:
            loader.load_state_dict(state)
            next(iter(loader))
            assert valid_indices(training, loader) == order_of(training, 1)

    def test_state_of_an_epoch_left_early_is_in_that_epoch(self, training: Any) -> None:
        with loader_of(training, shuffle=True) as loader:
            seen: list[int] = []
            for step, batch in enumerate(loader):
                seen += indices(training, batch)
                if step == 3:
                    break
            state = loader.state_dict()
        with loader_of(training, shuffle=True) as loader:
            loader.load_state_dict(state)
            assert (loader.epoch, loader.stats()["step"]) == (0, 4)
            assert Counter(seen + valid_indices(training, loader)) == ALL

    def test_a_start_that_was_interrupted_does_not_use_it_up(self, training: Any) -> None:
        seen, state = state_after(training, 5)
        with loader_of(training, shuffle=True) as loader:
            next(iter(loader))
            pipeline = loader._resources.pipeline
            assert pipeline is not None
            # With its lock held the thread cannot move: as if Ctrl-C came before it did.
            with pipeline._changed:
                loader._begin()
                loader.load_state_dict(state)
                loaded = loader.state_dict()
            deadline = time.monotonic() + 0.3
            while time.monotonic() < deadline:
                assert loader.state_dict() == loaded
            assert Counter(seen + valid_indices(training, loader)) == ALL

    def test_a_start_that_comes_in_between_does_not_use_it_up(
        self, training: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen, state = state_after(training, 5)
        with loader_of(training, shuffle=True) as loader:
            next(iter(loader))
            pipeline, engine = loader._resources.pipeline, loader._engine_in_use()
            assert pipeline is not None
            enter, resume = pipeline._enter, engine.resume
            is_resumed = threading.Event()

            def enter_late(generation: int) -> None:
                assert is_resumed.wait(30)
                enter(generation)

            def resume_slowly(place: str) -> Any:
                standing = resume(place)
                is_resumed.set()
                time.sleep(0.3)
                return standing

            monkeypatch.setattr(pipeline, "_enter", enter_late)
            loader.set_epoch(1)
            loader._begin()
            monkeypatch.setattr(engine, "resume", resume_slowly)
            loader.load_state_dict(state)
            state = loader.state_dict()
        with loader_of(training, shuffle=True) as loader:
            loader.load_state_dict(state)
            assert Counter(seen + valid_indices(training, loader)) == ALL

    def test_an_iteration_that_waits_meanwhile_ends(self, training: Any) -> None:
        with_faults(training, delay_ms=[60_000, 60_000])
        with loader_of(training) as loader:
            found: list[Any] = []
            waiting = threading.Thread(target=lambda: found.extend(loader))
            waiting.start()
            while not loader.stats()["engine"]["inflight_samples"]:
                time.sleep(0.01)
            loader.set_epoch(7)
            waiting.join(30)
            assert not waiting.is_alive()
            assert (found, loader.epoch) == ([], 7)


class TestLightning:
    """`iter` (thrown away), `len`, `load_state_dict`, `iter`, `set_epoch`, `next`... and never the end."""

    def fit(self, loader: Loader, *, epoch: int, done: int, epochs: int, state: dict[str, str]) -> list[list[Batch]]:
        iter(loader)
        len(loader)
        loader.load_state_dict(state)
        epochs_seen = []
        for number in range(epoch, epoch + epochs):
            running = iter(loader)
            loader.sampler.set_epoch(number)
            steps = len(loader)
            epochs_seen.append(exactly(running, steps - done))
            done = 0
        return epochs_seen

    def test_from_the_beginning(self, training: Any) -> None:
        with loader_of(training, shuffle=True) as loader:
            for batches in self.fit(loader, epoch=0, done=0, epochs=3, state={}):
                assert len(batches) == 13
                assert Counter(valid_indices(training, batches)) == ALL

    @pytest.mark.parametrize("batch_size", [8, 5])
    def test_from_the_middle_of_an_epoch(self, training: Any, batch_size: int) -> None:
        seen, state = state_after(training, 6, epoch=2)
        with loader_of(training, shuffle=True, batch_size=batch_size) as loader:
            rest, *others = self.fit(loader, epoch=2, done=6, epochs=3, state=state)
            assert Counter(seen + valid_indices(training, rest)) == ALL
            for batches in others:
                assert Counter(valid_indices(training, batches)) == ALL
            assert loader.epoch == 5

    def test_from_the_end_of_an_epoch(self, training: Any) -> None:
        _, state = state_after(training, 13, epoch=2)
        with loader_of(training, shuffle=True, in_order=True) as loader:
            first, _ = self.fit(loader, epoch=3, done=0, epochs=2, state=state)
            assert valid_indices(training, first) == order_of(training, 3)

    def test_with_another_epoch_than_the_saved_one(self, training: Any) -> None:
        _, state = state_after(training, 6, epoch=2)
        with loader_of(training, shuffle=True, in_order=True) as loader:
            (batches,) = self.fit(loader, epoch=3, done=0, epochs=1, state=state)
            assert valid_indices(training, batches) == order_of(training, 3)

    def test_epochs_cut_short_by_the_trainer(self, training: Any) -> None:
        with loader_of(training, shuffle=True, in_order=True) as loader:
            for epoch in range(3):
                running = iter(loader)
                loader.set_epoch(epoch)
                found = valid_indices(training, exactly(running, 4))
                assert found == order_of(training, epoch)[:32]

    def test_validation_in_between_does_not_disturb(self, training: Any) -> None:
        with loader_of(training, shuffle=True) as train, loader_of(training) as validation:
            running = iter(train)
            seen = valid_indices(training, exactly(running, 6))
            assert Counter(valid_indices(training, validation)) == ALL
            assert Counter(seen + valid_indices(training, running)) == ALL
