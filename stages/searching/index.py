"""What searching needs on disk: built once, then mapped rather than read.

A folder with ``index`` (Faiss, inner products) and ``docid`` (one id a line), the two files that Pyserini's
FaissSearcher opens; ``passages.arrow``, the texts in the same order; and ``lucene``, BM25's index.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts.documents import read_json, write_json
from stages.artifacts.files import whole
from stages.artifacts.judgements import passage_ids
from stages.artifacts.ragged import read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import content_hash, fingerprint
from stages.artifacts.tables import Passages, Tokens
from stages.ranking import lexical
from stages.ranking.bags import has_bag
from stages.ranking.encoding import Vectors, Wanted, encode
from stages.ranking.towers import passage_parts
from stages.searching.texts import COLUMNS, mapped, write_texts
from stages.training.precision import Numbers
from stages.training.processes import join
from stages.training.progress import Progress

FAISS, IDS, TEXTS, LUCENE, MADE = "index", "docid", "passages.arrow", "lucene", "made.json"
BLOCK = 65_536  # vectors handed to Faiss at once


@dataclass(frozen=True)
class Source:
    """From what an index is made.

    Attributes:
        model: the retriever's folder.
        longest: pieces of a passage, special ones included.
        precision: of the encoder, as in `encode`.
    """

    model: Path
    tokens: Path
    passages: Path
    longest: int
    precision: Numbers

    def fingerprint(self) -> str:
        """Changes when anything does that an index depends on."""
        settings = {"longest": self.longest, "precision": self.precision}
        return fingerprint(settings, [*passage_parts(self.model), self.tokens, self.passages])


class Library:
    """An index, opened: vectors and texts are mapped, so that opening takes no time and little memory."""

    def __init__(self, folder: Path):
        import faiss

        self.folder = folder
        self.vectors = faiss.read_index(str(folder / FAISS), faiss.IO_FLAG_MMAP_IFC)
        self.texts = mapped(folder / TEXTS)
        self.ids = self.texts["passage_id"]

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: np.ndarray) -> list[dict[str, str]]:
        """{passage_id, title, text} of some rows, in their order."""
        found: list[dict[str, str]] = self.texts.take(pa.array(rows)).to_pylist()
        return found

    def rows(self, passage_ids: list[str]) -> np.ndarray:
        """[n] rows of some ids, by one scan of the ids: no table of them is held."""
        at = np.flatnonzero(pc.is_in(self.ids, value_set=pa.array(passage_ids, pa.string())).to_numpy())
        row_of = dict(zip(self.ids.take(pa.array(at)).to_pylist(), at.tolist(), strict=True))
        return np.array([row_of[name] for name in passage_ids], dtype=np.int64)


def opened(folder: Path, source: Source) -> Library:
    """The index of a folder, built first where it is missing or was made from something else."""
    made = folder / MADE
    if not made.is_file() or read_json(made) != {"source": source.fingerprint()}:
        build(folder, source)
    return Library(folder)


def build(folder: Path, source: Source) -> None:
    """Write the index of a corpus, whole or not at all.

    Raises:
        Refusal: the retriever ranks by more than vectors, the passages are not those of the tokens, or an id does
            not fit on a line.
    """
    if has_bag(source.model):
        raise Refusal(f"{source.model}: ranks by a bag of words too, which no vector index holds; `mine` searches it")
    ids = passage_ids(source.tokens)
    _refuse_ids(source, ids)
    pieces = read_ragged(Tokens, source.tokens, "pieces")
    wanted = Wanted(pieces, content_hash(source.tokens), source.longest, "encode passages")
    vectors = encode(source.model, wanted, source.precision, join())
    with whole(folder) as partial:
        partial.mkdir()
        write_texts(source.passages, partial / TEXTS)
        _write_vectors(vectors, partial / FAISS)
        (partial / IDS).write_text("".join(f"{name}\n" for name in ids.to_pylist()), encoding="utf-8")
        lexical.index(_contents(source.passages), partial / LUCENE)
        write_json(partial / MADE, {"source": source.fingerprint()})


def _refuse_ids(source: Source, ids: pa.Array) -> None:
    if not Passages.read(source.passages, ["passage_id"])["passage_id"].combine_chunks().equals(ids):
        raise Refusal(f"{source.passages}: passage_ids differ from those of {source.tokens}")
    broken = ids.filter(pc.match_substring_regex(ids, r"[\r\n\x0b\x0c\x85\x{2028}\x{2029}]|\s$"))
    if len(broken):
        raise Refusal(f"{source.passages}: column passage_id: {broken[0].as_py()!r} does not fit on a line")


def _write_vectors(vectors: Vectors, out: Path) -> None:
    import faiss  # after torch: both bring an OpenMP runtime

    index: Any = None
    for _, block in vectors.blocks(BLOCK):
        index = index or faiss.IndexFlatIP(block.shape[1])
        index.add(np.ascontiguousarray(block))
    faiss.write_index(index, str(out))


def _contents(passages: Path) -> Iterator[tuple[list[str], list[str]]]:
    with Progress("index", Passages.count(passages), "passages") as bar:
        for batch in Passages.stream(passages, COLUMNS):
            texts = pc.binary_join_element_wise(batch["title"], batch["text"], " ")
            yield batch["passage_id"].to_pylist(), texts.to_pylist()
            bar.advance(batch.num_rows)
