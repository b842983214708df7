"""``msmarco:DIR``: collection.tsv, queries.*.tsv and qrels.*.tsv, as MS MARCO's passage ranking task ships them.

https://microsoft.github.io/msmarco/Datasets. Titles are not part of it: RocketQA (Qu et al. 2021) took them from the
document collection (para.title.txt, lines ``pid title``), and where that file is there it is used.
"""

from collections.abc import Iterator
from pathlib import Path

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import SPLITS
from stages.sources.collection import Judgement, Passage, Query
from stages.sources.lines import columns, count_lines, rows
from stages.sources.tabular import judgements_of, tsv_queries

UNTITLED = "-"  # how para.title.txt writes that there is no title


class MsMarco:
    """The `Source`. ``queries.X.tsv`` belongs to ``qrels.X.tsv``; X is a split, or a split and ``.small``."""

    def __init__(self, folder: Path):
        self.collection, self.titles = folder / "collection.tsv", folder / "para.title.txt"
        self.qrels = _by_split(folder)
        self.asked = {split: path.with_name(f"queries{path.name[5:]}") for split, path in self.qrels.items()}

    def count(self) -> int:
        return count_lines(self.collection)

    def passages(self) -> Iterator[Passage]:
        titles = self._titles() if self.titles.exists() else iter(())
        row, name, title = next(titles, (0, "", ""))
        for at, line in rows(self.collection):
            passage, text = columns(line, 2, self.collection, at)
            titled = row > 0 and name == passage
            yield Passage(passage, passage, 0, title if titled else "", text, str(self.collection), at)
            if titled:
                row, name, title = next(titles, (0, "", ""))
        if row:
            raise Refusal(f"{self.titles}: row {row}: passage id {name} is unknown, or not in the collection's order")

    def queries(self) -> Iterator[Query]:
        for path in self.asked.values():
            yield from tsv_queries(path)

    def judgements(self) -> Iterator[Judgement]:
        for split, path in self.qrels.items():
            yield from judgements_of(split, path)

    def _titles(self) -> Iterator[tuple[int, str, str]]:
        """(row, passage, title) in the order of the collection, in which passages may be left out."""
        for row, line in rows(self.titles):
            name, title = columns(line, 2, self.titles, row)
            yield row, name, "" if title == UNTITLED else title


def read(rest: str, words: int) -> MsMarco:
    """The reader of ``msmarco:rest``; passages are taken as they are. Raises `Refusal` where there are no qrels."""
    return MsMarco(Path(rest))


def _by_split(folder: Path) -> dict[str, Path]:
    """The qrels of each split. Of several (qrels.dev.tsv, qrels.dev.small.tsv) the small one is the usual one."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("qrels.*.tsv")):
        split, _, part = path.name.removeprefix("qrels.").removesuffix(".tsv").partition(".")
        if split not in SPLITS or part not in ("", "small"):
            raise Refusal(f"{path}: the name says neither of {', '.join(SPLITS)}, nor one of them and small")
        if split not in found or part:
            found[split] = path
    if not found:
        raise Refusal(f"{folder}: no qrels.*.tsv is there")
    return {split: found[split] for split in SPLITS if split in found}
