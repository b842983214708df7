"""The chapters significance and table: paired tests between rows, and the table that people read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.artifacts.documents import write_json
from stages.artifacts.refusal import Refusal
from stages.comparison import significance, table
from stages.measuring.significance import holm, paired_p
from stages.measuring.standing import CHAIN
from tests.worth import MEASURES, rows, write

__all__ = ["rows"]  # a fixture


def test_every_row_against_bm25_and_the_row_before(tmp_path: Path, rows: dict[str, np.ndarray]) -> None:
    paths = [write(tmp_path / f"{name}.parquet", worth) for name, worth in rows.items()]
    significance(paths, tmp_path / "significance.json", draws=2_000, seed=3)
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
    significance(paths, tmp_path / "significance.json", draws=2_000, seed=3)
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
            significance(paths, tmp_path / "out.json", draws=10)
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


def test_the_summary_has_one_measure_of_every_row_and_the_others_of_the_last(
    tmp_path: Path, rows: dict[str, np.ndarray]
) -> None:
    paths = [write(tmp_path / f"{name}.parquet", worth) for name, worth in rows.items()]
    significance(paths, tmp_path / "significance.json", tmp_path / "summary.json", draws=10)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["RR@10"] == {name: pytest.approx(worth[:, 0].mean()) for name, worth in rows.items()}
    assert summary["nDCG@10"] == {"retriever": pytest.approx(rows["retriever"][:, 1].mean())}
    assert set(summary) == {"RR@10", "nDCG@10"}
