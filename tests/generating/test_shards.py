"""Shards: the same texts whoever writes them, and after any interruption."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stages.artifacts.tables import Passages, Texts
from stages.generating import shards
from stages.generating.sampling import Sampling
from stages.generating.shards import Counts, Job, join_shards, write_shards
from stages.training.processes import Processes
from tests.conftest import World
from tests.generating.build import generator

JOB = Job(Sampling(2, 6, top_k=20), prompt_pieces=16, batch_pieces=200, seed=4)
FAMILIES = ("causal", "encoder-decoder")


def processes(rank: int = 0, world: int = 1) -> Processes:
    return Processes(rank, world, torch.device("cpu"))


def written(world: World, family: str, folder: Path, job: Job = JOB, size: int = 9) -> bytes:
    folder.mkdir(exist_ok=True)
    write_shards(generator(family, Path(world.backbone)), world.passages, folder, job, processes(), size)
    join_shards(folder, folder / "out.parquet")
    return (folder / "out.parquet").read_bytes()


@pytest.mark.parametrize("family", FAMILIES)
def test_any_number_of_processes_writes_the_same(world: World, family: str, tmp_path: Path) -> None:
    alone = written(world, family, tmp_path / "alone")
    for rank in (2, 0, 1):
        (tmp_path / "three").mkdir(exist_ok=True)
        made = generator(family, Path(world.backbone))
        write_shards(made, world.passages, tmp_path / "three", JOB, processes(rank, 3), 9)
        assert len(list((tmp_path / "three").glob("*.parquet"))) == {2: 2, 0: 5, 1: 7}[rank]
    join_shards(tmp_path / "three", tmp_path / "three.parquet")
    assert (tmp_path / "three.parquet").read_bytes() == alone


def test_an_interrupted_run_goes_on_with_what_is_missing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = written(world, "causal", tmp_path / "whole")
    original, begun = shards._write_shard, []

    def killed(*args: Any) -> Counts:
        begun.append(args[3])
        if len(begun) == 3:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(shards, "_write_shard", killed)
    with pytest.raises(KeyboardInterrupt):
        written(world, "causal", tmp_path / "twice")
    assert written(world, "causal", tmp_path / "twice") == whole
    assert begun == [0, 1, 2, *range(2, 7)]


def test_seeds_shards_and_passages_differ(world: World, tmp_path: Path) -> None:
    one = written(world, "causal", tmp_path / "one")
    assert written(world, "causal", tmp_path / "two", replace(JOB, seed=5)) != one
    lines = [
        text for row in Texts.read(tmp_path / "one" / "out.parquet").to_pylist() for text in row["text"].split("\n")
    ]
    assert len(set(lines)) > 0.9 * len(lines)


def test_every_passage_has_its_texts_in_order(world: World, tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    write_shards(generator("causal", Path(world.backbone)), world.passages, tmp_path / "shards", JOB, processes(), 9)
    counts = join_shards(tmp_path / "shards", tmp_path / "out.parquet")
    table = Texts.read(tmp_path / "out.parquet")
    ids = Passages.read(world.passages)["passage_id"].to_pylist()
    assert table["passage_id"].to_pylist() == ids
    lines = [text.split("\n") for text in table["text"].to_pylist()]
    assert (counts.passages, counts.texts, counts.without_text) == (len(ids), sum(map(len, lines)), 0)
    assert {len(some) for some in lines} == {2}
    assert counts.distinct <= counts.texts <= counts.pieces <= 6 * counts.texts


def test_a_passage_whose_texts_are_all_blank_has_no_row(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = generator("causal", Path(world.backbone))
    said = iter(range(10**6))
    monkeypatch.setattr(
        type(made.pieces), "texts", lambda self, rows: ["" if next(said) % 4 < 2 else "word" for _ in rows]
    )
    (tmp_path / "shards").mkdir()
    write_shards(made, world.passages, tmp_path / "shards", JOB, processes(), 9)
    counts = join_shards(tmp_path / "shards", tmp_path / "out.parquet")
    rows = Texts.read(tmp_path / "out.parquet").to_pylist()
    assert 0 < counts.without_text == counts.passages - len(rows)
    assert {row["text"] for row in rows} == {"word\nword"}
    assert counts.metrics()["without_text_share"] == counts.without_text / counts.passages


def test_batches_hold_every_row_once_and_stay_in_their_bounds() -> None:
    lengths = np.random.default_rng(0).integers(1, 17, 100)
    batches = list(shards._batches(lengths, JOB))
    assert sorted(np.concatenate(batches).tolist()) == list(range(100))
    assert all(len(rows) == 1 or len(rows) * (lengths[rows].max() + 12) <= 200 for rows in batches)
