"""Texts for every passage, shard by shard: a shard is finished or absent, and depends on nothing but its number.

So an interrupted run goes on with the shards that are missing, processes share the shards among them, and the
texts are the same whoever wrote them.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from stages.artifacts.documents import read_json, write_json
from stages.artifacts.tables import Passages, Texts
from stages.generating.generators import Generator
from stages.generating.prompts import blocks, texts
from stages.generating.sampling import Sampling, sample
from stages.training.processes import Processes
from stages.training.progress import Progress

SHARD = 1024  # passages


@dataclass(frozen=True)
class Job:
    """What to write for every passage.

    Attributes:
        prompt_pieces: most pieces of a prompt, special ones included.
        batch_pieces: most pieces of the prompts and texts that are in work together.
    """

    how: Sampling
    prompt_pieces: int
    batch_pieces: int
    seed: int


@dataclass
class Counts:
    """What was written. ``distinct`` texts are told apart inside a shard, so that memory stays small."""

    passages: int = 0
    without_text: int = 0
    texts: int = 0
    distinct: int = 0
    pieces: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))

    def metrics(self) -> dict[str, float]:
        """Numbers for ``dvc metrics``."""
        return {
            "texts": self.texts,
            "mean_pieces": self.pieces / max(self.texts, 1),
            "distinct_share": self.distinct / max(self.texts, 1),
            "without_text_share": self.without_text / max(self.passages, 1),
        }


def write_shards(
    generator: Generator, passages: Path, folder: Path, job: Job, processes: Processes, size: int = SHARD
) -> float:
    """Write the shards of this process that ``folder`` lacks.

    Returns:
        Texts per second, 0 where nothing was missing.
    """
    numbers = range(processes.rank, -(-Passages.count(passages) // size), processes.world)
    missing = {number for number in numbers if not _texts(folder, number).is_file()}
    written, began = 0, time.monotonic()
    with Progress("generate", len(numbers), "shards", len(numbers) - len(missing)) as bar:
        for number, block in enumerate(blocks(passages, size)):
            if number not in missing:
                continue
            written += _write_shard(generator, block, folder, number, job).texts
            bar.advance(1, f"{written / (time.monotonic() - began):,.0f} texts/s")
    return written / (time.monotonic() - began) if written else 0.0


def join_shards(folder: Path, out: Path) -> Counts:
    """Write the rows of all shards as one table, and add up their counts."""
    counts, number = Counts(), 0
    with Texts.writer(out) as writer:
        while _texts(folder, number).is_file():
            for batch in Texts.stream(_texts(folder, number)):
                writer.write(batch)
            counts += Counts(**read_json(_counts(folder, number)))
            number += 1
    return counts


def _texts(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:06d}.parquet"


def _counts(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:06d}.json"


def _write_shard(generator: Generator, block: pa.Table, folder: Path, number: int, job: Job) -> Counts:
    count = job.how.count
    prompts = generator.pieces.prompts(texts(block), job.prompt_pieces, generator.cut)
    noise = np.random.default_rng([job.seed, number]).random((len(prompts), count, job.how.new_pieces), np.float32)
    lines = [""] * (len(prompts) * count)
    pieces = 0
    for rows in _batches(prompts.lengths, job):
        found = sample(generator, prompts.take(rows), noise[rows].reshape(-1, noise.shape[2]), job.how)
        pieces += sum(map(len, found))
        places = (rows[:, None] * count + np.arange(count)).ravel()
        for place, line in zip(places.tolist(), generator.pieces.texts(found), strict=True):
            lines[place] = line
    joined = ["\n".join(filter(None, lines[row * count :][:count])) for row in range(len(prompts))]
    some = [row for row, text in enumerate(joined) if text]
    said = [line for line in lines if line]
    counts = Counts(len(joined), len(joined) - len(some), len(said), len(set(said)), pieces)
    write_json(_counts(folder, number), asdict(counts))
    ids = block["passage_id"].take(pa.array(some, pa.int64()))
    Texts.write(_texts(folder, number), {"passage_id": ids, "text": [joined[row] for row in some]})  # last: it is done
    return counts


def _batches(lengths: np.ndarray, job: Job) -> Iterator[np.ndarray]:
    """Rows of like length together, the longest first, so that running out of memory happens at once."""
    order, start = np.argsort(-lengths, kind="stable"), 0
    while start < len(order):
        cost = int(lengths[order[start]]) + job.how.count * job.how.new_pieces
        stop = start + max(1, job.batch_pieces // cost)
        yield order[start:stop]
        start = stop
