"""Raw text → passages, queries and qrels."""

import sys
from collections.abc import Iterable, Iterator
from itertools import compress, islice
from pathlib import Path
from typing import Annotated

import typer

from stages.artifacts.documents import write_json
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Answers, Passages, Qrels, Queries, Writer
from stages.sources.census import Census
from stages.sources.collection import Judgement, Passage, open_source
from stages.sources.rows import answer_rows, label_counts, qrel_rows, query_rows
from stages.sources.splits import Labels, read_labels
from stages.training.progress import Progress

BATCH = 4096  # passages handed to the writer at a time


def corpus(
    source: Annotated[
        str,
        typer.Option(help="docstrings:PACKAGE,… or beir:DIR or msmarco:DIR or dpr:DIR or ir_datasets:ID"),
    ],
    passages: Annotated[Path, typer.Option(help="Passages table to write.")],
    queries: Annotated[Path, typer.Option(help="Queries table to write.")],
    qrels: Annotated[Path, typer.Option(help="Qrels table to write.")],
    metrics: Annotated[Path, typer.Option(help="JSON to write: what was found, kept and left out.")],
    answers: Annotated[
        Path | None, typer.Option(help="Answers table to write, where the source knows answers.")
    ] = None,
    title: Annotated[bool, typer.Option(help="Keep titles; without them the column is empty.")] = True,
    words: Annotated[int, typer.Option(min=8, help="About as many words per passage, where docstrings are cut.")] = 110,
    keep: Annotated[float, typer.Option(min=0, max=1, help="Fraction of the documents to keep, whole.")] = 1.0,
    dev_fraction: Annotated[
        float, typer.Option(min=0, max=1, help="Training queries made development queries where a source has none.")
    ] = 0.1,
    training: Annotated[bool, typer.Option(help="Refuse a collection without training queries.")] = True,
    partial: Annotated[
        bool, typer.Option(help="An excerpt: leave out and count judgements of unknown ids instead of refusing them.")
    ] = False,
) -> None:
    """Read a collection, check it, and write it as tables.

    Every query ends up in one split, a judgement's passage is in the collection, and a query has at least one passage
    judged relevant, or answers. Everything is checked before the tables appear; passages stream, so memory holds
    hashes of them.
    """
    opened = open_source(source, words)
    labels = read_labels(opened, dev_fraction, partial)
    _refuse_untrained(source, labels, training)
    if answers and not labels.answers:
        raise Refusal(f"source {source}: no answers")
    census = Census(opened, keep)
    with (
        Passages.writer(passages) as to_passages,
        Queries.writer(queries) as to_queries,
        Qrels.writer(qrels) as to_qrels,
    ):
        with Progress("corpus", round(opened.count() * keep), "passages") as bar:
            _write_passages(census.passages(), to_passages, title, bar)
        if not census.counts["passages"]:
            raise Refusal(f"source {source}: no passages are left with keep {keep}")
        _tell(keep, census)
        labels = answerable(labels, census, partial)
        _refuse_untrained(source, labels, training)
        to_queries.write(query_rows(labels))
        to_qrels.write(qrel_rows(labels))
    if answers:
        Answers.write(answers, answer_rows(labels))
    titled = census.counts["titled_passages"] if title else 0
    report = {**census.report, "titled_passages": titled, **label_counts(labels)}
    write_json(metrics, {"source": source, "titles": title, **report})


def _tell(keep: float, census: Census) -> None:
    """Say that a corpus is not whole: the default's share is easily forgotten where the source is another."""
    kept, left = census.counts["passages"], len(census.dropped)
    if keep < 1:
        print(f"corpus: keep {keep}: {kept:,} of {kept + left:,} passages; 1.0 keeps them all", file=sys.stderr)


def answerable(labels: Labels, census: Census, partial: bool) -> Labels:
    """The labels whose passages are kept, of queries that have a relevant one among them, or answers alone.

    Raises:
        Refusal: a judgement names an unknown passage and the collection is not ``partial``.
    """
    lines = labels.judgements
    names = [line.passage_id for line in lines]
    absent, keeps = census.missing(names), census.keeps(names)
    missing = list(compress(lines, absent))
    if missing and not partial:
        raise Refusal(f"{missing[0].origin}: row {missing[0].row}: passage id {missing[0].passage_id} is unknown")
    unjudged = labels.answers.keys() - {line.query_id for line in lines}
    found = unjudged | _answered(line for line, gone in zip(lines, absent, strict=True) if not gone)
    answered = unjudged | _answered(compress(lines, keeps))
    left_out = {
        **labels.left_out,
        "judgements_of_missing_passages": len(missing),
        "missing_positives": sum(line.relevance > 0 for line in missing),
        "queries_without_positives": len(labels.splits) - len(found),
        "passages_not_kept": len(census.dropped),
        "queries_not_kept": len(found) - len(answered),
    }
    splits = {name: split for name, split in labels.splits.items() if name in answered}
    kept = [line for line in compress(lines, keeps) if line.query_id in answered]
    answers = {name: texts for name, texts in labels.answers.items() if name in splits}
    return Labels(labels.queries, kept, splits, labels.shared, left_out, answers)


def _answered(lines: Iterable[Judgement]) -> set[str]:
    return {line.query_id for line in lines if line.relevance > 0}


def _refuse_untrained(source: str, labels: Labels, training: bool) -> None:
    if training and not labels.in_split("train"):
        raise Refusal(f"source {source}: no training queries (--no-training for a collection that is only searched)")


def _write_passages(passages: Iterator[Passage], writer: Writer, title: bool, bar: Progress) -> None:
    while rows := list(islice(passages, BATCH)):
        table = {name: [getattr(row, name) for row in rows] for name in Passages.schema.names}
        writer.write(table if title else {**table, "title": [""] * len(rows)})
        bar.advance(len(rows))
