"""The chapter evaluate: one run in, numbers with intervals, per-query values and a TREC file out."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ir_measures
import pytest

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Qrels, Queries, Run, Values
from stages.evaluation import evaluate
from stages.ranking.runs import ordered


class Files:
    """Inputs and outputs of one evaluation in a folder."""

    def __init__(self, folder: Path):
        self.inputs = [folder / f"{name}.parquet" for name in ("run", "queries", "qrels")]
        self.outputs = [folder / "metrics" / "mine.json", folder / "data" / "mine.parquet", folder / "mine.trec"]

    def write(self, run: Any, queries: dict[str, str], qrels: list[tuple[str, str, int]]) -> None:
        Run.write(self.inputs[0], run)
        columns = {"query_id": list(queries), "text": list(queries), "split": list(queries.values())}
        Queries.write(self.inputs[1], columns)
        judged = ([row[i] for row in qrels] for i in range(3))
        Qrels.write(self.inputs[2], dict(zip(Qrels.schema.names, judged, strict=True)))

    def evaluate(self, **options: Any) -> dict[str, Any]:
        evaluate(*self.inputs, *self.outputs, **options)
        report: dict[str, Any] = json.loads(self.outputs[0].read_text())
        return report


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path)
    run = ordered(["t1", "t1", "t2", "d1", "n1"], ["a", "b", "c", "a", "a"], [2, 1, 1, 1, 1])
    queries = {"t1": "test", "t2": "test", "t3": "test", "n1": "test", "d1": "dev"}
    files.write(run, queries, [("t1", "b", 1), ("t2", "c", 2), ("t3", "a", 1), ("n1", "a", 0), ("d1", "a", 1)])
    return files


def test_means_values_and_trec_file(files: Files) -> None:
    report = files.evaluate(measures=["RR@10", "nDCG@10", "P(rel=2)@1"])
    assert (report["queries"], report["split"], report["depth"]) == (3, "test", 2)
    assert report["RR@10"]["mean"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert report["P(rel=2)@1"]["mean"] == pytest.approx(1 / 3)
    assert report["RR@10"]["low"] <= report["RR@10"]["mean"] <= report["RR@10"]["high"]
    values = Values.read(files.outputs[1]).to_pylist()
    assert [(row["query_id"], row["value"]) for row in values if row["measure"] == "RR@10"] == [
        ("t1", 0.5),
        ("t2", 1.0),
        ("t3", 0.0),
    ]
    assert {row.query_id for row in ir_measures.read_trec_run(str(files.outputs[2]))} == {"t1", "t2"}
    assert files.outputs[2].read_text().startswith("t1 Q0 a 1 2 mine\nt1 Q0 b 2 1 mine\n")


def test_a_query_that_is_a_passage_does_not_find_itself(files: Files) -> None:
    run = ordered(["a", "a", "a", "b"], ["a", "b", "c", "b"], [3, 2, 1, 1])
    files.write(run, {"a": "test", "b": "test"}, [("a", "c", 1), ("b", "c", 1)])
    assert files.evaluate(measures=["RR@10"])["RR@10"]["mean"] == pytest.approx(1 / 6)
    report = files.evaluate(measures=["RR@10"], drop_identical=True)
    assert (report["RR@10"]["mean"], report["depth"]) == (pytest.approx(1 / 4), 2)
    assert files.outputs[2].read_text() == "a Q0 b 1 2 mine\na Q0 c 2 1 mine\n"


def test_recall_by_cutoff(files: Files, tmp_path: Path) -> None:
    report = files.evaluate(measures=["RR@10", "R@50"], recall=tmp_path / "recall.json")
    curve = json.loads((tmp_path / "recall.json").read_text())
    assert [point["cutoff"] for point in curve] == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    assert [point["recall"] for point in curve] == pytest.approx([1 / 3] + [2 / 3] * 9)  # t1's answer is second
    assert set(report) == {"queries", "split", "depth", "RR@10", "R@50"}
    assert {row["measure"] for row in Values.read(files.outputs[1]).to_pylist()} == {"RR@10", "R@50"}


def test_same_input_same_bytes(files: Files) -> None:
    files.evaluate(draws=500)
    first = [path.read_bytes() for path in files.outputs]
    files.evaluate(draws=500)
    assert [path.read_bytes() for path in files.outputs] == first


def test_dev_stands_in_for_a_missing_test_split(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.write(ordered(["d1"], ["a"], [1]), {"d1": "dev", "t1": "test"}, [("d1", "a", 1), ("t1", "a", 0)])
    assert files.evaluate()["split"] == "dev"
    assert "evaluate: no judged query of split test, so split dev\n" in capsys.readouterr().err
    assert files.evaluate(split="dev")["split"] == "dev"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"measures": ["RR@10", "Nonsense"]}, "measures: 'Nonsense' is not a measure: measure not found: Nonsense"),
        ({"split": "train"}, "qrels.parquet: no query of split train has a relevant passage"),
    ],
)
def test_refused_parameters(files: Files, options: dict[str, Any], line: str) -> None:
    files.write(ordered(["t1"], ["a"], [1]), {"t1": "test"}, [("t1", "a", 1)])
    _refused(files, line, options)


def test_refused_runs(files: Files) -> None:
    Run.write(files.inputs[0], ordered(["d1", "elsewhere"], ["a", "a"], [1, 1]))
    _refused(files, "run.parquet: no query of split test")
    Run.write(files.inputs[0], {"query_id": ["t1", "t1"], "passage_id": ["a", "a"], "score": [2, 1], "rank": [1, 2]})
    _refused(files, "run.parquet: row 0: query t1 has passage a twice")
    Run.write(files.inputs[0], {"query_id": ["t1", "t1"], "passage_id": ["a", "b"], "score": [2, 1], "rank": [1, 1]})
    _refused(files, "run.parquet: row 1: rank is 1, 2 was expected")


def _refused(files: Files, line: str, options: dict[str, Any] | None = None) -> None:
    with pytest.raises(Refusal) as refusal:
        files.evaluate(**(options or {}))
    assert str(refusal.value).removeprefix(f"{files.inputs[0].parent}/") == line
    assert not any(path.exists() for path in files.outputs)


def test_the_command_line_refuses_in_one_line(files: Files) -> None:
    names = [str(path) for path in files.inputs]
    outs = [f"--{name}={path}" for name, path in zip(("metrics", "values", "trec"), files.outputs, strict=True)]
    command = [sys.executable, "-m", "stages", "evaluate", *names, *outs, "--measures", "RR@10"]
    root = Path(__file__).parents[1]
    done = subprocess.run([*command, "--measures", "XY@3"], capture_output=True, text=True, cwd=root)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "isthmus: measures: 'XY@3' is not a measure: measure not found: XY\n"
    assert subprocess.run([*command, "--split", "test", "--draws", "10"], capture_output=True, cwd=root).returncode == 0
    assert set(json.loads(files.outputs[0].read_text())) == {"queries", "split", "depth", "RR@10"}
