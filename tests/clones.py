"""A clone of the project with small parameters and a made corpus, in which the whole plot can be run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]


def write_package(folder: Path) -> None:
    """An installed package of 40 documented functions, to read as the default reads numpy."""
    import numpy as np

    from tests.conftest import words

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


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working copy with the small parameters, in its own Git repository."""
    folder = tmp_path_factory.mktemp("clone") / "isthmus"
    folder.mkdir()
    for name in ("stages", ".dvc", ".dvcignore", ".gitignore", "Makefile", "pipelines", "dvc.yaml", "params.yaml"):
        source = ROOT / name
        if not source.exists():
            continue
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


def home(folder: Path) -> dict[str, str]:
    """The environment in which a clone finds Python, its own code and the installed package."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    places = os.pathsep.join([str(folder), str(folder.parent / "packages")])
    return os.environ | {"PATH": path, "PYTHONPATH": places, "ISTHMUS_SCRATCH": str(folder.parent / "scratch")}


def dvc(folder: Path, *words: str) -> str:
    """Run DVC there; returns what it said."""
    command = [sys.executable, "-m", "dvc", *words]
    done = subprocess.run(command, cwd=folder, env=home(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="session")
def run(clone: Path) -> Path:
    """The clone after `dvc repro`."""
    dvc(clone, "repro")
    return clone
