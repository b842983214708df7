"""Queries whose answers are known: so that a page can mark them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts.tables import Qrels, Queries


class Known:
    """The judged queries by text, white space and case aside.

    Attributes:
        examples: texts of judged queries, of the test split where there is one.
    """

    def __init__(self, queries: Path, qrels: Path):
        asked = Queries.read(queries)
        answers: dict[str, list[str]] = {}
        for batch in Qrels.stream(qrels):
            relevant = batch.filter(pc.greater(batch["relevance"], 0))
            for query, passage in zip(
                relevant["query_id"].to_pylist(), relevant["passage_id"].to_pylist(), strict=True
            ):
                answers.setdefault(query, []).append(passage)
        self.answers: dict[str, set[str]] = {}
        for row in asked.to_pylist():
            self.answers.setdefault(plain(row["text"]), set()).update(answers.get(row["query_id"], []))
        self.examples = _examples(asked, answers)

    def gold(self, query: str) -> set[str]:
        """Passage ids that are known to answer a query; none where it is not known."""
        return self.answers.get(plain(query), set())


def plain(text: str) -> str:
    """A query as it is compared."""
    return " ".join(text.casefold().split())


def _examples(asked: pa.Table, answers: dict[str, list[str]]) -> list[str]:
    splits = asked["split"].to_pylist()
    split = next((name for name in ("test", "dev") if name in splits), "train")
    rows = zip(asked["query_id"].to_pylist(), asked["text"].to_pylist(), splits, strict=True)
    return [text for name, text, of in rows if of == split and name in answers]
