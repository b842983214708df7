"""Topics and judgements without their collection: further test sets of a corpus that is there already."""

from pathlib import Path
from typing import Annotated

import typer

from stages.artifacts.documents import write_json
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Answers, Qrels, Queries
from stages.sources.collection import open_source
from stages.sources.rows import answer_rows, label_counts, qrel_rows, query_rows
from stages.sources.splits import read_labels


def topics(
    source: Annotated[
        str, typer.Argument(help="trec:TOPICS,QRELS, or dpr:DIR, or ir_datasets:ID, or another source of corpus")
    ],
    queries: Annotated[Path, typer.Option(help="Queries table to write")],
    qrels: Annotated[Path, typer.Option(help="Qrels table to write")],
    metrics: Annotated[Path, typer.Option(help="JSON to write: what was found and left out")],
    answers: Annotated[Path | None, typer.Option(help="Answers table to write, where the source knows answers")] = None,
    partial: Annotated[
        bool, typer.Option(help="Leave out and count judgements of unknown topics instead of refusing them")
    ] = False,
) -> None:
    """Read the queries and judgements of a source, as corpus would, and none of its passages.

    Judged topics only: of TREC DL's 200 topics a year those remain that somebody judged.
    """
    labels = read_labels(open_source(source, 0), 0.0, partial)
    if not labels.splits:
        raise Refusal(f"source {source}: no topic has judgements")
    if answers and not labels.answers:
        raise Refusal(f"source {source}: no answers")
    Queries.write(queries, query_rows(labels))
    Qrels.write(qrels, qrel_rows(labels))
    if answers:
        Answers.write(answers, answer_rows(labels))
    write_json(metrics, {"source": source, **label_counts(labels)})
