"""The log of delivered samples: what was handed out, no more and no less."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from unit.sdk.loading import loader_of

from penstock._errors import ConfigError


def records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_every_batch_is_in_the_log_in_the_order_in_which_it_was_taken(training: Any, tmp_path: Path) -> None:
    file = tmp_path / "seen.jsonl"
    with loader_of(training, shuffle=True, delivered_log=file) as loader:
        taken = [(epoch, step, batch.id_strings()) for epoch in (0, 1) for step, batch in enumerate(loader)]
        digest = loader.dataset.digest
    logged = records(file)
    assert [(record["epoch"], record["step"], record["ids"]) for record in logged] == taken
    assert {record["subset"] for record in logged} == {digest}
    assert all(record["repeats"] == [] for record in logged)


def test_what_was_read_ahead_and_not_taken_is_not_in_it_and_a_resume_goes_on(training: Any, tmp_path: Path) -> None:
    file = tmp_path / "seen.jsonl"
    with loader_of(training, delivered_log=str(file)) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
    assert [record["step"] for record in records(file)] == [0, 1, 2]
    with loader_of(training, delivered_log=str(file)) as loader:
        loader.load_state_dict(state)
        list(loader)
    logged = records(file)
    assert [record["step"] for record in logged] == list(range(13))
    ids = [sample_id for record in logged for sample_id in record["ids"]]
    assert len(ids) == len(set(ids)) == 101


def test_each_rank_has_its_own_with_repeats_marked(training: Any, tmp_path: Path) -> None:
    ids = []
    for rank in (0, 1):
        with loader_of(training, rank=rank, world_size=2, delivered_log=tmp_path / "seen") as loader:
            list(loader)
        for record in records(tmp_path / f"seen.rank{rank}"):
            ids += [each for row, each in enumerate(record["ids"]) if row not in record["repeats"]]
    assert len(ids) == len(set(ids)) == 101
    assert not (tmp_path / "seen").exists()


def test_a_file_that_cannot_be_written_is_refused_at_once(training: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"delivered_log: .*seen\.jsonl cannot be written .*name a file in a folder"):
        loader_of(training, delivered_log=tmp_path / "nowhere" / "seen.jsonl")


def test_a_folder_that_goes_away_ends_the_log_and_not_the_training(training: Any, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with loader_of(training, delivered_log=folder / "seen.jsonl") as loader:
        batches = iter(loader)
        next(batches)
        shutil.rmtree(folder)
        with pytest.warns(UserWarning, match="cannot be written any more .* it ends before epoch 0, step 1"):
            next(batches)
        assert len(list(batches)) == 11
