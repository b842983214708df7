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
