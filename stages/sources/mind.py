"""``mind:DIR``: news.tsv and behaviors.tsv, as MIND ships them (Wu et al. 2020, https://msnews.github.io).

DIR holds both files, or a folder for each split whose name says train, dev or test (MINDsmall_train, MINDsmall_dev); a
folder that says none is test. An impression is a query: the titles that its user has read, the newest first, so that
what is cut off is the oldest. Its candidates are its judgements, 1 where clicked and 0 where not. A user who has read
nothing asks `NOTHING`. A passage is a news article: title and abstract.
"""

from collections.abc import Iterator
from pathlib import Path

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import SPLITS
from stages.sources.collection import Judgement, Passage, Query
from stages.sources.lines import columns, count_lines, rows

NEWEST = 50  # titles of a history; 512 pieces hold about 40
NOTHING = "-"


class Mind:
    """The `Source`."""

    def __init__(self, folder: Path):
        self.folders = _folders(folder)

    def count(self) -> int:
        return max(count_lines(folder / "news.tsv") for folder in self.folders.values())

    def passages(self) -> Iterator[Passage]:
        seen: set[str] = set()
        for folder in self.folders.values():
            path = folder / "news.tsv"
            for row, line in rows(path):
                name, _, _, title, abstract, *_ = columns(line, 8, path, row)
                if name not in seen or folder is next(iter(self.folders.values())):
                    yield Passage(name, name, 0, title, abstract, str(path), row)
                seen.add(name)

    def queries(self) -> Iterator[Query]:
        titles = {passage.passage_id: passage.title for passage in self.passages()}
        for split, path, row, name, history, _ in self._impressions():
            read = [titles[news] for news in reversed(history.split()[-NEWEST:]) if news in titles]
            yield Query(f"{split}-{name}", " ".join(read).strip() or NOTHING, str(path), row)

    def judgements(self) -> Iterator[Judgement]:
        for split, path, row, name, _, candidates in self._impressions():
            for candidate in candidates.split():
                news, dash, clicked = candidate.rpartition("-")
                if not dash or clicked not in ("0", "1"):
                    raise Refusal(f"{path}: row {row}: column impressions: {candidate!r} does not end in -0 or -1")
                yield Judgement(split, f"{split}-{name}", news, int(clicked), str(path), row)

    def _impressions(self) -> Iterator[tuple[str, Path, int, str, str, str]]:
        for split, folder in self.folders.items():
            path = folder / "behaviors.tsv"
            for row, line in rows(path):
                name, _, _, history, candidates = columns(line, 5, path, row)
                yield split, path, row, name, history, candidates


def read(rest: str, words: int) -> Mind:
    """The reader of ``mind:rest``; articles are taken as they are. Raises `Refusal` where there are no impressions."""
    return Mind(Path(rest))


def _folders(folder: Path) -> dict[str, Path]:
    """{split: its folder}, in the order of the splits."""
    here = [folder] if (folder / "behaviors.tsv").exists() else sorted(p.parent for p in folder.glob("*/behaviors.tsv"))
    found: dict[str, Path] = {}
    for one in here:
        split = next((split for split in SPLITS if split in one.name.lower()), "test")
        if split in found:
            raise Refusal(f"{one}: there is another folder of split {split}: {found[split].name}")
        found[split] = one
    if not found:
        raise Refusal(f"{folder}: no behaviors.tsv, neither here nor in a folder of it")
    return {split: found[split] for split in SPLITS if split in found}
