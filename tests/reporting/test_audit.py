"""The negatives' audit against a definition that goes pair by pair, and what may not change it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from stages.artifacts.tables import Qrels, Queries, Run
from stages.ranking.groups import Inputs
from stages.reporting.audit import Audit, audited, bands, difficulty, false_by_rank, rules_of, summary
from stages.reporting.samples import sampled
from tests.reporting.build import PARAMS, build


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    build(folder)
    return folder / "data"


def inputs(data: Path) -> Inputs:
    return Inputs(*(data / f"{name}.parquet" for name in ("tokens", "queries", "qrels", "passages")))


@pytest.fixture(scope="module")
def audit(folder: Path) -> Audit:
    found = audited(inputs(folder), folder / "runs", yaml.safe_load(PARAMS), seed=0, sample=10_000)
    assert found is not None
    return found


def run_of(data: Path, name: str) -> dict[tuple[str, str], tuple[int, float]]:
    rows = Run.read(data / "runs" / f"{name}.parquet").to_pylist()
    return {(row["query_id"], row["passage_id"]): (row["rank"], row["score"]) for row in rows}


def slow_summary(data: Path, source: str, first: int, last: int) -> dict[str, Any]:
    """What `summary` says of one pool, pair by pair."""
    train = {row["query_id"] for row in Queries.read(data / "queries.parquet").to_pylist() if row["split"] == "train"}
    positives: dict[str, set[str]] = {}
    for row in Qrels.read(data / "qrels.parquet").to_pylist():
        positives.setdefault(row["query_id"], set()).add(row["passage_id"])
    pool = [
        pair
        for pair, (rank, _) in run_of(data, source).items()
        if pair[0] in train and first <= rank <= last and pair[1] not in positives[pair[0]]
    ]
    judge, teacher = run_of(data, "retriever2"), run_of(data, "teacher")

    def best(run: dict[tuple[str, str], tuple[int, float]], query: str) -> float:
        return max((run[query, name][1] for name in positives[query] if (query, name) in run), default=np.nan)

    harder = sum(judge[pair][1] > best(judge, pair[0]) for pair in pool if pair in judge)
    taught = [pair for pair in pool if pair in teacher]
    false = sum(teacher[pair][1] > best(teacher, pair[0]) for pair in taught)
    lexical = run_of(data, "bm25")
    ranks = [lexical[pair][0] if pair in lexical else np.inf for pair in pool]
    return {
        "per_query": len(pool) / len(train),
        "bm25": float(np.median(ranks)),
        "harder": harder / len(pool),
        "taught": len(taught),
        "false": false / len(taught),
    }


@pytest.mark.parametrize(
    ("name", "source", "first", "last"),
    [
        ("retriever1", "bm25", 1, 12),
        ("retriever2", "retriever1", 2, 8),
        ("reranker", "retriever2", 1, 8),
        ("retriever", "teacher", 1, 6),
    ],
)
def test_a_pool_pair_by_pair(folder: Path, audit: Audit, name: str, source: str, first: int, last: int) -> None:
    told = next(row for row in summary(audit) if row["name"] == name)
    slow = slow_summary(folder, source, first, last)
    assert told["source"] == source
    assert told["per_query"] == pytest.approx(slow["per_query"])
    assert told["ranks"]["bm25"] == slow["bm25"]
    assert told["harder"] == pytest.approx(slow["harder"])
    assert told["false"][0] == slow["taught"]
    assert told["false"][1] == pytest.approx(slow["false"])
    assert told["false"][1] <= told["false"][2]


def test_shares_add_up(audit: Audit) -> None:
    rows = bands(audit)
    for run in ("bm25", "retriever1", "retriever2"):
        for one in audit.rounds:
            shares = [row["share"] for row in rows if (row["run"], row["round"]) == (run, one.name)]
            assert sum(shares) == pytest.approx(1, abs=1e-5)
    for one in audit.rounds:
        assert sum(row["share"] for row in difficulty(audit) if row["round"] == one.name) <= 1 + 1e-5


def test_the_run_that_proposes_ranks_its_whole_pool(audit: Audit) -> None:
    for one in audit.rounds:
        if one.source in audit.places:
            assert (audit.places[one.source].rank[one.at] > 0).all()


def test_false_negatives_by_rank_are_shares_of_enough_pairs(audit: Audit) -> None:
    for row in false_by_rank(audit):
        assert 0 <= row["share"] <= 1
        assert row["count"] >= 20


def test_a_sample_of_queries_is_smaller_and_reproducible(folder: Path, audit: Audit) -> None:
    params = yaml.safe_load(PARAMS)
    some = [audited(inputs(folder), folder / "runs", params, seed=0, sample=10) for _ in range(2)]
    assert some[0] is not None
    assert some[1] is not None
    assert len(some[0].groups) == 10 < len(audit.groups)
    assert {tuple(one.groups.queries) for one in some[0].rounds} == {tuple(some[0].groups.queries)}
    np.testing.assert_array_equal(some[0].pairs, some[1].pairs)


def test_a_chain_that_is_half_done(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bm25.parquet").symlink_to(folder / "runs" / "bm25.parquet")
    found = audited(inputs(folder), tmp_path, yaml.safe_load(PARAMS), seed=0, sample=100)
    assert found is not None
    assert [row["false"] for row in summary(found)] == [None]
    assert found.judge == "bm25"
    assert audited(inputs(folder), tmp_path / "nothing", yaml.safe_load(PARAMS), seed=0, sample=100) is None


def test_samples_show_answers_first_and_suspects_that_outscore_them(audit: Audit) -> None:
    shown = sampled(audit, 5, 3, seed=1)
    assert len(shown) == 5
    for sample in shown:
        best = sample.shown[0]
        assert best.positive
        assert best.teacher is not None
        for one in sample.shown:
            assert one.positive != bool(one.pools)
            if not one.positive and one.teacher is not None:
                assert one.suspect == (one.teacher > best.teacher)


def test_rules_come_from_the_parameters_of_the_round() -> None:
    rules = rules_of({"depth": 50, "first": 3, "margin": 0.5, "epochs": 2})
    assert (rules.first, rules.last, rules.margin) == (3, 50, 0.5)
    assert rules_of({"margin": None}) == rules_of({})
