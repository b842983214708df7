"""Searching one query gives what the stages' runs say; the index is made once, mapped, and as Pyserini reads it."""

import shutil
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
import pytest

from stages.artifacts.documents import write_json
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Queries
from stages.bm25 import bm25
from stages.mining import mine
from stages.ranking.runs import by_query
from stages.rescoring import rescore
from stages.searching import index
from stages.searching.index import opened
from stages.searching.known import Known
from stages.searching.systems import QUERY, Systems
from tests.conftest import World
from tests.searching import build

OPTIONS = {"longest": build.LONGEST, "longest_query": build.QUERY, "precision": "fp32", "splits": ["test"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("searching")


@pytest.fixture(scope="module")
def found(world: World, folder: Path) -> Systems:
    return build.systems(world, world.folder, folder)


@pytest.fixture(scope="module")
def runs(world: World, folder: Path, found: Systems) -> dict[str, Path]:
    """The runs of the chapters over the test queries, with the same models and numbers."""
    paths = {name: folder / f"{name}.parquet" for name in ("bm25", "retriever", "reranked")}
    bm25(world.passages, world.queries, paths["bm25"], depth=8, splits=["test"])
    mine(world.backbone, world.tokens, world.queries, paths["retriever"], depth=8, **OPTIONS)  # type: ignore[arg-type]
    tables = world.tokens, world.queries, world.qrels
    more = OPTIONS | {"depth": 5, "keep_rest": True, "prior": 50.0}
    rescore(folder / "reranker", paths["retriever"], *tables, paths["reranked"], **more)  # type: ignore[arg-type]
    return paths


@pytest.mark.parametrize("name", ["bm25", "retriever", "reranked"])
def test_one_query_is_a_row_of_the_run(world: World, found: Systems, runs: dict[str, Path], name: str) -> None:
    texts = {row["query_id"]: row["text"] for row in Queries.read(world.queries).to_pylist()}
    first = {query_id: list(scores) for query_id, _, scores in by_query(runs["retriever"])}
    compared = 0
    for query_id, passage_ids, scores in by_query(runs[name]):
        hits = found.search(name, texts[query_id], 8)
        by_id = {hit.passage_id: hit.score for hit in hits}
        if name == "reranked":  # behind the candidates scores only keep the order; ties for the last place may change
            tied = first[query_id][5:] and first[query_id][4] - first[query_id][5] < 1e-5
            passage_ids, scores = ([], []) if tied else (passage_ids[:5], scores[:5])
        np.testing.assert_allclose([hit.score for hit in hits][: len(scores)], scores, atol=2e-4)
        for passage_id, score in zip(passage_ids, scores, strict=True):
            assert by_id.get(passage_id, hits[-1].score) == pytest.approx(score, rel=2e-7, abs=2e-4)
        assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
        compared += len(scores) > 0
    assert compared > (3 if name == "reranked" else 5)


def test_one_query_is_moved_as_in_the_run(world: World, found: Systems, tmp_path: Path) -> None:
    feedback = {"feedback": 2, "feedback_weight": 0.7}
    mine(world.backbone, world.tokens, world.queries, tmp_path / "run", depth=8, **OPTIONS, **feedback)  # type: ignore[arg-type]
    texts = {row["query_id"]: row["text"] for row in Queries.read(world.queries).to_pylist()}
    moved = Systems(found.library, replace(found.settings, **feedback))  # type: ignore[arg-type]
    for query_id, _, scores in by_query(tmp_path / "run"):
        hits = moved.search("retriever", texts[query_id], 8)
        np.testing.assert_allclose([hit.score for hit in hits], scores, atol=1e-5)


def test_fused_adds_up_what_both_find(world: World, found: Systems) -> None:
    for query in [row["text"] for row in Queries.read(world.queries).to_pylist()][:10]:
        total: dict[str, float] = {}
        for name in ("bm25", "retriever"):
            hits = found.search(name, query, 100)
            best, last = hits[0].score, hits[-1].score
            for hit in hits:
                worth = (hit.score - last) / (best - last) if best > last else 1.0
                total[hit.passage_id] = total.get(hit.passage_id, 0) + worth
        hits = found.search("fused", query, 7)
        assert len(hits) == 7
        assert [hit.score for hit in hits] == pytest.approx(sorted(total.values(), reverse=True)[:7], abs=1e-3)
        for hit in hits:
            assert hit.score == pytest.approx(total[hit.passage_id], abs=1e-3)
    unknown = found.search("fused", "zzzz", 5)  # no word that BM25 knows
    assert [hit.passage_id for hit in unknown] == [hit.passage_id for hit in found.search("retriever", "zzzz", 5)]


def test_hits_carry_their_texts(world: World, found: Systems) -> None:
    texts = {row["passage_id"]: row["text"] for row in Passages.read(world.passages).to_pylist()}
    for name in found.names:
        for hit in found.search(name, "bake limo", 4):
            assert hit.text == texts[hit.passage_id]


def test_nothing_is_found_for_nothing_and_the_corpus_is_the_limit(found: Systems) -> None:
    for name in found.names:
        assert found.search(name, " \n ", 5) == []
    assert len(found.search("retriever", "x", 10_000)) == len(found.library)
    assert len(found.search("reranked", "x", 10_000)) == len(found.library)
    assert found.search("bm25", "?!", 5) == []


def test_queries_are_bounded_and_systems_known(found: Systems) -> None:
    with pytest.raises(Refusal, match=r"^query: 1001 characters, at most 1000 are read$"):
        found.search("bm25", "x" * (QUERY + 1), 3)
    with pytest.raises(Refusal, match="system 'google': expected one of bm25, retriever, fused, reranked"):
        found.search("google", "x", 3)


def test_the_layout_is_pyserinis_and_the_file_is_mapped(world: World, found: Systems) -> None:
    folder = found.library.folder
    ids = Passages.read(world.passages)["passage_id"].to_pylist()
    assert [line.rstrip() for line in (folder / "docid").read_text().splitlines()] == ids
    plain = faiss.read_index(str(folder / "index"))
    assert (plain.ntotal, plain.metric_type) == (len(ids), faiss.METRIC_INNER_PRODUCT)
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert f"{folder}/index\n" in maps.read_text()
        assert f"{folder}/passages.arrow\n" in maps.read_text()


def test_an_index_is_built_once_and_again_when_its_source_changed(
    world: World, folder: Path, found: Systems, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    real = index.build
    monkeypatch.setattr(index, "build", lambda *args: (built.append("built"), real(*args)))
    opened(folder / "index", build.source(world, world.folder))
    assert built == []
    other = index.Source(world.backbone, world.tokens, world.passages, 32, "fp32")
    opened(folder / "other", other)
    opened(folder / "other", build.source(world, world.folder))
    assert built == ["built", "built"]


def test_passages_of_another_corpus_are_refused(world: World, tmp_path: Path) -> None:
    rows = Passages.read(world.passages)
    Passages.write(tmp_path / "passages.parquet", rows.slice(1))
    wrong = index.Source(world.backbone, world.tokens, tmp_path / "passages.parquet", 32, "fp32")
    with pytest.raises(Refusal, match=r"passages\.parquet: passage_ids differ from those of"):
        opened(tmp_path / "index", wrong)
    assert not (tmp_path / "index").exists()


def test_a_retriever_that_ranks_by_bags_is_refused(world: World, tmp_path: Path) -> None:
    shutil.copytree(world.backbone, tmp_path / "model")
    write_json(tmp_path / "model" / "bag.json", {"kept": 8})
    with pytest.raises(Refusal, match="model: ranks by a bag of words too"):
        opened(tmp_path / "index", index.Source(tmp_path / "model", world.tokens, world.passages, 32, "fp32"))


def test_known_queries_are_found_whatever_their_case_and_spaces(world: World) -> None:
    known = Known(world.queries, world.qrels)
    row = Queries.read(world.queries).to_pylist()[0]
    assert known.gold(f"  {row['text'].upper()} ") >= {row["query_id"].removeprefix("q-")}
    assert known.gold("what nobody asked") == set()
    assert set(known.examples) <= set(Queries.read(world.queries)["text"].to_pylist())
