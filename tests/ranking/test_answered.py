"""Negatives that hold an answer, and mixtures of runs."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from stages.artifacts.judgements import Asked
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Answers, Passages, Run
from stages.ranking.answered import answering, read_answers
from stages.ranking.groups import Inputs, Rules, read_groups
from stages.ranking.runs import ordered
from tests.ranking.test_groups import QUERIES, write


def test_pairs_are_answered_in_any_order(tmp_path: Path) -> None:
    count = 40_000  # several row groups
    texts = [f"the number {i} of many" for i in range(count)]
    about = {"document_id": texts, "position": [0] * count, "title": ["number 7"] * count}
    Passages.write(tmp_path / "passages", {"passage_id": texts, "text": texts, **about})
    rng = np.random.default_rng(1)
    rows, queries = rng.integers(0, count, 500), rng.integers(0, 3, 500)
    rows[:3] = count - 1, 0, 7
    answers = [["Number 7"], [str(n) for n in rows[::2]], []]
    found = answering(tmp_path / "passages", rows, queries, answers)
    for row, query, holds in zip(rows, queries, found, strict=True):
        assert holds == any(f" {answer.lower()} " in texts[row] for answer in answers[query])
    assert found.any()
    assert not found.all()


def read(inputs: Inputs, rules: Rules, **other: object) -> tuple[Asked, pa.Array, list[list[int]], dict[str, int]]:
    """The queries, ids, negatives and counts of some inputs."""
    asked, ids, groups = read_groups(Inputs(**{**vars(inputs), **other}), rules, 0, 1.0)
    return asked, ids, [groups.negatives.take(np.array([i])).values.tolist() for i in range(len(groups))], groups.counts


def test_groups_lose_what_answers_and_nothing_else(tmp_path: Path) -> None:
    inputs = write(tmp_path, 1)
    pairs = [(f"q{i}", f"NO  {n}") for i in range(1, 6) for n in (i, i + 10)]
    Answers.write(tmp_path / "answers", dict(zip(("query_id", "answer"), zip(*pairs, strict=True), strict=True)))
    asked, ids, before, plain = read(inputs, Rules())
    _, _, after, filtered = read(inputs, Rules(), answers=tmp_path / "answers")
    text = {row["passage_id"]: row["text"] for row in Passages.read(inputs.passages).to_pylist()}
    queries = [asked.ids[int(q)].as_py() for q in read_groups(inputs, Rules(), 0, 1.0)[2].queries]
    for query, old, new in zip(queries, before, after, strict=True):
        number = {row: text[ids[row].as_py()].strip("! ").split()[-1] for row in old}
        assert new == [row for row in old if (query, f"NO  {number[row]}") not in pairs]
    assert filtered["removed_answer"] == plain["negatives"] - filtered["negatives"] > 0


def test_a_mixture_is_the_union_each_run_under_the_rules(tmp_path: Path) -> None:
    inputs = write(tmp_path, 2)
    rng, ids = np.random.default_rng(5), [f"p{i:02d}" for i in range(40)]
    ranked = [(f"q{q}", ids[p]) for q in range(QUERIES) for p in rng.permutation(40)[:20]]
    Run.write(tmp_path / "other", ordered(*zip(*ranked, strict=True), rng.normal(size=len(ranked))))
    rules, one, two = Rules(2, 15, 0.1), inputs.runs, (tmp_path / "other",)
    (_, _, first, few), (_, _, other, more), (_, _, both, all_) = (
        read(inputs, rules, negatives=runs) for runs in (one, two, one + two)
    )
    assert [set(row) for row in both] == [{*a, *b} for a, b in zip(first, other, strict=True)]
    assert all(len(set(row)) == len(row) for row in both)
    repeated = sum(len(set(a) & set(b)) for a, b in zip(first, other, strict=True))
    assert all_["removed_repeated"] == repeated > 0
    assert all_["removed_margin"] == few["removed_margin"] + more["removed_margin"]


def test_answers_to_nothing_asked_are_refused(tmp_path: Path) -> None:
    asked = Asked(pa.array(["q1", "q2"]), ["one", "two"], np.array(["train"] * 2), "queries")
    Answers.write(tmp_path / "answers", {"query_id": ["q2", "q9", "q2"], "answer": ["a", "b", "c"]})
    assert read_answers(tmp_path / "answers", asked) == [[], ["a", "c"]]
    Answers.write(tmp_path / "answers", {"query_id": ["q9"], "answer": ["b"]})
    with pytest.raises(Refusal, match=r"answers: no answer to a query of queries$"):
        read_answers(tmp_path / "answers", asked)
