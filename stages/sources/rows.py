"""Labels as the rows of the tables that hold them, and how many there are."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from stages.artifacts.tables import SPLITS, Qrels, Queries
from stages.sources.splits import Labels


def query_rows(labels: Labels) -> dict[str, Any]:
    """The columns of a Queries table: every query that is in a split."""
    rows = [(name, query.text, labels.splits[name]) for name, query in labels.queries.items() if name in labels.splits]
    return {name: [row[i] for row in rows] for i, name in enumerate(Queries.schema.names)}


def qrel_rows(labels: Labels) -> dict[str, Any]:
    """The columns of a Qrels table."""
    return {name: [getattr(line, name) for line in labels.judgements] for name in Qrels.schema.names}


def answer_rows(labels: Labels) -> dict[str, Any]:
    """The columns of an Answers table, in the order of the source."""
    rows = [(name, text) for name, texts in labels.answers.items() for text in texts]
    return {"query_id": [name for name, _ in rows], "answer": [text for _, text in rows]}


def label_counts(labels: Labels) -> dict[str, object]:
    """Queries and judgements a split, and what was left out: for the metrics."""
    counts: dict[str, object] = {
        "queries": _by_split(labels.splits.values()),
        "qrels": _by_split(labels.splits[line.query_id] for line in labels.judgements),
        "shared_queries": labels.shared,
        "left_out": labels.left_out,
    }
    return counts | ({"answers": sum(map(len, labels.answers.values()))} if labels.answers else {})


def _by_split(splits: Iterable[str]) -> dict[str, int]:
    counts = Counter(splits)
    return {split: counts[split] for split in SPLITS}
