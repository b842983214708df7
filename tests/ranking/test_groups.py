"""What a training query may see, and what a step draws."""

from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Qrels, Queries, Run, Tokens
from stages.ranking.biencoder import allowed
from stages.ranking.groups import Groups, Inputs, Rules, read_groups, with_prior
from stages.ranking.runs import ordered
from stages.ranking.sampling import Draw, Sampler

PASSAGES, QUERIES = 40, 12


def write(folder: Path, seed: int) -> Inputs:
    """A random collection in which texts repeat, with a run that ranks positives and their copies too."""
    rng = np.random.default_rng(seed)
    ids = [f"p{i:02d}" for i in range(PASSAGES)]
    kinds = rng.integers(0, 25, PASSAGES)
    texts = [("Café  No %d" if i % 2 else " café,\tno %d! ") % kind for i, kind in enumerate(kinds)]
    blank = {"words": [[0]] * PASSAGES, "word_of_piece": [[0]] * PASSAGES}
    Tokens.write(folder / "tokens", {"passage_id": ids, "pieces": [[5]] * PASSAGES, **blank})
    about = {"document_id": ids, "position": [0] * PASSAGES, "title": [""] * PASSAGES}
    Passages.write(folder / "passages", {"passage_id": ids, "text": texts, **about})
    names = [f"q{i}" for i in range(QUERIES)]
    splits = ["train"] * (QUERIES - 2) + ["dev"] * 2
    Queries.write(folder / "queries", {"query_id": names, "text": names, "split": splits})
    pairs = sorted({(int(rng.integers(1, QUERIES)), int(rng.integers(PASSAGES))) for _ in range(20)} | {(1, 0)})
    grades = [int(rng.integers(0, 3)) for _ in pairs[:-1]] + [1]
    judged = {"query_id": [names[q] for q, _ in pairs], "passage_id": [ids[p] for _, p in pairs], "relevance": grades}
    Qrels.write(folder / "qrels", judged)
    ranked = [(q, p) for q in range(QUERIES) for p in rng.permutation(PASSAGES)[: rng.integers(12, 30)]]
    columns = [names[q] for q, _ in ranked], [ids[p] for _, p in ranked], rng.normal(size=len(ranked)).round(1)
    Run.write(folder / "run", ordered(*columns))
    return Inputs(*(folder / name for name in ("tokens", "queries", "qrels", "passages")), (folder / "run",))


def plainly(inputs: Inputs, rules: Rules) -> dict[str, list[str]]:
    """The negatives of every training query, by loops over the tables."""
    text = {row["passage_id"]: row["text"] for row in Passages.read(inputs.passages).to_pylist()}
    same = {name: " ".join(words.lower().replace(",", "").replace("!", "").split()) for name, words in text.items()}
    good: dict[str, set[str]] = {}
    for row in Qrels.read(inputs.qrels).to_pylist():
        if row["relevance"] > 0:
            good.setdefault(row["query_id"], set()).add(row["passage_id"])
    [negatives] = inputs.runs
    run = Run.read(negatives).to_pylist()
    out: dict[str, list[str]] = {}
    for query in Queries.read(inputs.queries).to_pylist():
        name = query["query_id"]
        if query["split"] != "train" or name not in good:
            continue
        mine = [row for row in run if row["query_id"] == name]
        best = max(
            (row["score"] for row in mine if row["passage_id"] in good[name] and row["rank"] <= rules.last),
            default=np.inf,
        )
        barred = {same[p] for p in good[name]}
        out[name] = [
            row["passage_id"]
            for row in mine
            if rules.first <= row["rank"] <= rules.last
            and same[row["passage_id"]] not in barred
            and (rules.margin is None or row["score"] <= best - rules.margin)
        ]
    return out


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    first=st.integers(1, 6),
    last=st.integers(6, 40),
    margin=st.none() | st.sampled_from([-0.5, 0.0, 0.25]),
)
def test_negatives_are_what_the_rules_leave(
    tmp_path_factory: pytest.TempPathFactory, seed: int, first: int, last: int, margin: float | None
) -> None:
    inputs, rules = write(tmp_path_factory.mktemp("groups"), seed), Rules(first, last, margin)
    asking, ids, groups = read_groups(inputs, rules, 0, 1.0)
    names = [asking.ids[int(query)].as_py() for query in groups.queries]
    rows = [groups.negatives.take(np.array([i])).values for i in range(len(groups))]
    assert {name: [ids[int(r)].as_py() for r in row] for name, row in zip(names, rows, strict=True)} == plainly(
        inputs, rules
    )
    removed = sum(count for name, count in groups.counts.items() if name.startswith("removed_"))
    assert groups.counts["candidates"] == removed + groups.counts["negatives"]
    assert groups.counts["queries"] + groups.counts["queries_without_positive"] == len(asking)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 99), step=st.integers(0, 30), draw=st.sampled_from(["sample", "rotate"]))
def test_a_step_draws_only_what_it_may(
    tmp_path_factory: pytest.TempPathFactory, seed: int, step: int, draw: Draw
) -> None:
    inputs = write(tmp_path_factory.mktemp("groups"), seed)
    _, _, groups = read_groups(inputs, Rules(), 0, 1.0)
    sampler = Sampler(groups, batch=4, size=6, seed=seed, draw=draw)
    drawn = sampler.step(step)
    again = Sampler(groups, batch=4, size=6, seed=seed, draw=draw).step(step)
    np.testing.assert_array_equal(drawn.passages, again.passages)
    assert drawn.filled == 0
    for group, passages in zip(drawn.groups, drawn.passages, strict=True):
        assert passages[0] in groups.positives.take(np.array([group])).values
        assert set(passages[1:]) <= set(groups.negatives.take(np.array([group])).values)
        assert len(set(passages)) == 6
    mask = allowed(groups, drawn)
    for i, group in enumerate(drawn.groups):
        barred = set(groups.same[groups.positives.take(np.array([group])).values])
        for j, passage in enumerate(drawn.passages.ravel()):
            assert mask[i, j] == (j == i * 6 or groups.same[passage] not in barred)


def test_an_epoch_asks_every_query_once_and_round_robin_uses_every_negative(tmp_path: Path) -> None:
    _, _, groups = read_groups(write(tmp_path, 1), Rules(), 0, 1.0)
    count = len(groups)
    sampler = Sampler(groups, batch=1, size=3, seed=5, draw="rotate")
    for epoch in range(2):
        drawn = [int(sampler.step(epoch * count + i).groups[0]) for i in range(count)]
        assert sorted(drawn) == list(range(count))
    seen: dict[int, list[int]] = {group: [] for group in range(count)}
    for step in range(count * 15):
        drawn = sampler.step(step)
        seen[int(drawn.groups[0])] += drawn.passages[0, 1:].tolist()
    for group, rows in seen.items():
        pool = groups.negatives.take(np.array([group])).values
        uses = [rows.count(row) for row in pool]
        assert max(uses) - min(uses) <= 1


def test_gaps_are_refused_or_filled_with_strangers(tmp_path: Path) -> None:
    inputs = write(tmp_path, 2)
    _, _, groups = read_groups(inputs, Rules(last=3), 0, 1.0)
    strict = Sampler(groups, batch=2, size=9, seed=0, fill=False)
    with pytest.raises(
        Refusal, match=r"^the run: \d+ of \d+ training queries have fewer than 8 negatives \(the least: \d\)"
    ):
        strict.refuse("the run", 1)
    drawn = replace(strict, fill=True).step(0)
    assert drawn.filled >= 10
    for group, passages in zip(drawn.groups, drawn.passages, strict=True):
        barred = groups.same[groups.positives.take(np.array([group])).values]
        assert not np.isin(groups.same[passages[1:]], barred).any()
        assert len(set(passages.tolist())) == 9


def test_a_fraction_is_seeded_and_counted(tmp_path: Path) -> None:
    inputs = write(tmp_path, 3)
    _, _, whole = read_groups(inputs, Rules(), 0, 1.0)
    _, _, half = read_groups(inputs, Rules(), 0, 0.5)
    _, _, again = read_groups(inputs, Rules(), 0, 0.5)
    assert len(half) == round(len(whole) / 2)
    assert half.counts["queries_left_out"] == len(whole) - len(half)
    np.testing.assert_array_equal(half.queries, again.queries)
    assert set(half.queries) <= set(whole.queries)


def test_a_teacher_must_know_a_positive_of_every_query_and_other_negatives_are_dropped(tmp_path: Path) -> None:
    inputs = write(tmp_path, 4)
    asking, ids, plain = read_groups(inputs, Rules(), 0, 1.0)
    pairs = {(asking.ids[int(q)].as_py(), ids[int(p)].as_py()) for q, p in _pairs(plain, positives=True)}
    some = sorted((asking.ids[int(q)].as_py(), ids[int(p)].as_py()) for q, p in _pairs(plain, positives=False))[::2]
    scored = sorted(pairs | set(some))
    value = {pair: float(i) for i, pair in enumerate(scored)}
    Run.write(tmp_path / "teacher", ordered([q for q, _ in scored], [p for _, p in scored], list(value.values())))
    taught = replace(inputs, teacher=tmp_path / "teacher")
    _, _, groups = read_groups(taught, Rules(), 0, 1.0)
    assert groups.counts["removed_unscored"] == plain.counts["negatives"] - len(some)
    drawn = Sampler(groups, batch=5, size=4, seed=0).step(3)
    assert drawn.teacher is not None
    for group, passages, scores in zip(drawn.groups, drawn.passages, drawn.teacher, strict=True):
        query = asking.ids[int(groups.queries[group])].as_py()
        for passage, score in zip(passages, scores, strict=True):
            assert (
                np.isnan(score)
                if (query, ids[int(passage)].as_py()) not in value
                else score == value[query, ids[int(passage)].as_py()]
            )
    mine = [pair for pair in scored if pair in pairs and pair[0] == min(pairs)[0]]
    kept = [pair for pair in scored if pair not in mine]
    Run.write(tmp_path / "teacher", ordered([q for q, _ in kept], [p for _, p in kept], [0.0] * len(kept)))
    with pytest.raises(Refusal, match=f"no score for query {mine[0][0]} and any of its positives"):
        read_groups(taught, Rules(), 0, 1.0)


def test_a_positive_without_a_teachers_score_is_neither_learnt_nor_a_negative(tmp_path: Path) -> None:
    inputs = write(tmp_path, 4)
    asking, ids, plain = read_groups(inputs, Rules(), 0, 1.0)
    positives, negatives = (_pairs(plain, positives=kind) for kind in (True, False))
    learnt = dict(positives)  # the last of each
    rows = sorted({*learnt.items(), *negatives})
    names = [asking.ids[q].as_py() for q, _ in rows], [ids[p].as_py() for _, p in rows]
    Run.write(tmp_path / "teacher", ordered(*names, np.arange(len(rows), dtype=np.float64)))
    _, _, groups = read_groups(replace(inputs, teacher=tmp_path / "teacher"), Rules(), 0, 1.0)
    assert groups.counts["unscored_positives"] == len(positives) - len(learnt) > 0
    sampler = Sampler(groups, batch=5, size=4, seed=0)
    for step in range(20):
        drawn = sampler.step(step)
        for group, passages in zip(drawn.groups, drawn.passages, strict=True):
            query = int(groups.queries[group])
            assert passages[0] == learnt[query]
            assert not {(query, int(passage)) for passage in passages[1:]} & set(positives)


def test_a_prior_is_the_runs_own_score_and_its_lowest_for_a_positive_it_lacks(tmp_path: Path) -> None:
    inputs = write(tmp_path, 6)
    [negatives] = inputs.runs
    asking, ids, plain = read_groups(inputs, Rules(), 0, 1.0)
    groups = with_prior(plain, negatives, asking, ids)
    assert groups.teacher is not None
    rows = Run.read(negatives).to_pylist()
    value = {(row["query_id"], row["passage_id"]): row["score"] for row in rows}
    lowest = {row["query_id"]: row["score"] for row in rows}  # ranks ascend: the last one stays
    lacked = 0
    for positives, scores in ((True, groups.teacher[0]), (False, groups.teacher[1])):
        for (query, passage), score in zip(_pairs(groups, positives), scores, strict=True):
            name, pair = asking.ids[query].as_py(), (asking.ids[query].as_py(), ids[passage].as_py())
            lacked += pair not in value
            assert score == value.get(pair, lowest[name])
    assert lacked > 0
    np.testing.assert_array_equal(groups.negatives.values, plain.negatives.values)


def test_unknown_ids_and_absent_splits_are_refused_by_file_and_row(tmp_path: Path) -> None:
    inputs = write(tmp_path, 5)
    [negatives] = inputs.runs
    Run.write(negatives, {"query_id": ["q1"], "passage_id": ["p99"], "score": [1.0], "rank": [1]})
    with pytest.raises(Refusal, match=r"run: row 0: passage_id p99 is not among the tokens'$"):
        read_groups(inputs, Rules(), 0, 1.0)
    Run.write(negatives, {"query_id": ["q11"], "passage_id": ["p09"], "score": [1.0], "rank": [1]})
    with pytest.raises(Refusal, match=r"run: no rows for the training queries"):
        read_groups(inputs, Rules(), 0, 1.0)
    Qrels.write(inputs.qrels, {"query_id": ["q1", "q2"], "passage_id": ["p01", "pX"], "relevance": [1, 1]})
    with pytest.raises(Refusal, match=r"qrels: row 1: passage_id pX is not among the tokens'$"):
        read_groups(inputs, Rules(), 0, 1.0)
    Qrels.write(inputs.qrels, {"query_id": ["q1"], "passage_id": ["p01"], "relevance": [0]})
    with pytest.raises(Refusal, match=r"queries: none of its 10 training queries has a positive"):
        read_groups(inputs, Rules(), 0, 1.0)
    Queries.write(inputs.queries, {"query_id": ["q1"], "text": ["q1"], "split": ["test"]})
    with pytest.raises(Refusal, match=r"queries: no query of split train$"):
        read_groups(inputs, Rules(), 0, 1.0)


def _pairs(groups: Groups, positives: bool) -> list[tuple[int, int]]:
    rows = groups.positives if positives else groups.negatives
    return list(zip(np.repeat(groups.queries, rows.lengths).tolist(), rows.values.tolist(), strict=True))
