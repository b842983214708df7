"""The chapter bm25: real collections give the literature's numbers; the bytes depend on nothing but the input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Qrels, Queries, Run
from stages.bm25 import bm25
from stages.evaluation import evaluate
from stages.ranking.runs import by_query

DATA = Path(__file__).parents[2] / "shared" / "data"


def collection(name: str, folder: Path) -> tuple[Path, Path, Path]:
    """The tables of a real BEIR collection's test queries; skips where it is absent."""
    source = DATA / name
    if not source.is_dir():
        pytest.skip(f"the collection {name} is not at ../shared/data")
    documents = [json.loads(line) for line in (source / "corpus.jsonl").read_bytes().splitlines()]
    texts = {row["_id"]: row["text"] for row in map(json.loads, (source / "queries.jsonl").read_bytes().splitlines())}
    judged = [line.split("\t") for line in (source / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    return tables(
        folder,
        {row["_id"]: (row.get("title", ""), row["text"]) for row in documents},
        {name: (texts[name], "test") for name, _, _ in judged},
        [(query, passage, int(grade)) for query, passage, grade in judged],
    )


def tables(
    folder: Path,
    passages: dict[str, tuple[str, str]],
    queries: dict[str, tuple[str, str]],
    qrels: list[tuple[str, str, int]],
) -> tuple[Path, Path, Path]:
    paths = folder / "passages.parquet", folder / "queries.parquet", folder / "qrels.parquet"
    ids, pages = list(passages), list(passages.values())
    columns = {"passage_id": ids, "document_id": ids, "position": [0] * len(ids)}
    Passages.write(paths[0], columns | {"title": [page[0] for page in pages], "text": [page[1] for page in pages]})
    asked = list(queries.values())
    Queries.write(paths[1], {"query_id": list(queries), "text": [q[0] for q in asked], "split": [q[1] for q in asked]})
    Qrels.write(paths[2], dict(zip(Qrels.schema.names, ([row[i] for row in qrels] for i in range(3)), strict=True)))
    return paths


@pytest.mark.parametrize(("name", "ndcg"), [("nfcorpus", 0.322), ("scifact", 0.679)])
def test_the_literatures_numbers(name: str, ndcg: float, tmp_path: Path) -> None:
    passages, queries, qrels = collection(name, tmp_path)
    run, metrics = tmp_path / "bm25.parquet", tmp_path / "metrics" / "bm25.json"
    bm25(passages, queries, run, depth=100)
    evaluate(
        run, queries, qrels, metrics, tmp_path / "v.parquet", tmp_path / "bm25.trec", measures=["nDCG@10"], draws=100
    )
    assert json.loads(metrics.read_text())["nDCG@10"]["mean"] == pytest.approx(ndcg, abs=0.003)


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, Path, Path]:
    words = ["cat", "dog", "fish", "bird"]
    pages = {f"p{i:04}": (words[i % 4], f"{words[i % 3]} {words[i % 2]}") for i in range(700)}
    queries = {f"q{i:03}": (f"{words[i % 4]} {words[i % 3]}", ["train", "dev", "test"][i % 3]) for i in range(600)}
    queries |= {"empty": ("", "test"), "unknown": ("zebra", "test")}
    return tables(tmp_path, pages, queries, [("q000", "p0000", 1)])


def test_same_bytes_whatever_the_threads(small: tuple[Path, Path, Path], tmp_path: Path) -> None:
    passages, queries, _ = small
    runs = [tmp_path / f"{threads}.parquet" for threads in (1, 3)]
    for threads, run in zip((1, 3), runs, strict=True):
        bm25(passages, queries, run, depth=20, threads=threads)
    assert runs[0].read_bytes() == runs[1].read_bytes()
    found = {query_id: ids for query_id, ids, _ in by_query(runs[0])}
    assert list(found) == [f"q{i:03}" for i in range(600)]
    assert all(len(ids) == 20 for ids in found.values())


def test_only_the_splits_asked_for(small: tuple[Path, Path, Path], tmp_path: Path) -> None:
    passages, queries, _ = small
    bm25(passages, queries, tmp_path / "run.parquet", depth=2, splits=["dev", "nowhere"])
    asked = set(Run.read(tmp_path / "run.parquet")["query_id"].to_pylist())
    assert asked == {f"q{i:03}" for i in range(1, 600, 3)}


def test_refusals_leave_nothing(small: tuple[Path, Path, Path], tmp_path: Path) -> None:
    passages, queries, _ = small
    out, empty = tmp_path / "run.parquet", tmp_path / "empty.parquet"
    with pytest.raises(Refusal, match=r"queries\.parquet: no query of splits nowhere$"):
        bm25(passages, queries, out, splits=["nowhere"])
    Passages.write(empty, Passages.schema.empty_table())
    with pytest.raises(Refusal, match=r"empty\.parquet: no passages$"):
        bm25(empty, queries, out)
    Queries.write(empty, {"query_id": ["q", "q"], "text": ["a", "b"], "split": ["test", "test"]})
    with pytest.raises(Refusal, match=r"empty\.parquet: column query_id: q is there twice$"):
        bm25(passages, empty, out)
    with pytest.raises(Refusal, match=r"missing\.parquet: no such file$"):
        bm25(tmp_path / "missing.parquet", queries, out)
    with pytest.raises(Refusal, match=r"^k1: inf is not a finite number$"):
        bm25(passages, queries, out, k1=float("inf"))
    assert not out.exists()


def test_nothing_found_at_all_is_an_empty_run(tmp_path: Path) -> None:
    passages, queries, _ = tables(tmp_path, {"p": ("", "  ")}, {"q": ("cat", "test")}, [])
    bm25(passages, queries, tmp_path / "run.parquet")
    assert Run.count(tmp_path / "run.parquet") == 0


def test_starts_without_the_heavy_libraries() -> None:
    heavy = {"torch", "faiss", "pandas", "pyserini", "openai", "scipy", "transformers"}
    code = f"import stages.bm25, stages.evaluation, stages.comparison, sys; print({heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
