"""Loaders on a real native store and engine; only the HTTP side is in memory."""

import gc
import json
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from unit.sdk.loading import assert_paired, indices, loader_of

from penstock import Batch, _native
from penstock import _errors as errors
from penstock._reach import STORE_ID_FILE, _machine_id


class TestEpoch:
    @pytest.mark.parametrize("shuffle", [False, True])
    @pytest.mark.parametrize("in_order", [False, True])
    def test_every_sample_exactly_once_with_its_label(self, training: Any, shuffle: bool, in_order: bool) -> None:
        with loader_of(training, shuffle=shuffle, in_order=in_order) as loader:
            for _ in range(2):
                seen: Counter[int] = Counter()
                batches = list(loader)
                for batch in batches:
                    assert_paired(training, batch)
                    assert batch["valid"].all()
                    seen.update(indices(training, batch))
                assert seen == Counter(range(101))
                assert [len(batch["ids"]) for batch in batches] == [8] * 12 + [5]
                assert len(batches) == len(loader) == 13

    def test_order_is_the_plan_without_shuffle(self, training: Any) -> None:
        with loader_of(training, in_order=True) as loader:
            assert [row for batch in loader for row in indices(training, batch)] == list(range(101))

    def test_order_is_a_function_of_seed_and_epoch(self, training: Any) -> None:
        def order(seed: int, epoch: int) -> list[int]:
            with loader_of(training, shuffle=True, in_order=True, seed=seed) as loader:
                loader.set_epoch(epoch)
                return [row for batch in loader for row in indices(training, batch)]

        assert order(1, 0) == order(1, 0)
        assert len({tuple(order(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4

    def test_keys_begin_with_ids_and_end_with_valid(self, training: Any) -> None:
        with loader_of(training) as loader:
            batch = next(iter(loader))
        assert list(batch) == ["ids", "image", "mask", "tumor", "age", "weight", "flag", "findings", "note", "valid"]
        assert type(batch) is Batch
        assert loader.categories["tumor"] == ("no", "yes", "unsure")

    @pytest.mark.parametrize(("options", "sizes"), [({"drop_last": True}, [8] * 12), ({"last_batch": "pad"}, [8] * 13)])
    def test_last_batch(self, training: Any, options: dict[str, Any], sizes: list[int]) -> None:
        with loader_of(training, **options) as loader:
            batches = list(loader)
            assert len(loader) == len(sizes)
        assert [len(batch["ids"]) for batch in batches] == sizes
        seen = Counter(row for batch in batches for row in indices(training, batch, only_valid=True))
        assert set(seen.values()) == {1}
        assert len(seen) == (96 if options.get("drop_last") else 101)

    @pytest.mark.parametrize("world_size", [2, 3])
    def test_ranks_share_an_epoch_in_equal_steps(self, training: Any, world_size: int) -> None:
        seen: Counter[int] = Counter()
        lengths = set()
        for rank in range(world_size):
            with loader_of(training, rank=rank, world_size=world_size, shuffle=True, seed=3) as loader:
                batches = list(loader)
                lengths.add(len(batches))
                seen.update(row for batch in batches for row in indices(training, batch, only_valid=True))
                for batch in batches:
                    assert_paired(training, batch)
        assert seen == Counter(range(101))
        assert len(lengths) == 1


class TestIteration:
    def test_iter_does_nothing_before_the_first_next(self, training: Any) -> None:
        with loader_of(training) as loader:
            running = iter(loader)
            iter(loader)
            iter(loader)
            assert len(list(running)) == 13
            assert loader.epoch == 1

    def test_epoch_ends_with_its_last_batch(self, training: Any) -> None:
        with loader_of(training) as loader:
            running = iter(loader)
            for _ in range(len(loader)):
                assert loader.epoch == 0
                next(running)
            assert loader.epoch == 1
            assert list(running) == []
            assert list(running) == []
            assert loader.epoch == 1

    def test_leaving_early_makes_the_next_iteration_the_next_epoch(self, training: Any) -> None:
        with (
            loader_of(training, shuffle=True, in_order=True) as loader,
            loader_of(training, shuffle=True, in_order=True) as other,
        ):
            next(iter(loader))
            found = [row for batch in loader for row in indices(training, batch)]
            assert loader.epoch == 2
            other.set_epoch(1)
            assert found == [row for batch in other for row in indices(training, batch)]

    def test_a_new_iteration_ends_the_old_one(self, training: Any) -> None:
        with loader_of(training) as loader:
            old = iter(loader)
            next(old)
            new = iter(loader)
            next(old)
            next(new)
            assert list(old) == []
            assert len(list(new)) == 12

    def test_set_epoch_to_the_same_changes_nothing(self, training: Any) -> None:
        with loader_of(training, shuffle=True) as loader:
            running = iter(loader)
            first = indices(training, next(running))
            loader.set_epoch(0)
            rest = [row for batch in running for row in indices(training, batch)]
            assert Counter(first + rest) == Counter(range(101))

    def test_set_epoch_between_iter_and_next(self, training: Any) -> None:
        with loader_of(training, shuffle=True, in_order=True) as loader:
            running = iter(loader)
            loader.sampler.set_epoch(5)
            found = [row for batch in running for row in indices(training, batch)]
            assert loader.epoch == 6
            loader.set_epoch(5)
            assert found == [row for batch in loader for row in indices(training, batch)]

    def test_set_epoch_to_another_drops_a_running_one(self, training: Any) -> None:
        with loader_of(training) as loader:
            running = iter(loader)
            next(running)
            loader.set_epoch(3)
            assert list(running) == []
            assert Counter(row for batch in loader for row in indices(training, batch)) == Counter(range(101))

    @pytest.mark.parametrize("epoch", [-1, 1.0, "1", True, None])
    def test_wrong_epoch_is_refused(self, training: Any, epoch: Any) -> None:
        with loader_of(training) as loader, pytest.raises(errors.ConfigError, match="epoch is"):
            loader.set_epoch(epoch)

    def test_ranks_are_looked_up_again_when_an_iteration_starts(
        self, training: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with loader_of(training) as loader:
            assert len(loader) == 13
            monkeypatch.setenv("RANK", "1")
            monkeypatch.setenv("WORLD_SIZE", "2")
            assert len(loader) == 7
            assert sum(int(batch["valid"].sum()) for batch in loader) == 50


class TestOutput:
    def test_torch_is_the_default(self, training: Any) -> None:
        loader = training.api.client().loader("demo", split="train", batch_size=16, telemetry=False)
        with loader:
            batch = next(iter(loader))
        assert_paired(training, batch)
        assert batch["ids"].dtype == torch.uint8
        assert tuple(batch["ids"].shape) == (16, 16)
        assert tuple(batch["image"].shape) == (16, 3, 8, 8)
        assert tuple(batch["mask"].shape) == (16, 8, 8)
        assert batch["tumor"].dtype == torch.int64
        assert batch["valid"].dtype == torch.bool
        assert type(batch.to("cpu")) is Batch
        batch["ids"][0, 0] = 1

    def test_without_torch_the_extra_is_named(self, training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "torch", None)
        with pytest.raises(errors.ConfigError, match=r"penstock\[torch\].*output='numpy'"):
            loader_of(training, output="torch")

    @pytest.mark.parametrize("output", ["torch", "numpy"])
    def test_undecoded_fields_are_views_that_outlive_the_loader(self, training: Any, output: str) -> None:
        with loader_of(training, decode=None, output=output) as loader, warnings.catch_warnings():
            warnings.simplefilter("error")
            batches = list(loader)
        gc.collect()
        for batch in batches:
            for row, image, mask in zip(indices(training, batch), batch["image"], batch["mask"], strict=True):
                assert bytes(np.asarray(image)) == training.payloads[row]["image"]
                assert bytes(np.asarray(mask)) == training.payloads[row]["mask"]
        assert batches[0]["image"][0].ndim == 1
        batches[0]["image"][0][0] = 0

    def test_chosen_fields_and_columns(self, training: Any) -> None:
        with loader_of(training, fields=["mask"], columns=["age"]) as loader:
            assert list(next(iter(loader))) == ["ids", "mask", "age", "valid"]
        with loader_of(training, columns=[]) as loader:
            assert list(next(iter(loader))) == ["ids", "image", "mask", "valid"]

    @pytest.mark.parametrize(
        ("options", "words"),
        [({"fields": ["picture"]}, "no 'picture'; it carries 'image', 'mask'"), ({"fields": []}, "reads nothing"),
         ({"columns": ["tumour"]}, "no 'tumour'; it carries 'tumor'")],
    )  # fmt: skip
    def test_unknown_fields_and_columns_name_the_known(self, training: Any, options: Any, words: str) -> None:
        with pytest.raises(errors.ConfigError, match=words):
            loader_of(training, **options)

    def test_pinning_without_a_device_is_explained(self, training: Any) -> None:
        if torch.cuda.is_available():
            pytest.skip("has a device")
        with pytest.warns(UserWarning, match="no CUDA device"):
            loader = loader_of(training, output="torch", pin_memory=True)
        with loader:
            assert not loader.pin_memory
            assert not next(iter(loader))["ids"].is_pinned()


class TestStore:
    def test_loaders_of_one_process_share_a_store(self, training: Any) -> None:
        with loader_of(training) as one, loader_of(training) as other:
            assert one._resources._lease.store is other._resources._lease.store
            other.close()
            assert len(list(one)) == 13

    def test_embedded_store_on_this_machine(self, lmdb_training: Any) -> None:
        folder = Path(lmdb_training.store_config["path"])
        (folder / STORE_ID_FILE).write_text("00000000-0000-0000-0000-000000000001\n")
        store = {
            "reach": "local_only",
            "config": lmdb_training.store_config,
            "host": _machine_id(folder),
            "reason": None,
        }
        lmdb_training.api.answer("POST", "/loaders/resolve", lmdb_training.plan(store=store))
        with loader_of(lmdb_training, shuffle=True) as loader:
            seen = Counter(row for batch in loader for row in indices(lmdb_training, batch))
        assert seen == Counter(range(101))

    def test_embedded_store_of_another_machine_is_said(self, lmdb_training: Any) -> None:
        folder = Path(lmdb_training.store_config["path"])
        for text in (None, "00000000-0000-0000-0000-000000000002\n"):
            if text:
                (folder / STORE_ID_FILE).write_text(text)
            store = {"reach": "local_only", "config": lmdb_training.store_config, "host": "f" * 64, "reason": None}
            lmdb_training.api.answer("POST", "/loaders/resolve", lmdb_training.plan(store=store))
            with pytest.raises(errors.ConfigError, match=r"server's own machine only, not yet from"):
                loader_of(lmdb_training)

    @pytest.mark.parametrize(("reach", "words"), [("http", "HTTP data plane"), ("pigeon", "update penstock")])
    def test_other_reaches_are_explained(self, training: Any, reach: str, words: str) -> None:
        store = {"reach": reach, "config": None, "host": None, "reason": None}
        training.api.answer("POST", "/loaders/resolve", training.plan(store=store))
        with pytest.raises(errors.ConfigError, match=words):
            loader_of(training)

    def test_missing_sample_is_named_and_the_epoch_still_ends(self, training: Any) -> None:
        with _native.Store.open(json.dumps(training.store_config)) as store:
            store.delete("samples", training.dataset_id.bytes, [training.object_ids[40].bytes])
        caught: list[errors.StoreError] = []
        seen: list[int] = []
        with loader_of(training, in_order=True) as loader:
            running = iter(loader)
            while loader.epoch == 0:
                try:
                    seen += indices(training, next(running))
                except errors.StoreError as error:
                    caught.append(error)
            assert list(running) == []
        assert {type(error) for error in caught} == {errors.SampleMissing}
        assert str(training.sample_ids[40]) in str(caught[0])
        assert seen[:40] == list(range(40))
        assert 40 not in seen

    def test_undecodable_sample_costs_its_own_batch_only(self, training: Any) -> None:
        again = type(training)(training.api, training.store_config, count=101, rows_a_part=60)
        again.payloads[40]["image"] = b"no picture"
        again.parts = [again._part(range(60)), again._part(range(60, 101))]
        again._offer()
        again.write()
        caught: list[errors.StoreError] = []
        seen: list[int] = []
        with loader_of(again, in_order=True) as loader:
            running = iter(loader)
            while loader.epoch == 0:
                try:
                    seen += indices(again, next(running))
                except errors.SampleCorrupt as error:
                    caught.append(error)
        assert [str(again.sample_ids[40]) in str(error) for error in caught] == [True]
        assert seen == [row for row in range(101) if row // 8 != 5]

    def test_damaged_sample_is_named(self, training: Any) -> None:
        with _native.Store.open(json.dumps(training.store_config)) as store:
            damaged = [("image", b"x" * len(training.payloads[7]["image"])), ("mask", training.payloads[7]["mask"])]
            store.write("samples", training.dataset_id.bytes, [(training.object_ids[7].bytes, damaged)])
        with loader_of(training) as loader, pytest.raises(errors.SampleCorrupt, match=str(training.sample_ids[7])):
            list(loader)

    def test_training_goes_on_without_the_api(self, training: Any) -> None:
        loader = loader_of(training, telemetry=True)
        training.api.is_down = True
        with loader:
            assert len(list(loader)) == 13

    def test_unknown_subset_is_not_found(self, training: Any) -> None:
        problem = {"status": 404, "code": "split.subset_not_found", "detail": "no subset 'trian'; there are: train"}
        training.api.answer("POST", "/loaders/resolve", problem, 404)
        with pytest.raises(errors.NotFound, match="there are: train"):
            loader_of(training, split="trian")


class TestLife:
    def test_closed_loader_says_so(self, training: Any) -> None:
        loader = loader_of(training)
        running = iter(loader)
        next(running)
        loader.close()
        loader.close()
        for use in (lambda: next(running), lambda: next(iter(loader)), lambda: len(loader)):
            with pytest.raises(errors.EngineClosed, match="closed"):
                use()

    def test_forgotten_loader_is_closed(self, training: Any) -> None:
        before = {thread.name for thread in threading.enumerate()}
        loader = loader_of(training)
        next(iter(loader))
        resources = loader._resources
        del loader
        gc.collect()
        assert resources.engine is None
        deadline = time.monotonic() + 5
        while {thread.name for thread in threading.enumerate()} - before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not {name for name in {thread.name for thread in threading.enumerate()} - before if "assembly" in name}

    def test_close_wakes_a_thread_that_waits(self, training: Any) -> None:
        loader = loader_of(training)
        running = iter(loader)
        caught: list[BaseException] = []

        def consume() -> None:
            try:
                for _ in range(1000):
                    next(running)
                    loader.set_epoch(0)
            except (StopIteration, errors.EngineClosed) as error:
                caught.append(error)

        thread = threading.Thread(target=consume)
        thread.start()
        loader.close()
        thread.join(5)
        assert not thread.is_alive()
        assert caught

    def test_stats_count_what_was_handed_out(self, training: Any) -> None:
        with loader_of(training) as loader:
            list(loader)
            stats = loader.stats()
        assert (stats["samples"], stats["batches"], stats["epoch"]) == (101, 13, 1)
        assert stats["bytes"] == sum(len(data) for payload in training.payloads for data in payload.values())
        assert stats["wait_seconds"] > 0
        assert isinstance(stats["engine"], dict)

    def test_repr_names_what_is_read(self, training: Any) -> None:
        with loader_of(training) as loader:
            assert repr(loader) == "Loader(demo@3 by-patient@2/train, 101 samples, batch_size=8)"
            assert len(loader.dataset) == 101

    def test_it_looks_like_a_torch_loader(self, training: Any) -> None:
        with loader_of(training, drop_last=True) as loader:
            for name in ("batch_size", "dataset", "sampler", "drop_last", "num_workers", "pin_memory", "collate_fn"):
                assert hasattr(loader, name)
            assert loader.pin_memory_device == ""
            assert loader.drop_last
            assert not isinstance(loader, torch.utils.data.DataLoader)

    def test_loader_is_not_pickled(self, training: Any) -> None:
        with loader_of(training) as loader, pytest.raises(TypeError, match="make a new one"):
            __import__("pickle").dumps(loader)
