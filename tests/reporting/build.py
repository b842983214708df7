"""A finished run without a model: tables, runs and metrics whose numbers are drawn, small enough for slow oracles."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from stages.artifacts.documents import write_json
from stages.artifacts.tables import Passages, Qrels, Queries, Run, Tokens
from stages.comparison import significance
from stages.evaluation import evaluate
from stages.ranking.runs import ordered
from tests.conftest import write_collection

ROWS = ("bm25", "backbone", "retriever1", "retriever2", "retriever")
TRAINED = ("bm25", "retriever1", "retriever2")  # their runs have training queries
HOSTILE = "<script>document.title='run'</script><img src=x onerror=alert(1)> & \"quoted\""
PARAMS = """
seed: 1
recipe: tiny
retriever1: {depth: 12}
retriever2: {depth: 8, first: 2}
reranker: {depth: 8}
retriever: {depth: 6}
teacher: {prior: 50}
"""


def build(folder: Path, hostile: bool = False) -> None:
    """Write everything that the chapter report reads, in the places that dvc.yaml gives them."""
    data, metrics = folder / "data", folder / "metrics"
    data.mkdir(parents=True)
    write_collection(data)
    if hostile:
        _spoil(data)
    ids = Passages.read(data / "passages.parquet")["passage_id"].to_pylist()
    empty = pa.array([[]] * len(ids), pa.list_(pa.int32()))
    words = pa.array([[]] * len(ids), pa.list_(pa.int16()))
    Tokens.write(data / "tokens.parquet", {"passage_id": ids, "pieces": empty, "words": empty, "word_of_piece": words})
    _runs(data, ids)
    for name in ROWS:
        paths = [data / "runs" / f"{name}.parquet", data / "queries.parquet", data / "qrels.parquet"]
        evaluate(*paths, metrics / "evaluation" / f"{name}.json", data / f"{name}.parquet", data / f"{name}.trec")
    significance([data / f"{name}.parquet" for name in ROWS], metrics / "significance.json", draws=200)
    _told(metrics)
    (folder / "params.yaml").write_text(PARAMS)
    (folder / "tiny.yaml").write_text("# a recipe\nencoder:\n  passage: {mask: {random: 0.3}}\n")


def _spoil(data: Path) -> None:
    """Put markup into every query and passage."""
    passages, queries = (
        table.read(data / f"{name}.parquet").to_pydict()
        for table, name in ((Passages, "passages"), (Queries, "queries"))
    )
    passages["text"] = [f"{HOSTILE} {text}" for text in passages["text"]]
    passages["title"] = [f"{HOSTILE} {title}" for title in passages["title"]]
    queries["text"] = [f"{HOSTILE} {text}" for text in queries["text"]]
    Passages.write(data / "passages.parquet", passages)
    Queries.write(data / "queries.parquet", queries)


def _runs(data: Path, ids: list[str]) -> None:
    """Runs that rank positives high, each over its splits, and a teacher's run of the best and the positives."""
    random = np.random.default_rng(5)
    queries = Queries.read(data / "queries.parquet").to_pylist()
    positive = {row["query_id"]: row["passage_id"] for row in Qrels.read(data / "qrels.parquet").to_pylist()}
    for name in ROWS:
        asked = [row["query_id"] for row in queries if name in TRAINED or row["split"] != "train"]
        rows: list[tuple[str, str, float]] = []
        for query in asked:
            scores = random.normal(size=len(ids)) + 2.0 * np.array([one == positive[query] for one in ids])
            kept = np.argsort(-scores)[: 30 if name == "bm25" else 40]
            rows += [(query, ids[i], float(scores[i])) for i in kept]
        Run.write(data / "runs" / f"{name}.parquet", ordered(*zip(*rows, strict=True)))
    taught = []
    for row in (row for row in queries if row["split"] == "train"):
        some = {ids[i] for i in random.permutation(len(ids))[:6]} | {positive[row["query_id"]]}
        taught += [(row["query_id"], name, float(random.normal())) for name in sorted(some)]
    Run.write(data / "runs" / "teacher.parquet", ordered(*zip(*taught, strict=True)))


def _told(metrics: Path) -> None:
    curve = metrics / "curves" / "retriever1" / "plots" / "metrics"
    curve.mkdir(parents=True)
    (curve / "loss.tsv").write_text("step\tloss\n1\t2.5\n2\t1.5\n3\t1.0\n")
    (curve / "first in its group.tsv").write_text("step\tfirst in its group\n1\t0.5\n2\t0.7\n3\t0.8\n")
    speed = {"seconds": 12.5, "tokens_per_second": 1234.5}
    write_json(metrics / "retriever1.json", json.loads(json.dumps({"speed": speed})))


def options(folder: Path) -> dict[str, Path]:
    """The paths that the chapter takes as options."""
    data, metrics = folder / "data", folder / "metrics"
    tables = {name: data / f"{name}.parquet" for name in ("passages", "tokens", "queries", "qrels")}
    found = {"evaluations": metrics / "evaluation", "significance": metrics / "significance.json"}
    return tables | found | {"runs": data / "runs", "training_curves": metrics / "curves"}
