"""The benchmarks: all import; of benchmarks/retriever.py both sides do the same work, and what was measured stays."""

import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from benchmarks import retriever as benchmark
from stages.artifacts.documents import read_json
from stages.artifacts.tables import Queries, Run, Tokens
from stages.ranking.runs import ordered

SIZES = {"texts": 20, "longest": 32, "batch": 4, "steps": 2, "pairs": 30, "queries": 9, "depth": 5}


@pytest.mark.parametrize("name", sorted(path.stem for path in Path(benchmark.__file__).parent.glob("*.py")))
def test_every_benchmark_still_fits_the_rooms_that_it_imports(name: str) -> None:
    import_module(f"benchmarks.{name}")


@pytest.fixture
def settings(world: Any, tmp_path: Path) -> benchmark.Settings:
    """The world as the data folder of a finished run, every pair in its run of BM25."""
    data = tmp_path / "data"
    (data / "runs").mkdir(parents=True)
    for name in ("passages", "queries", "qrels", "tokens"):
        shutil.copyfile(getattr(world, name), data / f"{name}.parquet")
    queries = Queries.read(world.queries)["query_id"].to_pylist()
    names = Tokens.read(world.tokens)["passage_id"].to_pylist()
    rows = [(query, name) for query in queries for name in names]
    scores = np.random.default_rng(2).normal(size=len(rows))
    Run.write(data / "runs/bm25.parquet", ordered([q for q, _ in rows], [p for _, p in rows], scores))
    return benchmark.Settings(str(data), str(world.backbone), str(world.backbone), **SIZES)


def test_both_sides_encode_the_same(settings: benchmark.Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = benchmark.passages_of(settings)
    assert len(texts) == 20
    monkeypatch.setattr(benchmark, "encoded", lambda settings, encode: encode(texts))
    ours, theirs = (benchmark.run(settings, f"encode fp32 {side}") for side in ("ours", "theirs"))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    read = AutoTokenizer.from_pretrained(settings.backbone)(texts, truncation=True, max_length=32)["input_ids"]
    assert benchmark.real_tokens(settings, texts) == sum(map(len, read))
    assert max(map(len, read)) == 32


def test_both_sides_score_the_same_pairs(settings: benchmark.Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    from stages.ranking.crossencoder import load_crossencoder, save_crossencoder

    reranker = Path(settings.data).parent / "reranker"  # a new head would be drawn anew by either side
    save_crossencoder(load_crossencoder(settings.backbone, seed=3), settings.backbone, reranker)
    chosen = benchmark.pairs_of(settings)
    assert len(chosen[2]) == len(chosen[3]) == 30
    assert len(set(zip(*chosen[2:], strict=True))) == 30
    monkeypatch.setattr(benchmark, "paired", lambda settings, scored: scored(*chosen))
    with_reranker = replace(settings, reranker=str(reranker))
    ours, theirs = (benchmark.run(with_reranker, f"pairs fp32 {side}") for side in ("ours", "theirs"))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_both_sides_find_the_same(
    settings: benchmark.Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(benchmark, "SHARD", 64)
    queries, files = benchmark.vectors_of(settings, 150, tmp_path)
    assert len(files) == 3
    monkeypatch.setattr(benchmark, "searched", lambda settings, passages, ready: ready(files)(queries))
    ours, theirs = (benchmark.run(settings, f"search 150 {side}") for side in ("ours", "theirs"))
    stored = np.concatenate([np.load(file) for file in files]).astype(np.float64)
    np.testing.assert_array_equal(ours, np.argsort(-(queries.astype(np.float64) @ stored.T), axis=1)[:, :5])
    np.testing.assert_array_equal(np.sort(ours), np.sort(theirs))


def test_both_sides_train_on_the_same_tokens(settings: benchmark.Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    triplets = benchmark.triplets_of(settings)
    texts = triplets.queries + triplets.positives + triplets.negatives
    assert len(texts) == len(set(texts)) == 3 * 4 * (benchmark.WARM + 2)
    batches = benchmark.batches_of(settings, triplets)
    parts = [part for step in range(benchmark.WARM + 2) for part in batches(step)]
    assert sum(part.counts["tokens"] for part in parts) == benchmark.real_tokens(settings, texts)
    monkeypatch.setattr(benchmark.Stops, "found", lambda stops: {"read": stops.read, "steps": len(stops.at)})
    told = benchmark.run(settings, "train fp32 theirs")
    assert told == {"read": benchmark.real_tokens(settings, texts), "steps": benchmark.WARM + 2}
    assert benchmark.run(settings, "train bf16 ours")["loss"] > 0


def test_nothing_is_encoded_twice_and_memory_is_told(settings: benchmark.Settings) -> None:
    told = benchmark.run(settings, "kept bf16 ours")
    assert (told["first encoded shards"], told["second encoded shards"]) == (2, 0)
    with benchmark.growth() as held:
        more = np.ones(2**22)  # 32 MiB
        benchmark.time.sleep(0.2)
    assert 30 < max(held) < 40
    del more


def test_sides_take_turns_and_what_stands_there_is_kept(
    settings: benchmark.Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def measured(settings: benchmark.Settings, key: str) -> dict[str, float]:
        asked.append(key)
        rate = 3.0 * len(asked) if key.endswith("ours") else 1.0
        return {"rate": rate, "seconds": 1 / rate, "growth MiB": 1.0}

    monkeypatch.setattr(benchmark, "alone", measured)
    out, folder = tmp_path / "out.json", Path(settings.data)

    def run(rounds: int, **more: Any) -> None:
        sizes = {**SIZES, "precision": ["fp32"], "tasks": ["encode", "search"], "passages": [50]} | more
        benchmark.measure(folder, Path(settings.backbone), out, rounds=rounds, **sizes)

    run(2)
    first = [f"{task} {side}" for task in ("encode fp32", "search 50") for side in ("ours", "theirs")]
    assert asked == [*first, first[1], first[0], first[3], first[2]]
    assert [one["rate"] for one in read_json(out)["runs"]["encode fp32 ours"]] == [3.0, 18.0]
    assert "| encode fp32, tokens/s | 10 | 1 | 10.50 (3.00 – 18.00) | 1.05 | 6750 |" in capsys.readouterr().out
    run(2)
    assert len(asked) == 8
    run(3)
    assert len(asked) == 12
    run(1, texts=21)
    assert len(asked) == 16
