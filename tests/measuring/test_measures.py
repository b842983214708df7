"""Measures against slow ones written from their definitions, and against trec_eval."""

import math
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Qrels
from stages.measuring.measures import DEFAULTS, judged, parse, per_query

Qrel = dict[str, dict[str, int]]
Rankings = list[tuple[str, list[str], None]]


def slow(name: str, ranking: list[str], grades: dict[str, int]) -> float:
    """One measure of one ranking, from its definition."""
    kind, _, depth = name.partition("@")
    top = [grades.get(passage, 0) for passage in ranking[: int(depth)]]
    if kind == "RR":
        return next((1 / rank for rank, grade in enumerate(top, 1) if grade > 0), 0.0)
    if kind == "R":
        return sum(grade > 0 for grade in top) / sum(grade > 0 for grade in grades.values())
    if kind == "nDCG":
        ideal = sorted(grades.values(), reverse=True)[: int(depth)]
        return gain(top) / gain(ideal)
    assert kind == "P(rel=2)"
    return sum(grade >= 2 for grade in top) / int(depth)


def gain(grades: list[int]) -> float:
    return sum(max(grade, 0) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


passages = st.permutations([f"p{i}" for i in range(14)]).flatmap(
    lambda order: st.integers(0, 14).map(lambda length: order[:length])
)
grades = st.dictionaries(st.sampled_from([f"p{i}" for i in range(16)]), st.integers(0, 3), min_size=1).filter(
    lambda found: any(found.values())
)
NAMES = ("RR@10", "nDCG@10", "R@5", "R@1000", "RR@3", "nDCG@3", "P(rel=2)@10")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(passages, grades), min_size=1, max_size=5))
def test_definitions(queries: list[tuple[list[str], dict[str, int]]]) -> None:
    judgements = {f"q{i}": relevant for i, (_, relevant) in enumerate(queries)}
    rankings: Rankings = [(f"q{i}", found, None) for i, (found, _) in enumerate(queries) if found]
    expected = [[slow(name, found, relevant) for name in NAMES] for found, relevant in queries]
    np.testing.assert_allclose(per_query(rankings, judgements, parse(NAMES)), expected, atol=1e-12)


def test_trec_eval_agrees_over_many_queries() -> None:
    random = np.random.default_rng(0)
    judgements = {f"q{i}": {f"p{j}": int(random.integers(3)) for j in random.permutation(99)[:9]} for i in range(600)}
    judgements = {name: found for name, found in judgements.items() if any(found.values())}
    rankings: Rankings = [(q, [f"p{j}" for j in random.permutation(99)[:60]], None) for q in reversed(judgements)]
    values = per_query(rankings, judgements, parse(["nDCG@10", "R@50", "RR"]))
    run = {name: {passage: 1.0 / rank for rank, passage in enumerate(found, 1)} for name, found, _ in rankings}
    names = ["ndcg_cut_10", "recall_50", "recip_rank"]
    theirs = pytrec_eval.RelevanceEvaluator(judgements, {"ndcg_cut.10", "recall.50", "recip_rank"}).evaluate(run)
    np.testing.assert_array_equal(values, [[theirs[query][name] for name in names] for query in judgements])


def test_every_provider_sees_the_same_order() -> None:
    """ir-measures sends RR@10 and nDCG@10 to libraries that break ties in opposite directions."""
    judgements = {"q": {"b": 1}}
    for ranking, worth in ((["a", "b"], 0.5), (["b", "a"], 1.0), (["z", "b"], 0.5), (["b", "z"], 1.0)):
        found = per_query([("q", ranking, np.zeros(2))], judgements, parse(["RR@10", "P@1", "nDCG@1", "RR"]))
        assert found.tolist() == [[worth, worth == 1, worth == 1, worth]]


def test_queries_without_a_ranking_are_worth_nothing() -> None:
    judgements = {"a": {"p": 1}, "b": {"p": 1}, "c": {"p": 1}}
    rankings: Rankings = [("unjudged", ["p"], None), ("c", ["p"], None), ("b", [], None)]
    assert per_query(rankings, judgements, parse(DEFAULTS)).tolist() == [[0] * 5, [0] * 5, [1] * 5]


def test_judged_queries_have_a_relevant_passage(tmp_path: Path) -> None:
    path = tmp_path / "qrels.parquet"
    rows = [("q1", "a", 0), ("q3", "a", 2), ("q3", "b", 0), ("q2", "a", -1), ("other", "a", 1), ("q1", "b", 1)]
    Qrels.write(path, dict(zip(Qrels.schema.names, ([row[i] for row in rows] for i in range(3)), strict=True)))
    found = judged(path, ["q3", "q2", "q1", "unjudged"])
    assert list(found.items()) == [("q3", {"a": 2, "b": 0}), ("q1", {"a": 0, "b": 1})]


def test_a_passage_judged_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "qrels.parquet"
    Qrels.write(path, {"query_id": ["x", "q", "q"], "passage_id": ["a", "a", "a"], "relevance": [1, 1, 0]})
    with pytest.raises(Refusal, match=r"qrels\.parquet: row 2: passage a is judged twice for its query$"):
        judged(path, ["q"])


@pytest.mark.parametrize(
    "name", ["Nonsense@10", "RR@", "nDCG@-1", "nDCG@0", "R", "R@ten", "nDCG(foo=2)@10", "__import__('os')", "", "a b"]
)
def test_unknown_measures_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(Refusal) as refusal:
        parse(["RR@10", name])
    assert str(refusal.value).startswith(f"measures: {name!r} ")
    assert "\n" not in str(refusal.value)


def test_names_are_those_of_ir_measures() -> None:
    names = [str(measure) for measure in parse(["MRR@10", "NDCG@10", "P(rel=2)@10"])]
    assert names == ["RR@10", "nDCG@10", "P(rel=2)@10"]
    with pytest.raises(Refusal, match=r"^measures: RR@10 is given twice$"):
        parse(["RR@10", "MRR@10"])
