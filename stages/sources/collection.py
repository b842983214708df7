"""What a reader hands over: passages, queries and judgements, each knowing the line that it came from."""

from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple, Protocol, runtime_checkable

from stages.artifacts.refusal import Refusal

# stages/sources/READER.py, chosen by the prefix of a source
READERS = ("beir", "docstrings", "dpr", "ir_datasets", "mind", "msmarco", "msmarco_documents", "trec")


class Passage(NamedTuple):
    """One passage; passages of a document follow each other, ``position`` counts them from 0."""

    passage_id: str
    document_id: str
    position: int
    title: str
    text: str
    origin: str
    row: int


class Query(NamedTuple):
    """One query; its split is that of the judgements which name it."""

    query_id: str
    text: str
    origin: str
    row: int


class Judgement(NamedTuple):
    """One line of qrels: ``relevance`` is positive, or at most 0 for a passage judged not relevant."""

    split: str
    query_id: str
    passage_id: str
    relevance: int
    origin: str
    row: int


class Answer(NamedTuple):
    """One of the texts that answer a query, whichever passage holds it."""

    split: str
    query_id: str
    text: str
    origin: str
    row: int


class Source(Protocol):
    """A collection in some format. Every method reads anew and yields one row at a time.

    ``origin`` and ``row`` of what they yield are the file (or whatever stands for it) and the line, from 1.
    Each raises `Refusal` where its own input is malformed.
    """

    def count(self) -> int: ...  # passages, as nearly as can be said cheaply: for the progress bar

    def passages(self) -> Iterator[Passage]: ...

    def queries(self) -> Iterator[Query]: ...

    def judgements(self) -> Iterator[Judgement]: ...


@runtime_checkable
class Answering(Source, Protocol):
    """A `Source` that knows answers. A query that has answers needs no judgements."""

    def answers(self) -> Iterator[Answer]: ...


def open_source(source: str, words: int) -> Source:
    """The reader for ``source``, which is written ``reader:rest``.

    Args:
        source: such as ``beir:DIR``.
        words: about how many words a passage has where the reader cuts documents itself.

    Raises:
        Refusal: there is no such reader, or nothing behind the colon, or the reader does not find its input.
    """
    reader, _, rest = source.partition(":")
    if reader not in READERS or not rest:
        raise Refusal(f"source {source!r}: expected one of {', '.join(f'{name}:…' for name in READERS)}")
    opened: Source = import_module(f"stages.sources.{reader}").read(rest, words)
    return opened
