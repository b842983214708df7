"""Questions with answers and no judgements, from the corpus to R@k; the same by hand."""

import json
from pathlib import Path

import pytest

from stages.answering import hits
from stages.artifacts.answers import holds
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Answers, Qrels, Queries, Run, Values
from stages.corpus import corpus
from stages.ranking.runs import ordered
from stages.topics import topics

FIXTURES = Path(__file__).parents[2] / "shared" / "data" / "fixtures"
needs_data = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the real collections are not beside the project")
BLOCKS = "id\ttext\ttitle\n1\tsays one\tfour\n2\tsays two\tA\n3\tsays four\tB\n4\tnothing\tfour\n"


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    (source / "psgs_w100.tsv").write_text(BLOCKS)
    (source / "nq-test.qas.csv").write_text("first?\t['one', 'Two']\nsecond?\t['FOUR']\nthird?\t['five']\n")
    entry = {"question": "fourth?", "answers": ["one"], "positive_ctxs": [{"passage_id": "1"}]}
    (source / "nq-train.json").write_text(json.dumps([entry]))
    names = ("passages", "queries", "qrels", "metrics.json")
    corpus(f"dpr:{source}", *(tmp_path / name for name in names), answers=tmp_path / "answers", dev_fraction=0)
    return tmp_path


def measured(folder: Path, run: object, **options: object) -> dict[str, object]:
    Run.write(folder / "run", run)  # type: ignore[arg-type]
    inputs = (folder / name for name in ("run", "passages", "queries", "answers"))
    hits(*inputs, folder / "hits.json", folder / "values", **options)  # type: ignore[arg-type]
    return json.loads((folder / "hits.json").read_text())  # type: ignore[no-any-return]


def test_the_tables_of_a_collection_with_answers(tables: Path) -> None:
    assert [tuple(row.values()) for row in Answers.read(tables / "answers").to_pylist()] == [
        ("train-1", "one"),
        ("test-1", "one"),
        ("test-1", "Two"),
        ("test-2", "FOUR"),
        ("test-3", "five"),
    ]
    assert Queries.read(tables / "queries")["split"].to_pylist() == ["train", "test", "test", "test"]
    assert Qrels.read(tables / "qrels").to_pylist() == [{"query_id": "train-1", "passage_id": "1", "relevance": 1}]
    found = json.loads((tables / "metrics.json").read_text())
    assert (found["answers"], found["queries"], found["qrels"]["test"]) == (5, {"train": 1, "dev": 0, "test": 3}, 0)


def test_hits_by_hand(tables: Path) -> None:
    run = ordered(
        ["test-1", "test-1", "test-2", "test-2", "test-2", "train-1"],
        ["4", "2", "1", "4", "3", "1"],
        [2, 1, 3, 2, 1, 1],
    )
    report = measured(tables, run, cutoffs=[1, 2, 3])
    assert {name: report[name] for name in ("queries", "split", "depth", "relevant")} == {
        "queries": 3,
        "split": "test",
        "depth": 3,
        "relevant": "answers",
    }
    means = [report[name]["mean"] for name in ("R@1", "R@2", "R@3")]  # type: ignore[index]
    assert means == pytest.approx([0, 1 / 3, 2 / 3])  # titles do not answer, and what is not ranked counts
    worth = {(row["query_id"], row["measure"]): row["value"] for row in Values.read(tables / "values").to_pylist()}
    assert worth["test-2", "R@3"] == 1
    assert worth["test-3", "R@3"] == 0


def test_refused(tables: Path) -> None:
    with pytest.raises(Refusal, match=r"run: no question of it has answers$"):
        measured(tables, ordered(["train-1"], ["1"], [1]))
    with pytest.raises(Refusal, match=r"answers: no answer to a query of split dev$"):
        measured(tables, ordered(["test-1"], ["1"], [1]), split="dev")
    with pytest.raises(Refusal, match=r"passages: passage x of the run is not there$"):
        measured(tables, ordered(["test-1"], ["x"], [1]))
    with pytest.raises(Refusal, match=r"^cutoffs: 5, 5: one is given twice$"):
        measured(tables, ordered(["test-1"], ["1"], [1]), cutoffs=[5, 5])


@needs_data
def test_bm25_on_real_questions_and_passages_against_a_plain_count(tmp_path: Path) -> None:
    from stages.bm25 import bm25

    source = tmp_path / "source"
    source.mkdir()
    lines = (FIXTURES / "dpr" / "nq-test.qas.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    (source / "nq-test.qas.tsv").write_text("".join(lines[:300]), encoding="utf-8")
    (source / "psgs_w100.tsv").symlink_to((FIXTURES / "dpr" / "psgs_w100.sample.tsv").resolve())
    names = ("passages", "queries", "qrels", "metrics.json")
    corpus(f"dpr:{source}", *(tmp_path / name for name in names), answers=tmp_path / "answers", training=False)
    bm25(tmp_path / "passages", tmp_path / "queries", tmp_path / "run", depth=100)
    report = measured(tmp_path, Run.read(tmp_path / "run"))
    from stages.artifacts.tables import Passages

    texts = {row["passage_id"]: row["text"] for row in Passages.read(tmp_path / "passages").to_pylist()}
    answers: dict[str, list[str]] = {}
    for row in Answers.read(tmp_path / "answers").to_pylist():
        answers.setdefault(row["query_id"], []).append(row["answer"])
    for cutoff in (20, 100):
        found = {
            row["query_id"]
            for row in Run.read(tmp_path / "run").to_pylist()
            if row["rank"] <= cutoff and holds(texts[row["passage_id"]], answers[row["query_id"]])
        }
        assert report[f"R@{cutoff}"]["mean"] == pytest.approx(len(found) / 300)  # type: ignore[index]
        assert len(found) > 20


@needs_data
@pytest.mark.parametrize(("year", "name", "count", "lines"), [(19, "dl19-passage", 43, 9260), (20, "dl20", 54, 11386)])
def test_judged_topics_of_trec_dl(tmp_path: Path, year: int, name: str, count: int, lines: int) -> None:
    folder = FIXTURES / "trec-dl"
    source = f"trec:{folder}/topics.{name}.txt,{folder}/qrels.dl{year}-passage.txt"
    topics(source, tmp_path / "queries", tmp_path / "qrels", tmp_path / "metrics.json")
    assert (Queries.count(tmp_path / "queries"), Qrels.count(tmp_path / "qrels")) == (count, lines)
    assert json.loads((tmp_path / "metrics.json").read_text())["queries"] == {"train": 0, "dev": 0, "test": count}


def test_topics_refused(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("1\tone\n")
    (tmp_path / "r").write_text("1 0 p 1\n")
    outs = tmp_path / "queries", tmp_path / "qrels", tmp_path / "metrics.json"
    for source, line in (
        ("trec:t", "source trec:t: expected trec:TOPICS,QRELS"),
        (f"trec:{tmp_path}/t,{tmp_path}/s", f"{tmp_path}/s: No such file or directory"),
    ):
        with pytest.raises(Refusal) as refusal:
            topics(source, *outs)
        assert str(refusal.value) == line
    with pytest.raises(Refusal, match=r"no answers$"):
        topics(f"trec:{tmp_path}/t,{tmp_path}/r", *outs, answers=tmp_path / "a")
    with pytest.raises(Refusal, match=r"comes without passages"):
        corpus(f"trec:{tmp_path}/t,{tmp_path}/r", tmp_path / "p", *outs, training=False)
