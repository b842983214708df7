"""The whole plot on a tiny slice: `dvc repro` in a clone, from raw text to the table."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from stages.artifacts.documents import read_json
from tests.conftest import words

ROOT = Path(__file__).parents[1]
CHAIN = ["bm25", "backbone", "encoder", "retriever1", "retriever2", "reranker", "retriever"]


def write_package(folder: Path) -> None:
    """An installed package of 40 documented functions, to read as the default reads numpy."""
    import numpy as np

    rng = np.random.default_rng(3)
    (folder / "tinydocs").mkdir(parents=True)
    for module in range(8):
        functions = []
        for name in range(8):
            sentence, text = " ".join(words(rng, 6)).capitalize(), " ".join(words(rng, 40))
            functions.append(
                f'def f{module}_{name}():\n    """{sentence}.\n\n    {text} {sentence.split()[2]}.\n    """\n'
            )
        (folder / "tinydocs" / f"m{module}.py").write_text("\n\n".join(functions))
    (folder / "tinydocs" / "__init__.py").touch()


def tiny(params: dict) -> dict:  # type: ignore[type-arg]
    """The default's parameters, every number small, on a model made for the occasion."""
    params["recipe"] = "master"
    params["corpus"] = {"source": "docstrings:tinydocs", "title": False}
    params["backbone"] = {"name": "scratch", "scratch": {"layers": 1, "width": 32, "heads": 2, "vocabulary": 200}}
    for name in ("doc2query", "continuations"):
        params[name] |= {"steps": 3}
    params["pretrain"] |= {"steps": 4, "batch": 8, "longest": 48, "new-parts": 1, "probe": 2, "probe-passages": 20}
    for name in ("retriever1", "retriever2", "retriever"):
        params[name] |= {"batch": 8, "epochs": 1}
    params["reranker"] |= {"batch": 4, "group": 3, "epochs": 1}
    return params


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working copy with the small parameters, in its own Git repository."""
    folder = tmp_path_factory.mktemp("clone") / "isthmus"
    folder.mkdir()
    for name in ("stages", ".dvc", ".dvcignore", "dvc.yaml", "params.yaml"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "cache", "tmp"))
        else:
            shutil.copy(source, folder / name)
    params = tiny(yaml.safe_load((folder / "params.yaml").read_text()))
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    write_package(folder.parent / "packages")
    who = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    for words_ in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "--message", "a clone"]):
        subprocess.run(["git", *words_], cwd=folder, check=True)
    return folder


def dvc(folder: Path, *words: str) -> str:
    """Run DVC there; returns what it said."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    places = os.pathsep.join([str(folder), str(folder.parent / "packages")])
    home = os.environ | {"PATH": path, "PYTHONPATH": places, "ISTHMUS_SCRATCH": str(folder.parent / "scratch")}
    done = subprocess.run([sys.executable, "-m", "dvc", *words], cwd=folder, env=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def run(clone: Path) -> Path:
    """The clone after `dvc repro`."""
    dvc(clone, "repro")
    return clone


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
    file.write_text(file.read_text() + "\n# touched\n")
    said = dvc(run, "repro", "--dry")
    assert "Running stage 'retriever1'" in said
    assert "Running stage 'pretrain'" not in said
