"""Tokens → one weight for every word: keywords by TF-IDF, salience by mutual information."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Tokens, Weights
from stages.counting.blocks import Block, read_blocks
from stages.counting.frequencies import Frequencies, inverse_frequency, tf_idf
from stages.counting.ngrams import MOST_PARTITIONS, Ngrams, partitions_within
from stages.counting.salience import Edges, average_information, without_ends
from stages.training.progress import Progress

Corpus = Annotated[Path, typer.Argument(help="Tokens of the passages (Parquet).")]
Out = Annotated[Path, typer.Argument(help="Weights to write (Parquet): one number per word of every passage.")]


def keywords(
    tokens: Corpus,
    out: Out,
    weight: Annotated[
        Literal["tf-idf", "inverse-frequency"],
        typer.Option(
            help="tf-idf: occurrences in the passage × log((N + 1) / df) over N passages, as MASTER's paper says; "
            "inverse-frequency: 1 / occurrences in the corpus, as its released code does."
        ),
    ] = "tf-idf",
) -> None:
    """How much a word tells about its passage. Every weight is above zero, so that it can be drawn by."""
    frequencies = Frequencies()
    for block in _watched("count words", tokens):
        frequencies.add(block)
    with Weights.writer(out) as writer:
        for block in _watched("keyword weights", tokens):
            weights = tf_idf(frequencies, block) if weight == "tf-idf" else inverse_frequency(frequencies, block)
            writer.write(block.rows(weights))


def salience(
    tokens: Corpus,
    out: Out,
    window: Annotated[int, typer.Option(min=2, max=16, help="L: the longest n-gram, in words.")] = 4,
    edges: Annotated[
        Edges,
        typer.Option(
            help="n-grams that would cross the end of a passage: drop leaves them out and keeps the factor 1/(L−1); "
            "renormalise divides by half the number of terms that there are."
        ),
    ] = "drop",
    memory: Annotated[float, typer.Option(min=0.5, help="Most memory of the process, in GiB.")] = 2.0,
) -> None:
    """How strongly a word is bound to its neighbours: average PMI of the n-grams that start or end at it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    ngrams = Ngrams(out.parent)
    for block in _watched("read words", tokens):
        ngrams.add(block)
    _count(ngrams, window, memory)
    with Weights.writer(out) as writer:
        for block, (words, counts) in zip(_watched("salience weights", tokens), ngrams.read(), strict=True):
            values = average_information(words, counts, ngrams.totals, ngrams.occurrences, edges)
            writer.write(block.rows(without_ends(words, values)))


def _count(ngrams: Ngrams, window: int, memory: float) -> None:
    """Count up to n-grams of ``window`` words, in as many partitions as keep the process under ``memory`` GiB."""
    partitions = partitions_within(ngrams.totals[1], int(memory * 2**30))
    if partitions > MOST_PARTITIONS:
        raise Refusal(f"--memory: {memory} GiB is too little for {ngrams.totals[1]:,} words")
    steps = (window - 1) * (len(ngrams.sizes) + partitions)
    with Progress("count n-grams", steps, "steps") as bar:
        for _ in range(2, window + 1):
            for _step in ngrams.lengthen(partitions):
                bar.advance()


def _watched(what: str, tokens: Path) -> Iterator[Block]:
    with Progress(what, Tokens.count(tokens), "passages") as bar:
        for block in read_blocks(tokens):
            yield block
            bar.advance(len(block.lengths))
