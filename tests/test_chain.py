"""The whole plot on a tiny slice: `dvc repro` in a clone, from raw text to the table."""

from pathlib import Path

from stages.artifacts.documents import read_json
from tests.clones import dvc

CHAIN = ["bm25", "backbone", "encoder", "retriever1", "retriever2", "reranker", "retriever"]


def test_every_row_is_measured(run: Path) -> None:
    rows = {path.stem: read_json(path) for path in (run / "metrics" / "evaluation" / "corpus").glob("*.json")}
    assert set(rows) == set(CHAIN)
    for row in rows.values():
        assert row["queries"] > 5
        for measure in ("RR@10", "nDCG@10", "R@50", "R@100", "R@1000"):
            assert 0 <= row[measure]["low"] <= row[measure]["mean"] <= row[measure]["high"] <= 1
    assert set(read_json(run / "metrics" / "significance.json")) >= set(CHAIN) - {"bm25"}
    page = (run / "metrics" / "report.html").read_text("utf-8")
    assert all(part in page for part in ("retriever beside bm25", "retriever beside backbone", 'id="negatives"'))


def test_nothing_is_left_in_scratch_but_embeddings(run: Path) -> None:
    left = {path.name.rsplit("-", 1)[0] for path in (run.parent / "scratch").iterdir()}
    assert not left & {"pretrain", "retriever", "reranker", "doc2query", "continuations"}


def test_a_second_run_does_nothing(run: Path) -> None:
    assert "Running stage" not in dvc(run, "repro")


def test_a_recipe_runs_nothing_before_pre_training(run: Path) -> None:
    said = dvc(run, "repro", "--dry")
    assert "Running stage" not in said
    params = run / "params.yaml"
    before = params.read_text()
    params.write_text(before.replace("recipe: master", "recipe: mlm"))
    said = dvc(run, "repro", "--dry")
    params.write_text(before)
    assert "Running stage 'pretrain'" in said
    for stage in ("corpus", "backbone", "tokens", "keywords", "salience", "doc2query", "continuations", "bm25"):
        assert f"Running stage '{stage}'" not in said


def test_touching_ranking_does_not_pre_train_again(run: Path) -> None:
    file = run / "stages" / "ranking" / "losses.py"
    before = file.read_text()
    file.write_text(before + "\n# touched\n")
    said = dvc(run, "repro", "--dry")
    file.write_text(before)
    assert "Running stage 'retriever1'" in said
    assert "Running stage 'pretrain'" not in said
