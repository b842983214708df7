"""The chapters compare and table: paired tests between rows, and the table that people read."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.artifacts.documents import write_json
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Queries, Values
from stages.comparison import compare, table
from stages.measuring.significance import holm, paired_p
from stages.measuring.standing import CHAIN

MEASURES = ("RR@10", "nDCG@10")


def write(path: Path, worth: np.ndarray, queries: str = "q", measures: tuple[str, ...] = MEASURES) -> Path:
    """A Values table of [queries, measures]."""
    names = [f"{queries}{i}" for i in range(len(worth))]
    columns = {"query_id": names * len(measures), "measure": np.repeat(measures, len(worth)), "value": worth.T.ravel()}
    Values.write(path, columns)
    return path


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    base = random.uniform(size=(120, 2))
    worse, better = np.clip(base - 0.2, 0, 1), np.clip(base + random.normal(0.1, 0.2, size=base.shape), 0, 1)
    return {"bm25": base, "backbone": worse, "retriever1": better, "retriever": better}


def test_every_row_against_bm25_and_the_row_before(tmp_path: Path, rows: dict[str, np.ndarray]) -> None:
    paths = [write(tmp_path / f"{name}.parquet", worth) for name, worth in rows.items()]
    compare([str(path) for path in paths], tmp_path / "significance.json", draws=2_000, seed=3)
    report = json.loads((tmp_path / "significance.json").read_text())
    assert {name: list(found["RR@10"]) for name, found in report.items()} == {
        "backbone": ["bm25"],
        "retriever1": ["backbone", "bm25"],
        "retriever": ["bm25", "retriever1"],
    }
    pairs = [("backbone", "bm25"), ("retriever1", "bm25"), ("retriever1", "backbone")]
    pairs += [("retriever", "bm25"), ("retriever", "retriever1")]
    for column, measure in enumerate(MEASURES):
        differences = np.stack([rows[row][:, column] - rows[other][:, column] for row, other in pairs], axis=1)
        p = paired_p(differences, 2_000, 3)
        for place, (row, other) in enumerate(pairs):
            found = report[row][measure][other]
            assert found["difference"] == pytest.approx(differences[:, place].mean())
            assert (found["p"], found["holm"]) == (p[place], holm(p)[place])
    assert report["retriever"]["RR@10"]["retriever1"] == {"difference": 0, "p": 1, "holm": 1}
    first = (tmp_path / "significance.json").read_bytes()
    compare([str(path) for path in paths], tmp_path / "significance.json", draws=2_000, seed=3)
    assert (tmp_path / "significance.json").read_bytes() == first


def test_refusals(tmp_path: Path, rows: dict[str, np.ndarray]) -> None:
    bm25, other = (write(tmp_path / f"{name}.parquet", rows[name]) for name in ("bm25", "backbone"))
    fewer = write(tmp_path / "fewer.parquet", rows["bm25"][:9])
    renamed = write(tmp_path / "renamed.parquet", rows["bm25"], "x")
    lacking = write(tmp_path / "lacking.parquet", rows["bm25"][:, :1], measures=("RR@10",))
    for paths, line in (
        ([other, fewer], "fewer.parquet: column query_id: not the queries of"),
        ([bm25, renamed], "renamed.parquet: column query_id: not the queries of"),
        ([bm25, lacking], "lacking.parquet: column measure: no value of nDCG@10"),
        ([bm25, other, bm25], "bm25.parquet: there is another row bm25"),
        ([other], "values: a row bm25 and another to hold against it are needed"),
        ([bm25], "values: a row bm25 and another to hold against it are needed"),
    ):
        with pytest.raises(Refusal, match=line):
            compare([str(path) for path in paths], tmp_path / "out.json", draws=10)
    assert not (tmp_path / "out.json").exists()


def evaluation(mean: float, depth: int = 1000) -> dict[str, Any]:
    interval = {"mean": mean, "low": mean - 0.02, "high": mean + 0.02}
    measures = ("RR@10", "nDCG@10", "R@50", "R@100", "R@1000")
    return {"queries": 400, "split": "test", "depth": depth} | dict.fromkeys(measures, interval)


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, name in enumerate([*CHAIN, "other"]):
        depth = 200 if name == "reranker" else 1000
        write_json(tmp_path / "corpus" / f"{name}.json", evaluation(0.4 + place / 100, depth))
    sure, unsure = {"difference": 0.1, "p": 0.001, "holm": 0.01}, {"difference": 0.1, "p": 0.02, "holm": 0.06}
    loss = sure | {"difference": -0.1}
    tests = {
        "retriever1": {"RR@10": {"bm25": sure, "encoder": unsure}, "R@50": {"bm25": unsure, "encoder": sure}},
        "retriever": {"nDCG@10": {"bm25": loss, "reranker": loss}, "RR@10": {"retriever2": sure}},
    }
    write_json(tmp_path / "significance.json", tests)
    table(tmp_path / "corpus", tmp_path / "significance.json")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["RR@10", "[95", "%]", "nDCG@10", "R@50", "R@100", "R@1000"]
    assert [line.split()[0] for line in lines[1:9]] == [*CHAIN, "other"]
    assert lines[4] == "retriever1  0.430 [0.410, 0.450] +   0.430     0.430  ^  0.430     0.430"
    assert lines[7] == "retriever   0.460 [0.440, 0.480]     0.460 -v  0.460     0.460     0.460"
    assert lines[10].startswith("400 queries of split test;")
    assert lines[-1] == "Passages ranked a query, where fewer than 1000: reranker 200."
    assert max(map(len, lines)) <= 90


def test_table_refusals(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"corpus: no evaluations$"):
        table(tmp_path / "corpus", tmp_path / "significance.json")
    write_json(tmp_path / "corpus" / "bm25.json", {"loss": 1})
    with pytest.raises(Refusal, match=r"bm25\.json: not an evaluation"):
        table(tmp_path / "corpus", tmp_path / "significance.json")
    write_json(tmp_path / "corpus" / "bm25.json", evaluation(0.5))
    with pytest.raises(Refusal, match=r"significance\.json: No such file"):
        table(tmp_path / "corpus", tmp_path / "significance.json")


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
    compare(["first", "second"], repository / "c.json", draws=1_000, markdown=repository / "c.md")
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
    compare(["second", "first"], repository / "d.json", draws=1_000)
    reverse = json.loads((repository / "d.json").read_text())["measures"]["RR@10"]["corpus/retriever"]
    assert reverse["difference"] == pytest.approx(-change.mean())
    for names, line in (
        (["first", "third"], r"^third: "),
        (["first", "workspace"], r"^workspace: no per-query values in data/values$"),
    ):
        with pytest.raises(Refusal, match=line):
            compare(names, repository / "e.json")
    shutil.rmtree(repository / ".dvc" / "cache")
    with pytest.raises(Refusal, match=r"^first: "):
        compare(["first", "second"], repository / "e.json")
    assert not (repository / "e.json").exists()
