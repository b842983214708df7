"""The corpus chapter from its command line's function to its tables."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stages.__main__ import app
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Qrels, Queries
from stages.corpus import corpus
from stages.sources.collection import READERS

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the real collections are not beside the project")

CORPUS = [
    {"_id": f"{document}-{position}", "doc_id": document, "position": position, "title": document, "text": text}
    for document, texts in {"d1": ["one", "two words"], "d2": ["Three!", "three", "three"], "d3": ["", "six"]}.items()
    for position, text in enumerate(texts)
]
QUERIES = [{"_id": f"q{i}", "text": text} for i, text in enumerate(["a", "b", "c", "C?", "e", "f", "g"])]
QRELS = {
    "train": [("q0", "d1-0", 1), ("q0", "d2-0", 0), ("q1", "d2-1", 2), ("q2", "d2-2", 1), ("q4", "d3-1", 0)],
    "test": [("q3", "d1-1", 1), ("q5", "d3-1", 1)],
}


def beir(path, passages=CORPUS, queries=QUERIES, qrels=QRELS):
    (path / "qrels").mkdir(parents=True)
    for name, rows in (("corpus.jsonl", passages), ("queries.jsonl", queries)):
        (path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for split, lines in qrels.items():
        rows = [("query-id", "corpus-id", "score"), *lines]
        text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
        (path / "qrels" / f"{split}.tsv").write_text(text, encoding="utf-8")
    return f"beir:{path}"


def run(out, source, **options):
    options = {"dev_fraction": 0.0, **options}
    corpus(source, out / "p", out / "q", out / "r", out / "m.json", **options)
    tables = [table.read(out / name).to_pylist() for table, name in ((Passages, "p"), (Queries, "q"), (Qrels, "r"))]
    return *tables, json.loads((out / "m.json").read_text())


def test_tables_and_metrics(tmp_path):
    source = beir(tmp_path / "in")
    passages, queries, qrels, metrics = run(tmp_path / "out", source)
    names = {"passage_id": "_id", "document_id": "doc_id", "position": "position", "title": "title", "text": "text"}
    assert passages == [{name: row[original] for name, original in names.items()} for row in CORPUS]
    assert [tuple(row.values()) for row in queries] == [
        ("q0", "a", "train"),
        ("q1", "b", "train"),
        ("q3", "C?", "test"),
        ("q5", "f", "test"),
    ]
    assert [tuple(row.values()) for row in qrels] == [
        ("q0", "d1-0", 1),
        ("q0", "d2-0", 0),
        ("q1", "d2-1", 2),
        ("q3", "d1-1", 1),
        ("q5", "d3-1", 1),
    ]
    assert metrics == {
        "source": source,
        "titles": True,
        "passages": 7,
        "documents": 3,
        "titled_passages": 7,
        "empty_passages": 0,
        "average_words": 1.0,
        "duplicate_passages": {"exact": 1, "normalised": 2},
        "queries": {"train": 2, "dev": 0, "test": 2},
        "qrels": {"train": 3, "dev": 0, "test": 2},
        "shared_queries": {"train_dev": 0, "train_test": 1, "dev_test": 0},
        "left_out": {
            "judgements_of_missing_passages": 0,
            "judgements_of_unknown_queries": 0,
            "judgements_repeated": 0,
            "missing_positives": 0,
            "passages_not_kept": 0,
            "queries_not_kept": 0,
            "queries_without_judgements": 1,
            "queries_without_positives": 1,
        },
    }


def test_without_titles_the_column_is_empty_and_so_is_a_passage_of_nothing_else(tmp_path):
    passages, *_, metrics = run(tmp_path, beir(tmp_path / "in", [{**row, "title": ""} for row in CORPUS]), title=False)
    assert {row["title"] for row in passages} == {""}
    assert (metrics["titles"], metrics["empty_passages"]) == (False, 1)
    assert len(passages) == 7


def test_the_same_input_gives_the_same_bytes(tmp_path):
    """Python's own hashes, which differ from process to process, decide nothing."""
    source = many(tmp_path / "in")
    names = ("passages", "queries", "qrels", "metrics")
    for seed in ("1", "2"):
        outs = [f"--{name}={tmp_path / seed / name}" for name in names]
        command = [sys.executable, "-m", "stages", "corpus", "--source", source, *outs, "--keep", "0.5"]
        hashed = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, check=True, cwd=ROOT, env=hashed, capture_output=True, text=True)
        assert " of 900 passages; 1.0 keeps them all\n" in done.stderr
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def many(path, documents=300):
    passages = [
        {"_id": f"{document}.{i}", "doc_id": f"d{document}", "position": i, "title": "", "text": f"text {document} {i}"}
        for document in range(documents)
        for i in range(3)
    ]
    queries = [{"_id": f"q{document}", "text": f"question {document}"} for document in range(documents)]
    lines = [(f"q{document}", f"{document}.{i}", 1) for document in range(documents) for i in range(2)]
    return beir(path, passages, queries, {"train": lines[:400], "test": lines[400:]})


def test_documents_are_kept_whole_and_more_keeps_what_less_kept(tmp_path):
    source = many(tmp_path / "in")
    kept = {}
    for keep in (0.3, 0.6, 1.0):
        passages, queries, qrels, metrics = run(tmp_path / str(keep), source, keep=keep)
        documents = {row["document_id"] for row in passages}
        assert len(passages) == 3 * len(documents)
        assert len(documents) == pytest.approx(300 * keep, abs=30)
        assert {row["query_id"][1:] for row in queries} == {document[1:] for document in documents}
        assert {row["passage_id"] for row in qrels} <= {row["passage_id"] for row in passages}
        assert metrics["left_out"]["passages_not_kept"] == 900 - len(passages)
        assert metrics["left_out"]["queries_not_kept"] == 300 - len(queries)
        kept[keep] = documents
    assert kept[0.3] < kept[0.6] < kept[1.0]


def test_dev_queries_are_carved_out_of_training(tmp_path):
    _, queries, _, metrics = run(tmp_path, many(tmp_path / "in"), dev_fraction=0.2)
    assert metrics["queries"]["dev"] == pytest.approx(40, abs=15)
    assert sum(metrics["queries"].values()) == len(queries) == 300
    assert metrics["queries"]["test"] == 100


def test_an_excerpt_leaves_out_and_counts_what_it_misses(tmp_path):
    qrels = {
        "train": [("q0", "d1-0", 1), ("q0", "gone", 1), ("q1", "gone", 0), ("q1", "lost", 1), ("q9", "d1-0", 1)],
        "test": [("q5", "d3-1", 1)],
    }
    source = beir(tmp_path / "in", qrels=qrels)
    _, queries, rows, metrics = run(tmp_path / "out", source, partial=True)
    assert [row["query_id"] for row in queries] == ["q0", "q5"]
    assert [(row["query_id"], row["passage_id"]) for row in rows] == [("q0", "d1-0"), ("q5", "d3-1")]
    assert {name: count for name, count in metrics["left_out"].items() if count} == {
        "judgements_of_missing_passages": 3,
        "judgements_of_unknown_queries": 1,
        "missing_positives": 2,
        "queries_without_judgements": 4,
        "queries_without_positives": 1,
    }


def changed(rows, **changes):
    return [{**row, **changes} if i == 4 else row for i, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("files", "options", "complaint"),
    [
        ({"passages": changed(CORPUS, _id="d1-0")}, {}, "row 5: passage id d1-0 was already used in row 1"),
        ({"passages": changed(CORPUS, doc_id="d1")}, {}, "row 5: document id d1 was already used in row 1"),
        (
            {"passages": changed(CORPUS, position=1)},
            {},
            "corpus.jsonl: row 5: column position is 1, behind 1 in the same document",
        ),
        ({"passages": changed(CORPUS, _id="")}, {}, "corpus.jsonl: row 5: passage id is empty"),
        ({"passages": changed(CORPUS, _id="d 4")}, {}, "corpus.jsonl: row 5: passage id 'd 4' holds white space"),
        ({"passages": changed(CORPUS, doc_id="")}, {}, "corpus.jsonl: row 5: document id is empty"),
        ({"passages": changed(CORPUS, text=0)}, {}, "corpus.jsonl: row 5: column text is not a string"),
        ({"passages": []}, {}, "corpus.jsonl: empty file"),
        ({"queries": changed(QUERIES, _id="q0")}, {}, "queries.jsonl: row 5: query id q0 was already used in "),
        ({"qrels": {"train": [("q0", "d9", 1)]}}, {}, "train.tsv: row 2: passage id d9 is unknown"),
        ({"qrels": {"train": [("q9", "d1-0", 1)]}}, {}, "train.tsv: row 2: query id q9 is unknown"),
        ({"qrels": {"test": [("q0", "d1-0", 1)]}}, {}, "no training queries (--no-training for a collection that"),
        ({"qrels": {"train": [("q0", "d1-0", 0)]}}, {}, "no training queries"),
        ({"qrels": {"train": [("q0", "d1-0", 1)]}}, {"dev_fraction": 1.0}, "no training queries"),
        ({}, {"keep": 0.0}, "no passages are left with keep 0.0"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(tmp_path, files, options, complaint):
    source = beir(tmp_path / "in", **files)
    with pytest.raises(Refusal, match=re.escape(complaint)):
        run(tmp_path / "out", source, **options)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("source", ["", "beir", "beir:", "tsv:somewhere", "collection:x"])
def test_an_unknown_source_is_refused(tmp_path, source):
    complaint = f"source {source!r}: expected one of {', '.join(f'{name}:…' for name in READERS)}"
    with pytest.raises(Refusal, match=f"^{re.escape(complaint)}$"):
        run(tmp_path, source)


def test_a_collection_to_search_only(tmp_path):
    source = beir(tmp_path / "in", qrels={"test": QRELS["test"]})
    _, queries, _, metrics = run(tmp_path, source, training=False)
    assert metrics["queries"] == {"train": 0, "dev": 0, "test": 2}
    assert len(queries) == 2


def test_passages_alone_are_a_corpus_to_pre_train_on(tmp_path):
    source = beir(tmp_path / "in", qrels={})
    (tmp_path / "in" / "qrels").rmdir()
    with pytest.raises(Refusal, match="none of train"):  # whoever asks has judged
        run(tmp_path, source, training=False)
    (tmp_path / "in" / "queries.jsonl").unlink()
    passages, queries, qrels, _ = run(tmp_path, source, training=False)
    assert (len(passages), queries, qrels) == (len(CORPUS), [], [])
    with pytest.raises(Refusal, match="no training queries"):
        run(tmp_path, source)


def test_the_command_line(tmp_path):
    source = beir(tmp_path / "in")
    outs = [f"--{name}={tmp_path / name}" for name in ("passages", "queries", "qrels", "metrics")]
    result = CliRunner().invoke(app, ["corpus", "--source", source, *outs, "--no-title", "--dev_fraction", "0.1"])
    assert (result.exit_code, result.exception) == (0, None)
    assert json.loads((tmp_path / "metrics").read_text())["titles"] is False
    for wrong in (["--keep", "1.5"], ["--words", "3"], ["--dev-fraction", "-1"], ["--seed", "1"]):
        assert CliRunner().invoke(app, ["corpus", "--source", source, *outs, *wrong]).exit_code == 2


@needs_data
def test_the_real_head_of_ms_marco_is_an_excerpt(tmp_path):
    real = DATA / "fixtures" / "msmarco"
    (tmp_path / "in").mkdir()
    for name in ("queries.dev.small.tsv", "qrels.dev.small.tsv"):
        (tmp_path / "in" / name).symlink_to((real / name).resolve())
    (tmp_path / "in" / "collection.tsv").symlink_to((real / "collection.head.tsv").resolve())
    source = f"msmarco:{tmp_path / 'in'}"
    with pytest.raises(Refusal, match=re.escape("qrels.dev.small.tsv: row 1: passage id 7067032 is unknown")):
        run(tmp_path, source, training=False)
    passages, queries, qrels, metrics = run(tmp_path, source, training=False, partial=True)
    assert (len(passages), len(queries), len(qrels)) == (101, 0, 0)
    assert metrics["left_out"]["missing_positives"] == metrics["left_out"]["judgements_of_missing_passages"] == 7437
    assert metrics["left_out"]["queries_without_positives"] == 6980


@needs_data
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("fairytaleqa", {"passages": 4095, "documents": 278, "queries": {"train": 8542, "dev": 1025, "test": 1007}}),
        ("nfcorpus", {"passages": 3633, "documents": 3633, "queries": {"train": 2582, "dev": 323, "test": 323}}),
        ("scifact", {"passages": 5183, "documents": 5183, "queries": {"train": 721, "dev": 86, "test": 300}}),
        ("cranfield", {"passages": 1398, "documents": 1398, "queries": {"train": 0, "dev": 0, "test": 225}}),
    ],
)
def test_real_collections(tmp_path, name, counts):
    options = {"dev_fraction": 0.1, "training": name != "cranfield"}
    passages, queries, qrels, metrics = run(tmp_path, f"beir:{DATA / name}", **options)
    assert {key: metrics[key] for key in counts} == counts
    assert len(passages) == counts["passages"]
    assert len(queries) == sum(counts["queries"].values())
    assert {row["query_id"] for row in qrels} == {row["query_id"] for row in queries}


def test_documentation_of_installed_packages(tmp_path):
    before = "networkx" in sys.modules
    passages, queries, qrels, metrics = run(tmp_path, "docstrings:networkx", words=60)
    assert ("networkx" in sys.modules) is before
    assert metrics["average_words"] == pytest.approx(60, abs=10)
    assert metrics["duplicate_passages"] == {"exact": 0, "normalised": 0}
    assert metrics["left_out"] == dict.fromkeys(metrics["left_out"], 0)
    assert min(metrics["queries"].values()) > 50
    assert {row["passage_id"] for row in qrels} <= {row["passage_id"] for row in passages}
    assert len({row["text"] for row in queries}) == len(queries)
