"""Which query belongs to which split, so that nothing held out is trained on."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from stages.artifacts.identity import digest, normalised
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import SPLITS
from stages.sources.collection import Answer, Answering, Judgement, Query, Source
from stages.sources.lots import lot


@dataclass
class Labels:
    """Queries with their splits and judgements, and what had to be left out.

    Attributes:
        queries: by id, in the order of the source.
        judgements: in the order of the source.
        splits: query id → split, for every query that has judgements.
        shared: how many queries each pair of splits shared.
        left_out: what else was left out, and how often.
        answers: query id → its answers, where the source knows any.
    """

    queries: dict[str, Query]
    judgements: list[Judgement]
    splits: dict[str, str]
    shared: dict[str, int]
    left_out: dict[str, int]
    answers: dict[str, list[str]] = field(default_factory=dict)

    def in_split(self, split: str) -> int:
        """How many queries the split has."""
        return sum(found == split for found in self.splits.values())


def read_labels(source: Source, dev_fraction: float, partial: bool) -> Labels:
    """The queries and judgements of a source, every query in one split.

    A query of several splits, known again by its id or by its normalised text, stays in the one that is held out
    longest (test over dev over train) and leaves the others with its judgements. Where the source has no development
    queries, those training queries become it whose text draws a lot below ``dev_fraction``.

    Raises:
        Refusal: a query id that occurs twice, an empty query, two judgements that contradict each other, or, unless
            ``partial``, a judgement of an unknown query.
    """
    queries = read_queries(source.queries())
    judgements, unknown, repeated = read_judgements(source.judgements(), queries, partial)
    answers = list(source.answers()) if isinstance(source, Answering) else []
    lines: list[Judgement | Answer] = [*judgements, *answers]
    named = {line.query_id for line in lines}
    texts = {name: digest(normalised(queries[name].text)) for name in named}
    splits, shared = assign_splits(lines, texts)
    kept = [line for line in judgements if splits.get(line.query_id) == line.split]
    if "dev" not in splits.values():
        splits = carve(splits, queries, dev_fraction)
    left_out = {
        "judgements_of_unknown_queries": unknown,
        "judgements_repeated": repeated,
        "queries_without_judgements": len(queries) - len(texts),
    }
    return Labels(queries, kept, splits, shared, left_out, read_answers(answers, splits))


def read_answers(answers: Iterable[Answer], splits: dict[str, str]) -> dict[str, list[str]]:
    """The answers of each query that is in its split."""
    found: dict[str, list[str]] = {}
    for answer in answers:
        if answer.query_id in splits:
            found.setdefault(answer.query_id, []).append(answer.text)
    return found


def read_queries(queries: Iterable[Query]) -> dict[str, Query]:
    """The queries by id. The same query may stand in the files of several splits; otherwise ids are unique."""
    found: dict[str, Query] = {}
    for query in queries:
        refuse_id(query.query_id, "query id", query.origin, query.row)
        if not query.text.strip():
            raise Refusal(f"{query.origin}: row {query.row}: column text is empty")
        known = found.setdefault(query.query_id, query)
        if known is not query and (known.origin == query.origin or known.text != query.text):
            first = f"{known.origin} row {known.row}"
            raise Refusal(f"{query.origin}: row {query.row}: query id {query.query_id} was already used in {first}")
    return found


def read_judgements(
    judgements: Iterable[Judgement], queries: dict[str, Query], partial: bool
) -> tuple[list[Judgement], int, int]:
    """(judgements, how many named an unknown query, how many said again what had been said)."""
    said: dict[tuple[str, str, str], Judgement] = {}
    unknown = repeated = 0
    for line in judgements:
        if line.query_id not in queries:
            if not partial:
                raise Refusal(f"{line.origin}: row {line.row}: query id {line.query_id} is unknown")
            unknown += 1
            continue
        first = said.setdefault((line.split, line.query_id, line.passage_id), line)
        repeated += first is not line
        if first.relevance != line.relevance:
            found = f"column relevance is {line.relevance}, was {first.relevance} in row {first.row} for the same pair"
            raise Refusal(f"{line.origin}: row {line.row}: {found}")
    return list(said.values()), unknown, repeated


def assign_splits(
    judgements: Iterable[Judgement | Answer], texts: dict[str, int]
) -> tuple[dict[str, str], dict[str, int]]:
    """(query id → split, how many queries each pair of splits shares). ``texts``: query id → hash of its text."""
    named: dict[str, set[str]] = {split: set() for split in SPLITS}
    for line in judgements:
        named[line.split].add(line.query_id)
    hashes = {split: {texts[name] for name in names} for split, names in named.items()}
    pairs = [("train", "dev"), ("train", "test"), ("dev", "test")]
    shared = {
        f"{one}_{other}": sum(name in named[other] or texts[name] in hashes[other] for name in named[one])
        for one, other in pairs
    }
    splits: dict[str, str] = {}
    held_out: set[int] = set()
    for split in reversed(SPLITS):
        splits |= {name: split for name in named[split] if name not in splits and texts[name] not in held_out}
        held_out |= hashes[split]
    return splits, shared


def carve(splits: dict[str, str], queries: dict[str, Query], fraction: float) -> dict[str, str]:
    """Make development queries of about that fraction of the training queries; equal texts stay together."""
    return {
        name: "dev" if split == "train" and lot(normalised(queries[name].text), "dev") < fraction else split
        for name, split in splits.items()
    }


def refuse_id(name: str, column: str, origin: str, row: int) -> None:
    """Raise `Refusal` for an id that a run file, whose columns are separated by blanks, could not carry."""
    if not name or name.split() != [name]:
        problem = "is empty" if not name.strip() else f"{name!r} holds white space"
        raise Refusal(f"{origin}: row {row}: {column} {problem}")
