"""From MIND's files to its measures."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Qrels, Queries, Run, Values
from stages.corpus import corpus
from stages.impressions import candidates, impressions
from stages.ranking.runs import by_query, ordered
from stages.sources.mind import Mind

FIXTURES = Path(__file__).parents[2] / "shared" / "data" / "fixtures"
needs_data = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the real collections are not beside the project")


def news(*rows: tuple[str, str, str]) -> str:
    return "".join(f"{name}\tnews\tworld\t{title}\t{text}\thttp://x\t[]\t[]\n" for name, title, text in rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, articles, lines in (
        (
            "MINDsmall_train",
            news(("N1", "one", "first"), ("N2", "two", ""), ("N3", "three", "third")),
            "1\tU1\ttime\tN1 N2\tN3-1 N1-0\n2\tU2\ttime\t\tN2-0 N1-1\n",
        ),
        (
            "MINDsmall_dev",
            news(("N2", "two", ""), ("N4", "four", "fourth")),
            "1\tU1\ttime\tN1 N2 N3\tN4-1 N2-0 N1-1\n2\tU3\ttime\tN9 N4\tN1-1\n",
        ),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "news.tsv").write_text(articles)
        (tmp_path / name / "behaviors.tsv").write_text(lines)
    return tmp_path


def tables(source: Path, out: Path, **options: bool) -> tuple[Path, Path, Path]:
    names = out / "passages", out / "queries", out / "qrels"
    corpus(f"mind:{source}", *names, out / "metrics.json", **options)  # type: ignore[arg-type]
    return names


def test_the_files_as_tables(folder: Path) -> None:
    passages, queries, qrels = tables(folder, folder)
    assert Passages.read(passages)["passage_id"].to_pylist() == ["N1", "N2", "N3", "N4"]
    assert [tuple(row.values()) for row in Queries.read(queries).to_pylist()] == [
        ("train-1", "two one", "train"),
        ("train-2", "-", "train"),
        ("dev-1", "three two one", "dev"),
        ("dev-2", "four", "dev"),
    ]
    assert [tuple(row.values()) for row in Qrels.read(qrels).to_pylist()] == [
        ("train-1", "N3", 1),
        ("train-1", "N1", 0),
        ("train-2", "N2", 0),
        ("train-2", "N1", 1),
        ("dev-1", "N4", 1),
        ("dev-1", "N2", 0),
        ("dev-1", "N1", 1),
        ("dev-2", "N1", 1),
    ]


def test_measures_by_impression(folder: Path) -> None:
    _, queries, qrels = tables(folder, folder)
    candidates(queries, qrels, folder / "shown", splits=["dev"])
    assert [(name, found) for name, found, _ in by_query(folder / "shown")] == [
        ("dev-1", ["N1", "N2", "N4"]),
        ("dev-2", ["N1"]),
    ]
    Run.write(folder / "run", ordered(["dev-1"] * 3 + ["dev-2"], ["N1", "N2", "N4", "N1"], [3, 2, 1, 1]))
    impressions(folder / "run", queries, qrels, folder / "m.json", folder / "values")
    report = json.loads((folder / "m.json").read_text())
    assert (report["queries"], report["left_out"], report["split"]) == (1, 1, "dev")
    assert report["AUC"]["mean"] == 0.5
    assert report["MRR"]["mean"] == pytest.approx((1 + 1 / 3) / 2)
    assert report["nDCG@5"]["mean"] == pytest.approx((1 + 1 / np.log2(4)) / (1 + 1 / np.log2(3)))
    assert Values.count(folder / "values") == 4


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (["N1", "N2"], "query dev-1: N4 is not in both the run and the candidates"),
        (["N1", "N2", "N3", "N4"], "query dev-1: N3 is not in both the run and the candidates"),
        ([], "query dev-1 is not there"),
    ],
)
def test_a_run_of_other_candidates_is_refused(folder: Path, rows: list[str], line: str) -> None:
    _, queries, qrels = tables(folder, folder)
    Run.write(folder / "run", ordered([*["dev-1"] * len(rows), "dev-2"], [*rows, "N1"], [0.0] * len(rows) + [1]))
    with pytest.raises(Refusal, match=rf"run: {re.escape(line)}$"):
        impressions(folder / "run", queries, qrels, folder / "m.json", folder / "values")


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        ("behaviors.tsv", "1\tU\tt\tN1\tN1\n", "row 1: column impressions: 'N1' does not end in -0 or -1"),
        ("behaviors.tsv", "1\tU\tt\tN1\n", "row 1: 4 columns, expected 5"),
        ("news.tsv", "N1\tx\n", "row 1: 2 columns, expected 8"),
    ],
)
def test_bad_files(folder: Path, file: str, text: str, line: str) -> None:
    path = folder / "MINDsmall_train" / file
    path.write_text(text)
    with pytest.raises(Refusal, match=rf"^{re.escape(f'{path}: {line}')}$"):
        tables(folder, folder)
    with pytest.raises(Refusal, match=r"no behaviors.tsv, neither here nor in a folder of it$"):
        Mind(folder / "MINDsmall_train" / "news")


@needs_data
def test_the_real_excerpt(tmp_path: Path) -> None:
    """Most candidates are outside the excerpt of the news; what is left agrees with scikit-learn."""
    source = FIXTURES / "mind"
    passages, queries, qrels = tables(source, tmp_path, partial=True, training=False)
    assert Passages.count(passages) == 2000
    first = Passages.read(passages).slice(0, 1).to_pylist()[0]
    assert (first["passage_id"], first["title"][:11]) == ("N34700", "New Florida")
    read = list(Mind(source).queries())
    assert (len(read), read[0].query_id, sum(query.text == "-" for query in read) >= 33) == (1500, "test-58376", True)
    candidates(queries, qrels, tmp_path / "shown")
    random = np.random.default_rng(0)
    shown = Run.read(tmp_path / "shown")
    scores = random.integers(0, 5, len(shown)).astype(np.float32)
    Run.write(tmp_path / "run", ordered(shown["query_id"], shown["passage_id"], scores))
    impressions(tmp_path / "run", queries, qrels, tmp_path / "m.json", tmp_path / "values", split="test")
    clicked = {(row["query_id"], row["passage_id"]): row["relevance"] for row in Qrels.read(qrels).to_pylist()}
    expected = {}
    for name, found, values in by_query(tmp_path / "run"):
        labels = [clicked[name, passage] for passage in found]
        if len(set(labels)) == 2:
            expected[name] = roc_auc_score(labels, values)
    rows = Values.read(tmp_path / "values").to_pylist()
    assert {row["query_id"]: row["value"] for row in rows if row["measure"] == "AUC"} == pytest.approx(expected)
    assert len(expected) > 30
