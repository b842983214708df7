"""How fast and how lean are the weights? Words per second and peak memory of `keywords` and `salience` as processes.

    python benchmarks/statistics.py data/tokens.parquet
    python benchmarks/statistics.py ../shared/data/boolq-wiki --backbone models/backbone --millions 1 --millions 16

The first words of the collection are taken as they are. Beyond its end the same text goes on with its chunks
of twenty words shuffled, so that word frequencies stay real and longer n-grams repeat more than they would.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer

from stages.artifacts.tables import Passages, Tokens
from stages.tokens import tokens

ROOT = Path(__file__).parents[1]
CHUNK, PASSAGE = 20, 100  # words
STAGE = """
import time
from stages.__main__ import app
app(standalone_mode=False)
print(time.process_time())
print(open("/proc/self/status").read())
"""


def measure(
    corpus: Annotated[Path, typer.Argument(help="A Tokens file, or a folder in BEIR layout (then --backbone).")],
    backbone: Annotated[Path | None, typer.Option(help="Model folder that holds tokenizer.json.")] = None,
    millions: Annotated[list[int], typer.Option(help="Sizes, in millions of words.")] = [1, 4, 16],  # noqa: B006
    memory: Annotated[float, typer.Option(help="GiB that salience may use.")] = 2.0,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each; the fastest counts.")] = 3,
) -> None:
    """Print one line per size and command."""
    with tempfile.TemporaryDirectory() as folder:
        real = corpus if corpus.is_file() else _tokenised(corpus, backbone, Path(folder))
        words = np.concatenate([lists.flatten().to_numpy() for lists in _columns(real)])
        print(f"{corpus}: {len(words):,} words; {len(os.sched_getaffinity(0))} cores")
        print(f"{'command':<10}{'words':>14}{'words/s':>14}{'seconds':>10}{'CPU s':>8}{'peak MiB':>10}")
        for size in millions:
            sized = _write(Path(folder) / f"{size}.parquet", words, size * 10**6)
            for command in (["keywords"], ["salience", "--memory", str(memory)]):
                runs = [_run([*command, str(sized), str(Path(folder) / "weights.parquet")]) for _ in range(repeats)]
                wall, cpu, peak = min(run[0] for run in runs), min(run[1] for run in runs), max(run[2] for run in runs)
                rate = size * 10**6 / wall
                print(f"{command[0]:<10}{size * 10**6:>14,}{rate:>14,.0f}{wall:>10.2f}{cpu:>8.2f}{peak:>10.0f}")


def _columns(path: Path) -> Iterator[pa.ListArray]:
    for batch in Tokens.stream(path, ["words"]):
        yield batch.column("words")


def _tokenised(beir: Path, backbone: Path | None, folder: Path) -> Path:
    if backbone is None:
        raise typer.BadParameter("a collection needs --backbone")
    with (beir / "corpus.jsonl").open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    ids = [str(i) for i in range(len(texts))]
    columns = {"passage_id": ids, "document_id": ids, "position": [0] * len(ids), "title": [""] * len(ids)}
    Passages.write(folder / "passages.parquet", {**columns, "text": texts})
    tokens(folder / "passages.parquet", backbone, folder / "tokens.parquet")
    return folder / "tokens.parquet"


def _write(path: Path, words: np.ndarray, size: int) -> Path:
    """A Tokens file of ``size`` words in passages of a hundred; only its words mean anything."""
    rng, chunks = np.random.default_rng(0), words[: len(words) // CHUNK * CHUNK].reshape(-1, CHUNK)
    with Tokens.writer(path) as writer:
        source = words
        for start in range(0, size, len(words)):
            part = source[: min(size - start, len(words)) // PASSAGE * PASSAGE]
            offsets = pa.array(np.arange(0, len(part) + 1, PASSAGE), pa.int32())
            lists = pa.ListArray.from_arrays(offsets, part)
            places = pa.ListArray.from_arrays(offsets, np.tile(np.arange(PASSAGE, dtype=np.int16), len(lists)))
            ids = pa.array([f"{start}-{i}" for i in range(len(lists))])
            writer.write({"passage_id": ids, "pieces": lists, "words": lists, "word_of_piece": places})
            source = chunks[rng.permutation(len(chunks))].ravel()
    return path


def _run(command: list[str]) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak MiB of one stage, its start included."""
    began = time.monotonic()
    stage = [sys.executable, "-c", STAGE, *command]
    done = subprocess.run(stage, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    cpu, status = done.stdout.split("\n", 1)
    # not getrusage's ru_maxrss: that starts at what the parent held when it forked
    return time.monotonic() - began, float(cpu), int(status.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    typer.run(measure)
