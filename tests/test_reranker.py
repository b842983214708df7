"""The reranker chapter, and rescoring with what it makes."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from transformers import ElectraConfig, ElectraModel

from stages.artifacts.checkpoints import TextEncoder, load_vocabulary, save_encoder
from stages.artifacts.documents import read_json
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import content_hash
from stages.artifacts.tables import Qrels, Queries, Run, Tokens
from stages.backbone import backbone
from stages.ranking import rescoring
from stages.ranking.runs import by_query, ordered
from stages.reranker import reranker
from stages.rescoring import rescore
from stages.training.precision import resolved

LENGTHS = {"longest": 100, "longest_query": 16}


@pytest.fixture(scope="module")
def run(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every query's 20 passages by a score that knows nothing; about a third of the positives are among them."""
    queries, names = (
        Queries.read(world.queries)["query_id"].to_pylist(),
        Tokens.read(world.tokens)["passage_id"].to_pylist(),
    )
    rows = [(q, p) for q in queries for p in names]
    path = tmp_path_factory.mktemp("runs") / "run"
    scores = np.random.default_rng(2).normal(size=len(rows))
    Run.write(path, ordered([q for q, _ in rows], [p for _, p in rows], scores, depth=20))
    return path


@pytest.fixture(scope="module")
def model(world: Any, run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder that has seen the training pairs a few times."""
    folder = tmp_path_factory.mktemp("reranker")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISTHMUS_SCRATCH", str(folder / "scratch"))
        train(world, folder / "model", run)
    return folder / "model"


def train(world: Any, out: Path, run: Path, **options: Any) -> dict[str, Any]:
    settings = {"batch": 6, "group": 4, "epochs": 2, "learning_rate": 1e-3, "budget": 2_000, **LENGTHS, **options}
    tables = world.tokens, world.queries, world.qrels, world.passages
    reranker(world.backbone, *tables, out, negatives=[run], metrics=out.with_suffix(".json"), **settings)
    return read_json(out.with_suffix(".json"))  # type: ignore[no-any-return]


def score(world: Any, model: Path, run: Path, out: Path, **options: Any) -> dict[str, Any]:
    tables = world.tokens, world.queries, world.qrels
    rescore(model, run, *tables, out, metrics=out.with_suffix(".json"), **{**LENGTHS, "depth": 8, **options})
    return read_json(out.with_suffix(".json"))  # type: ignore[no-any-return]


def positives(world: Any) -> dict[str, set[str]]:
    good: dict[str, set[str]] = {}
    for row in Qrels.read(world.qrels).to_pylist():
        good.setdefault(row["query_id"], set()).add(row["passage_id"])
    return good


def of_split(world: Any, *splits: str) -> list[str]:
    return [row["query_id"] for row in Queries.read(world.queries).to_pylist() if row["split"] in splits]


def test_learns_and_tells_and_is_the_same_again(world: Any, model: Path, run: Path, tmp_path: Path) -> None:
    told = read_json(model.with_suffix(".json"))
    assert told["queries"]["queries"] == 36
    assert told["groups"]["passages"] == 4
    assert told["precision"] == resolved("auto")
    assert told["last"]["step"] == 12
    train(world, tmp_path / "again", run)
    assert content_hash(tmp_path / "again") == content_hash(model)


def test_a_factor_and_r_drop_train_or_are_refused(world: Any, run: Path, tmp_path: Path) -> None:
    told = train(world, tmp_path / "model", run, steps=1, factor=2, r_drop=True, dropout=0.1)
    assert told["last"]["consistency"] > 0
    for message, options in {
        "--r-drop needs --dropout above 0": {"r_drop": True},
        "--factor 3: leaves no negative of --group 4": {"factor": 3},
    }.items():
        with pytest.raises(Refusal, match=message):
            train(world, tmp_path / "none", run, steps=1, **options)


def test_another_kind_of_model_is_a_start_if_it_has_the_same_pieces(world: Any, run: Path, tmp_path: Path) -> None:
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    vocabulary = load_vocabulary(world.backbone)
    electra = ElectraModel(ElectraConfig(vocab_size=vocabulary.size, embedding_size=32, **shape))
    save_encoder(TextEncoder(electra, "cls", False), world.backbone, tmp_path / "hub")
    backbone(str(tmp_path / "hub"), tmp_path / "electra")
    out, tables = tmp_path / "model", (world.tokens, world.queries, world.qrels, world.passages)
    settings: dict[str, Any] = {"batch": 6, "group": 4, "steps": 1, **LENGTHS}
    reranker(tmp_path / "electra", *tables, out, negatives=[run], metrics=tmp_path / "m", **settings)
    score(world, out, run, tmp_path / "scored", splits=["dev"])
    path = tmp_path / "electra" / "tokenizer.json"
    document = json.loads(path.read_text())
    pieces = document["model"]["vocab"]
    inner = {piece: number for piece, number in pieces.items() if number >= 5}
    pieces.update(zip(inner, reversed(inner.values()), strict=True))
    path.write_text(json.dumps(document))
    with pytest.raises(Refusal, match=r"its pieces are not those of .*electra/tokenizer.json: \d+ of \d+ words agree$"):
        reranker(tmp_path / "electra", *tables, out, negatives=[run], metrics=tmp_path / "m", **settings)


def test_learns_a_few_queries_by_heart(world: Any, run: Path, tmp_path: Path) -> None:
    told = train(world, tmp_path / "model", run, fraction=0.1, batch=4, steps=60, learning_rate=3e-3)
    assert told["queries"]["queries"] == 4
    assert told["last"]["loss"] < 0.5
    assert told["last"]["first in its group"] > 0.8


def test_a_teacher_scores_the_top_and_every_positive(world: Any, model: Path, run: Path, tmp_path: Path) -> None:
    score(world, model, run, tmp_path / "teacher", splits=["train"], positives=9)
    good = positives(world)
    top = {query: set(ranking[:8]) for query, ranking, _ in by_query(run)}
    found = {query: set(ranking) for query, ranking, _ in by_query(tmp_path / "teacher")}
    assert found == {query: top[query] | good[query] for query in of_split(world, "train")}


def test_of_many_positives_a_few_are_scored_always_the_same(world: Any, model: Path, run: Path, tmp_path: Path) -> None:
    names = Tokens.read(world.tokens)["passage_id"].to_pylist()
    good = {query: set(names[i : i + 5]) for i, query in enumerate(of_split(world, "train"))}
    rows = [{"query_id": query, "passage_id": name, "relevance": 1} for query in good for name in sorted(good[query])]
    Qrels.write(tmp_path / "many", pa.Table.from_pylist(rows, Qrels.schema))
    tables, drawn = (run, world.tokens, world.queries, tmp_path / "many"), []
    for name in ("two", "again"):
        rescore(model, *tables, tmp_path / name, splits=["train"], positives=2, depth=8, **LENGTHS)
        drawn.append({query: set(ranking) for query, ranking, _ in by_query(tmp_path / name)})
    assert drawn[0] == drawn[1]
    top = {query: set(ranking[:8]) for query, ranking, _ in by_query(run)}
    for query, found in drawn[0].items():
        assert found >= top[query]
        assert found - top[query] <= good[query]
        assert len(found & good[query]) >= 2 >= len(found - top[query])


def test_queries_that_the_run_lacks_still_have_their_positives_scored(
    world: Any, model: Path, run: Path, tmp_path: Path
) -> None:
    absent = of_split(world, "train")[0]
    rows = Run.read(run)
    Run.write(tmp_path / "less", rows.filter([name != absent for name in rows["query_id"].to_pylist()]))
    score(world, model, tmp_path / "less", tmp_path / "teacher", splits=["train"], positives=9)
    found = {query: set(ranking) for query, ranking, _ in by_query(tmp_path / "teacher")}
    assert found[absent] == positives(world)[absent]
    score(world, model, tmp_path / "less", tmp_path / "ranking", splits=["train"])
    assert absent not in {query for query, _, _ in by_query(tmp_path / "ranking")}


def test_a_reranking_changes_only_the_top(world: Any, model: Path, run: Path, tmp_path: Path) -> None:
    told = score(world, model, run, tmp_path / "reranked", splits=["dev", "test"], keep_rest=True)
    before = {query: ranking for query, ranking, _ in by_query(run)}
    good, dev = positives(world), set(of_split(world, "dev"))
    values = {"run RR@10": [], "reranked RR@10": []}
    for query, ranking, scores in by_query(tmp_path / "reranked"):
        assert sorted(ranking[:8]) == sorted(before[query][:8])
        assert ranking[8:] == before[query][8:]
        assert (np.diff(scores[7:]) < 0).all()
        if query in dev:
            for name, order in (("run RR@10", before[query]), ("reranked RR@10", ranking)):
                ranks = [rank for rank, passage in enumerate(order[:10], 1) if passage in good[query]]
                values[name].append(1 / ranks[0] if ranks else 0.0)
    assert told["dev"] == {"queries": len(dev)} | {name: pytest.approx(np.mean(of)) for name, of in values.items()}
    assert told["pairs"] == 8 * len(of_split(world, "dev", "test"))
    score(world, model, run, tmp_path / "short", splits=["dev"])
    assert all(len(ranking) == 8 for _, ranking, _ in by_query(tmp_path / "short"))


def test_a_teacher_no_better_than_the_run_is_warned_of(
    world: Any, model: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = positives(world)
    rows = [(q, p, 9.0) for q in of_split(world, "dev") for p in sorted(good[q])]
    rows += [
        (q, p, s)
        for q, ranking, scores in by_query(run)
        for p, s in zip(ranking, scores, strict=True)
        if q in of_split(world, "dev") and p not in good[q]
    ]
    Run.write(tmp_path / "perfect", ordered(*zip(*rows, strict=True)))
    told = score(world, model, tmp_path / "perfect", tmp_path / "reranked", splits=["dev"])
    assert told["dev"]["run RR@10"] == 1
    assert told["dev"]["reranked RR@10"] < 1
    assert "WARNING: the reranker does not rank dev better" in capsys.readouterr().err
    rows = [(q, p, -s) for q, p, s in rows]
    Run.write(tmp_path / "worst", ordered(*zip(*rows, strict=True)))
    told = score(world, model, tmp_path / "worst", tmp_path / "better", splits=["dev"], depth=30)
    assert told["dev"]["reranked RR@10"] > told["dev"]["run RR@10"]
    assert "WARNING" not in capsys.readouterr().err


KILLED = """
import os, signal, sys
from pathlib import Path
from stages.backbone import backbone
from stages.ranking import rescoring, shards
rescoring.QUERIES = 10
save = shards.Shards.save
def save_then_die(self, number, *rest):
    save(self, number, *rest)
    if number == 1 and sys.argv[-1] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
shards.Shards.save = save_then_die
from stages.rescoring import rescore
rescore(*map(Path, sys.argv[1:7]), longest=100, longest_query=16, depth=8)
"""


def test_killed_and_run_again_is_as_if_never_killed(
    world: Any, model: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(path) for path in (model, run, world.tokens, world.queries, world.qrels, tmp_path / "out")]
    command = [sys.executable, "-W", "ignore", "-c", KILLED, *paths]
    killed = subprocess.run([*command, "die"], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    (state,) = (tmp_path / "scratch").glob("rescore-*")
    assert len(list(state.glob("*.npy"))) == 2
    again = subprocess.run([*command, "live"], capture_output=True, check=True)
    assert b"resuming" in again.stderr
    monkeypatch.setattr(rescoring, "QUERIES", 10)  # the same batches: others round differently
    score(world, model, run, tmp_path / "whole")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert not state.exists()


def test_bad_input_is_refused_before_any_work(world: Any, model: Path, tmp_path: Path) -> None:
    query = of_split(world, "dev")[0]
    Run.write(tmp_path / "strange", {"query_id": [query], "passage_id": ["pX"], "score": [1.0], "rank": [1]})
    with pytest.raises(Refusal, match=rf"strange: query {query}: passage_id pX is not among the tokens'$"):
        score(world, model, tmp_path / "strange", tmp_path / "out")
    Run.write(tmp_path / "late", {"query_id": [query], "passage_id": ["p0-0"], "score": [1.0], "rank": [2]})
    with pytest.raises(Refusal, match=r"late: row 0: rank is 2, 1 was expected$"):
        score(world, model, tmp_path / "late", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_runs_own_score_counts_as_much_as_it_is_told(world: Any, model: Path, run: Path, tmp_path: Path) -> None:
    score(world, model, run, tmp_path / "without", splits=["dev"])
    score(world, model, run, tmp_path / "beside", splits=["dev"], prior=0.5)
    score(world, model, run, tmp_path / "above", splits=["dev"], prior=1e4)
    own = {q: dict(zip(ranking, scores, strict=True)) for q, ranking, scores in by_query(run)}
    without = {q: dict(zip(ranking, scores, strict=True)) for q, ranking, scores in by_query(tmp_path / "without")}
    for query, ranking, scores in by_query(tmp_path / "beside"):
        expected = [without[query][passage] + 0.5 * own[query][passage] for passage in ranking]
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    order = {query: ranking for query, ranking, _ in by_query(run)}
    assert {query: ranking for query, ranking, _ in by_query(tmp_path / "above")} == {
        query: order[query][:8] for query in of_split(world, "dev")
    }


def test_an_added_positive_that_the_run_lacks_has_its_lowest_score(
    world: Any, model: Path, run: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"splits": ["train"], "positives": 9}
    score(world, model, run, tmp_path / "without", **options)
    score(world, model, run, tmp_path / "with", prior=1.0, **options)
    own = {q: dict(zip(ranking, scores, strict=True)) for q, ranking, scores in by_query(run)}
    without = {q: dict(zip(ranking, scores, strict=True)) for q, ranking, scores in by_query(tmp_path / "without")}
    lacking = 0
    for query, ranking, scores in by_query(tmp_path / "with"):
        for passage, found in zip(ranking, scores, strict=True):
            lacking += passage not in own[query]
            known = own[query].get(passage, min(own[query].values()))
            assert found == pytest.approx(without[query][passage] + known, rel=1e-5, abs=1e-5)
    assert lacking
