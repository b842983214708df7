"""Long passages → passages of at most so many pieces: what MaxP takes the maximum over."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from tokenizers import Encoding, Tokenizer

from stages.artifacts.checkpoints import load_tokenizer
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages
from stages.training.progress import Progress

ROWS = 1024  # documents tokenised together


def chunks(
    passages: Annotated[Path, typer.Argument(help="Passages table, a row a document")],
    backbone: Annotated[Path, typer.Argument(help="model folder whose tokenizer counts the pieces")],
    out: Annotated[Path, typer.Argument(help="Passages table to write, a row a chunk")],
    pieces: Annotated[int, typer.Option(min=8, help="pieces of a chunk, two special ones included")] = 512,
    most: Annotated[int, typer.Option(min=1, help="chunks of a document; what is behind them is left out")] = 4,
) -> None:
    """Cut every row into chunks of as many whole words as fit.

    Chunk i of row x is passage ``x#i`` of document x, so that `maxp` gives back rankings of rows. Only the first chunk
    has the title (Dai and Callan 2019; four chunks of 512 as ANCE's and SEED's MaxP).
    """
    tokenizer = load_tokenizer(backbone)
    if not Passages.count(passages):
        raise Refusal(f"{passages}: no rows")
    with Passages.writer(out) as writer, Progress("chunks", Passages.count(passages), "rows") as bar:
        for batch in Passages.stream(passages):
            for start in range(0, batch.num_rows, ROWS):
                part = batch.slice(start, ROWS).to_pylist()
                writer.write(_cut(part, tokenizer, pieces - 2, most))
                bar.advance(len(part))


def _cut(part: list[dict[str, Any]], tokenizer: Tokenizer, room: int, most: int) -> dict[str, list[Any]]:
    """The columns of the chunks of some rows; ``room`` is for ordinary pieces."""
    titles, texts = (
        tokenizer.encode_batch([row[column] for row in part], add_special_tokens=False) for column in ("title", "text")
    )
    rows: dict[str, list[Any]] = {name: [] for name in Passages.schema.names}
    for row, title, text in zip(part, titles, texts, strict=True):
        for position, (begin, end) in enumerate(spans(text, room - len(title), room, most)):
            name = row["passage_id"]
            values = (f"{name}#{position}", name, position, "" if position else row["title"], row["text"][begin:end])
            for column, value in zip(rows, values, strict=True):
                rows[column].append(value)
    return rows


def spans(text: Encoding, first: int, others: int, most: int) -> Iterator[tuple[int, int]]:
    """(start, end) in the text of each chunk: ``first`` pieces at most in the first, ``others`` in the others.

    A word stays whole unless it is longer than a chunk. There is always a first chunk, if only for the title.
    """
    words, offsets, done = text.word_ids, text.offsets, 0
    for number in range(most):
        stop = min(done + max(first if number == 0 else others, 0), len(words))
        if done < stop < len(words) and words[stop] == words[stop - 1]:
            start = words.index(words[stop])
            stop = start if start > done or number == 0 else stop
        if stop > done or number == 0:
            yield (offsets[done][0], offsets[stop - 1][1]) if stop > done else (0, 0)
        done = stop
        if done == len(words):
            return
