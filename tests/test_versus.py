"""The chapter compare: two revisions, row by row."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Queries
from stages.versus import compare
from tests.worth import rows, write

__all__ = ["rows"]  # a fixture


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: dict[str, np.ndarray]) -> Path:
    """Two commits of tables that DVC tracks; the queries are in other orders."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    run("git", "init", "-q"), run(sys.executable, "-m", "dvc", "init", "-q")
    names = {"query_id": [f"q{i}" for i in range(120)], "text": [f"what {i}" for i in range(120)]}
    for tag, found in (("first", rows), ("second", {**rows, "retriever": rows["bm25"], "new": rows["bm25"]})):
        for name, worth in found.items():
            write(tmp_path / "data" / "values" / "corpus" / f"{name}.parquet", worth)
        Queries.write(tmp_path / "data" / "queries.parquet", {**names, "split": ["test"] * 120})
        run(sys.executable, "-m", "dvc", "add", "-q", "data")
        run("git", "add", "-A"), run("git", "-c", "user.name=a", "-c", "user.email=b@c", "commit", "-qm", tag)
        run("git", "tag", tag)
    return tmp_path


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def test_two_revisions(repository: Path, rows: dict[str, np.ndarray]) -> None:
    compare("first", "second", repository / "c.json", draws=1_000, markdown=repository / "c.md")
    report = json.loads((repository / "c.json").read_text())
    found = report["measures"]["RR@10"]
    assert set(found) == {f"corpus/{name}" for name in rows}
    changed = found["corpus/retriever"]
    change = rows["bm25"][:, 0] - rows["retriever"][:, 0]
    assert changed["difference"] == pytest.approx(change.mean())
    assert changed["low"] < changed["difference"] < changed["high"] < 0
    assert (changed["p"], changed["holm"]) == (pytest.approx(1 / 1001), pytest.approx(4 / 1001))
    assert (found["corpus/bm25"]["difference"], found["corpus/bm25"]["p"]) == (0, 1)
    won = report["extremes"]["corpus/retriever"]["won"]
    assert [row["query"] for row in won] == [f"q{i}" for i in np.argsort(-change)[:5]]
    assert won[0]["text"] == f"what {np.argmax(change)}"
    assert report["extremes"]["corpus/bm25"] == {"won": [], "lost": []}
    text = (repository / "c.md").read_text()
    assert text.startswith(
        "# second against first\n\n## RR@10\n\n| | first | second | difference [95 %] | p | Holm |\n"
    )
    assert f"`q{np.argmin(change)}` what {np.argmin(change)}" in text
    shutil.rmtree(repository / "data")  # what is compared is what was tracked, not what lies about
    compare("second", "first", repository / "d.json", draws=1_000)
    reverse = json.loads((repository / "d.json").read_text())["measures"]["RR@10"]["corpus/retriever"]
    assert reverse["difference"] == pytest.approx(-change.mean())
    for names, line in (
        (["first", "third"], r"^third: "),
        (["first", "workspace"], r"^workspace: no per-query values in data/values$"),
    ):
        with pytest.raises(Refusal, match=line):
            compare(*names, repository / "e.json")
    shutil.rmtree(repository / ".dvc" / "cache")
    with pytest.raises(Refusal, match=r"^first: "):
        compare("first", "second", repository / "e.json")
    assert not (repository / "e.json").exists()


MAKING = """
from pathlib import Path

import numpy as np
import yaml

from tests.worth import write

worth = yaml.safe_load(Path("params.yaml").read_text())["worth"]
for name in ("bm25", "retriever"):
    found = np.random.default_rng(0).uniform(size=(40, 2))
    write(Path("data/values/corpus") / f"{name}.parquet", found + (worth if name == "retriever" else 0))
"""


def test_two_experiments_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    for variable, who in (("NAME", "a"), ("EMAIL", "b@c")):
        monkeypatch.setenv(f"GIT_AUTHOR_{variable}", who)
        monkeypatch.setenv(f"GIT_COMMITTER_{variable}", who)
    dvc = sys.executable, "-m", "dvc"
    run("git", "init", "-q"), run(*dvc, "init", "-q")
    (tmp_path / "making.py").write_text(MAKING)
    (tmp_path / "params.yaml").write_text("worth: 0.0\n")
    outs = "[data/values/corpus/bm25.parquet, data/values/corpus/retriever.parquet]"
    stage = f"{{cmd: {sys.executable} making.py, deps: [making.py], params: [worth], outs: {outs}}}"
    (tmp_path / "dvc.yaml").write_text(f"stages:\n  evaluate: {stage}\n")
    run("git", "add", "-A"), run("git", "commit", "-qm", "before any run")
    for name, worth in (("lower", 0.125), ("higher", 0.5)):
        run(*dvc, "exp", "run", "-q", "-n", name, "-S", f"worth={worth}")
    compare("lower", "higher", tmp_path / "c.json", draws=1_000, markdown=tmp_path / "c.md")
    found = json.loads((tmp_path / "c.json").read_text())["measures"]["RR@10"]
    assert found["corpus/retriever"]["difference"] == pytest.approx(0.375)
    assert found["corpus/bm25"]["difference"] == 0
    assert (tmp_path / "c.md").read_text().startswith("# higher against lower\n")
    compare("lower", "workspace", tmp_path / "d.json", draws=1_000, markdown=tmp_path / "d.md")
    last = json.loads((tmp_path / "d.json").read_text())["measures"]["RR@10"]["corpus/retriever"]
    assert last["difference"] == pytest.approx(0.375)  # the workspace is as the last experiment left it
    with pytest.raises(Refusal, match=r"^HEAD: data/values is neither in the cache nor in a remote: "):
        compare("HEAD", "higher", tmp_path / "e.json")  # nothing has run there; the experiments are no commits of it
