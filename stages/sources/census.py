"""Passages counted and checked while they stream by: 64-bit hashes are kept, never texts."""

from array import array
from collections.abc import Callable, Iterator
from itertools import groupby

import numpy as np

from stages.artifacts.identity import digest, normalised
from stages.artifacts.refusal import Refusal
from stages.sources.collection import Passage, Source
from stages.sources.lots import lot
from stages.sources.splits import refuse_id


class Census:
    """Takes every passage of a source in order; says which are kept, and in the end what there was.

    Args:
        keep: the fraction of documents to keep, drawn by the hash of their id.
    """

    def __init__(self, source: Source, keep: float):
        self.source, self.keep = source, keep
        self.kept, self.dropped = array("Q"), array("Q")  # of passage ids
        self.documents = array("Q")  # of ids of documents that are not one passage with the same id
        self.exact, self.normalised = array("Q"), array("Q")  # of texts
        self.counts = {"documents": 0, "passages": 0, "titled_passages": 0, "empty_passages": 0, "words": 0}
        self.document, self.position, self.keeping = "", -1, True

    def passages(self) -> Iterator[Passage]:
        """Yield the passages that are kept.

        Raises:
            Refusal: an id is empty or holds white space, a position does not grow within its document, an id occurs
                twice, a document is interrupted by another, or nothing is kept.
        """
        for passage in self.source.passages():
            refuse_id(passage.passage_id, "passage id", passage.origin, passage.row)
            self._place(passage)
            (self.kept if self.keeping else self.dropped).append(digest(passage.passage_id))
            if self.keeping:
                self._count(passage)
                yield passage
        self._refuse_repeats()

    def missing(self, names: list[str]) -> list[bool]:
        """Whether each passage id belongs to no passage of the source."""
        return [not here for here in _among(names, self.kept + self.dropped)]

    def keeps(self, names: list[str]) -> list[bool]:
        """Whether each passage id belongs to a passage that is kept."""
        return _among(names, self.kept)

    @property
    def report(self) -> dict[str, object]:
        """Counts for the metrics. A duplicate is a passage whose text an earlier one has."""
        words = self.counts["words"] / max(len(self.kept), 1)
        repeats = {"exact": _repeats(self.exact), "normalised": _repeats(self.normalised)}
        return {
            **{name: count for name, count in self.counts.items() if name != "words"},
            "average_words": round(words, 2),
            "duplicate_passages": {kind: int(counts.sum() - len(counts)) for kind, (_, counts) in repeats.items()},
        }

    def _place(self, passage: Passage) -> None:
        """Note where the passage stands, and draw whether a new document is kept."""
        if passage.document_id == self.document:
            if passage.position <= self.position:
                found = f"column position is {passage.position}, behind {self.position} in the same document"
                raise Refusal(f"{passage.origin}: row {passage.row}: {found}")
        else:
            refuse_id(passage.document_id, "document id", passage.origin, passage.row)
            self.document = passage.document_id
            self.keeping = self.keep >= 1 or lot(self.document, "keep") < self.keep
            self.counts["documents"] += self.keeping
            if passage.document_id != passage.passage_id:
                self.documents.append(digest(self.document))
        self.position = passage.position

    def _count(self, passage: Passage) -> None:
        self.counts["passages"] += 1
        self.counts["titled_passages"] += bool(passage.title)
        self.counts["empty_passages"] += not (passage.text.strip() or passage.title.strip())
        self.counts["words"] += len(passage.text.split())
        self.exact.append(digest(passage.text))
        self.normalised.append(digest(normalised(passage.text)))

    def _refuse_repeats(self) -> None:
        """Refuse ids that occur twice; where hashes do, the source is read again to see the ids themselves."""
        self._refuse("passage id", self.kept + self.dropped, lambda passage: passage.passage_id, self.source.passages())
        starts = (next(run) for _, run in groupby(self.source.passages(), key=lambda passage: passage.document_id))
        self._refuse("document id", self.documents, lambda passage: passage.document_id, starts)

    def _refuse(self, what: str, hashes: "array[int]", name: Callable[[Passage], str], rows: Iterator[Passage]) -> None:
        suspects = set(_repeats(hashes)[0].tolist())
        first: dict[str, int] = {}
        for passage in rows if suspects else ():
            if digest(name(passage)) in suspects and first.setdefault(name(passage), passage.row) != passage.row:
                found = f"{what} {name(passage)} was already used in row {first[name(passage)]}"
                raise Refusal(f"{passage.origin}: row {passage.row}: {found}")


def _repeats(hashes: "array[int]") -> tuple[np.ndarray, np.ndarray]:
    """(hashes that occur more than once, how often each does)."""
    values, counts = np.unique(np.frombuffer(hashes, dtype=np.uint64), return_counts=True)
    return values[counts > 1], counts[counts > 1]


def _among(names: list[str], hashes: "array[int]") -> list[bool]:
    wanted = np.array([digest(name) for name in names], dtype=np.uint64)
    return [bool(here) for here in np.isin(wanted, np.frombuffer(hashes, dtype=np.uint64))]
