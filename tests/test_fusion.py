"""Fusion and MaxP against slow definitions."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Run
from stages.fusion import fuse, maxp
from stages.ranking.runs import by_query, ordered

RUN = st.dictionaries(
    st.tuples(st.sampled_from("qrst"), st.sampled_from("abcdef")), st.integers(-4, 4).map(float), min_size=1
)


def written(path: Path, scores: dict[tuple[str, str], float], backwards: bool = False) -> Path:
    keys = sorted(scores, reverse=backwards)
    Run.write(path, ordered([q for q, _ in keys], [p for _, p in keys], [scores[key] for key in keys]))
    return path


def read(path: Path) -> dict[str, dict[str, float]]:
    return {name: dict(zip(found, scores.tolist(), strict=True)) for name, found, scores in by_query(path)}


def slow(runs: list[dict[str, dict[str, float]]], weights: list[float], kind: str) -> dict[str, dict[str, float]]:
    total: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for query in {query for run in runs for query in run}:
        for passage in {passage for run in runs for passage in run.get(query, {})}:
            for run, weight in zip(runs, weights, strict=True):
                ranking = run.get(query)
                if ranking:
                    low, high = min(ranking.values()), max(ranking.values())
                    order = sorted(ranking, key=lambda name: (-ranking[name], name))
                    if kind == "reciprocal":
                        worth = 1 / (60 + order.index(passage) + 1) if passage in ranking else 0
                    elif kind == "raw":
                        worth = ranking.get(passage, low)
                    elif high > low:
                        worth = (ranking.get(passage, low) - low) / (high - low)
                    else:
                        worth = float(passage in ranking)
                    total[query][passage] += weight * worth
    return total


@settings(max_examples=60, deadline=None)
@given(st.lists(RUN, min_size=2, max_size=3), st.sampled_from(["reciprocal", "min-max", "raw"]), st.data())
def test_fusion_is_the_weighted_sum(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[dict[tuple[str, str], float]],
    kind: str,
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("fuse")
    weights = [data.draw(st.sampled_from([0.5, 1.0, 2.0])) for _ in runs]
    # the runs need not have the queries in one order
    paths = [written(folder / str(i), run, backwards=i == 1) for i, run in enumerate(runs)]
    options = {"by": "reciprocal"} if kind == "reciprocal" else {"by": "interpolation", "scale": kind}
    fuse(paths, folder / "out", weights=weights, **options)  # type: ignore[arg-type]
    wanted = slow([read(path) for path in paths], weights, kind)
    found = read(folder / "out")
    assert {query: set(ranking) for query, ranking in found.items()} == {q: set(r) for q, r in wanted.items()}
    for query, ranking in found.items():
        for passage, score in ranking.items():
            assert score == pytest.approx(wanted[query][passage], abs=1e-6)


def test_depth_and_refusals(tmp_path: Path) -> None:
    paths = [written(tmp_path / name, {("q", p): float(i) for i, p in enumerate("abcd")}) for name in "xy"]
    fuse(paths, tmp_path / "out", depth=2)
    assert list(read(tmp_path / "out")["q"]) == ["d", "c"]
    for given_runs, weights in ((paths[:1], None), (paths, [1.0])):
        with pytest.raises(Refusal, match=r"two runs at least, and a weight for each$"):
            fuse(given_runs, tmp_path / "none", weights=weights)
    assert not (tmp_path / "none").exists()


def documents(path: Path, rows: list[tuple[str, str, int]]) -> Path:
    columns = dict(zip(("passage_id", "document_id", "position"), map(list, zip(*rows, strict=True)), strict=True))
    Passages.write(path, {**columns, "title": [""] * len(rows), "text": ["x"] * len(rows)})
    return path


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_maxp_is_the_maximum_and_first_the_first(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder, random = tmp_path_factory.mktemp("maxp"), np.random.default_rng(seed)
    rows = [(f"d{d}#{i}", f"d{d}", i) for d in range(6) for i in range(int(random.integers(1, 5)))]
    passages = documents(folder / "passages", rows)
    of = {name: (document, position) for name, document, position in rows}
    pairs = [(q, name) for q in "qr" for name, _, _ in rows if random.random() < 0.6]
    scores = {pair: float(random.integers(0, 5)) for pair in pairs} or {("q", "d0#0"): 1.0}
    run = written(folder / "run", scores)
    for by in ("max", "first"):
        wanted: dict[str, dict[str, float]] = defaultdict(dict)
        for (query, name), score in scores.items():
            document, position = of[name]
            if by == "max" or position == 0:
                wanted[query][document] = max(score, wanted[query].get(document, -1.0))
        maxp(run, passages, folder / by, by=by)  # type: ignore[arg-type]
        assert read(folder / by) == wanted


def test_maxp_refuses_strangers(tmp_path: Path) -> None:
    passages = documents(tmp_path / "passages", [("a", "d", 0)])
    run = written(tmp_path / "run", {("q", "a"): 1.0, ("q", "b"): 0.0})
    with pytest.raises(Refusal, match=r"passages: passage b of the run is not there$"):
        maxp(run, passages, tmp_path / "out")
