"""How long does a mask take? Milliseconds of CPU per example on one core, beside transformers' own collator.

    python benchmarks/masking.py data models/backbone --out masking.json

Texts are passages of the collection cut to one length. *mask* is the choice of words alone, noise included: what the
papers' tables time. *collated* is everything from row numbers to tensors: texts looked up, masked, filled, framed and
padded; what transformers' collator does too, though from lists of ids. Every repeat runs each of them once.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from stages.artifacts.checkpoints import load_vocabulary
from stages.artifacts.documents import write_json
from stages.artifacts.refusal import Refusal
from stages.bottleneck.masks import Mask, Words, draw
from stages.bottleneck.recipe import Decoder, Recipe, View
from stages.bottleneck.texts import Corpus, read_corpus
from stages.bottleneck.views import Collator, Draws
from stages.bottleneck.visibility import SPECIALS, Text, visibility
from stages.training.memory import keep

MASKS = {
    "uniform, pieces": Mask("random", 0.3, unit="piece"),
    "uniform, whole words": Mask("random", 0.3),
    "weighted by keywords": Mask("weighted", 0.5, by="keywords"),
    "salience": Mask("salient", 0.3, by="salience"),
    "superset of the encoder's": Mask("superset", 0.5),
    "a mask for every row": Mask("random", 0.5),
}
DECODERS = {
    "superset of the encoder's": Decoder(mask=MASKS["superset of the encoder's"]),
    "a mask for every row": Decoder(
        mask=MASKS["a mask for every row"], network="enhanced", layers=1, fill="keep", predict="all"
    ),
}
THEIRS = "transformers' collator"
ELSEWHERE = {
    "CDMAE, Table 6 (n = 150)": {"uniform": 0.4, "RetroMAE's row masks": 11.6, "salience": 1.1},
    "released code on one core of a two-core machine": {
        "SimLM's collator": 0.57,
        "MASTER's collator": 1.46,
        "RetroMAE's collator": 16.2,
    },
}
Times = dict[str, list[float]]


def measure(
    data: Annotated[Path, typer.Argument(help="Folder with passages, tokens, keywords and salience tables.")],
    backbone: Annotated[Path, typer.Argument(help="Model folder that holds the tokenizer.")],
    length: Annotated[int, typer.Option(min=2, help="Pieces of every text, without special ones.")] = 150,
    batch: Annotated[int, typer.Option(min=1, help="Texts masked at once.")] = 128,
    repeats: Annotated[int, typer.Option(min=1, help="Times that each is run.")] = 50,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    """Print a table in Markdown."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    keep()  # as pre-training does
    tables = {name: data / f"{name}.parquet" for name in ("keywords", "salience")}
    corpus = read_corpus(data / "passages.parquet", data / "tokens.parquet", tables)
    rows = np.flatnonzero(corpus.passages.pieces.lengths >= length)
    if not len(rows):
        raise Refusal(f"{data}/tokens.parquet: no passage has {length} pieces")
    runs = timed(corpus, np.resize(rows, batch), backbone, length, repeats)
    found = {name: told(times, batch) for name, times in runs.items()}
    print(table(found, length, batch, repeats))
    if out:
        write_json(out, {"ms per example": found, "elsewhere": ELSEWHERE})


def timed(corpus: Corpus, rows: np.ndarray, backbone: Path, length: int, repeats: int) -> dict[str, Times]:
    """CPU seconds of every repeat, by name and by ``mask`` or ``collated``; repeats are interleaved."""
    jobs: dict[tuple[str, str], Callable[[int], Any]] = {(THEIRS, "collated"): theirs(corpus, rows, backbone, length)}
    for name, mask in MASKS.items():
        recipe = Recipe({"passage": View(mask=MASKS["uniform, whole words"] if name in DECODERS else mask)})
        decoders = {"passage": DECODERS[name]} if name in DECODERS else {}
        collate = Collator(Recipe(recipe.encoder, decoders), corpus, load_vocabulary(backbone), length + SPECIALS)
        jobs[name, "mask"] = alone(collate, mask, rows, by_row="row" in name)
        jobs[name, "collated"] = collated(collate, rows)
    runs: dict[str, Times] = {name: {} for name, _ in jobs}
    for repeat in range(-1, repeats):  # the first is not counted: caches are cold
        for (name, part), job in jobs.items():
            began = time.process_time()
            job(repeat + 1)
            if repeat >= 0:
                runs[name].setdefault(part, []).append(time.process_time() - began)
    return runs


def alone(collate: Collator, mask: Mask, rows: np.ndarray, by_row: bool) -> Callable[[int], Any]:
    """The choice of words, of texts that are looked up already."""
    view = View(mask=mask)
    stretch = collate.stretch(view, rows, Draws(0, 0, len(rows), np.arange(len(rows))))
    ids, word = collate.padded(stretch)
    word, sizes = collate.words(view, word)
    weights = collate.weights(view, stretch, word, sizes)
    hidden = np.random.default_rng(0).random(sizes.shape) < 0.3 if mask.strategy == "superset" else None
    fixed = np.zeros(ids.shape[1], dtype=bool)

    def words(step: int) -> np.ndarray:
        draws = Draws(0, step, len(rows), np.arange(len(rows)))
        noise = lambda kind: draws.make(kind, kind, sizes.shape[1], collate.longest)  # noqa: E731
        return draw(mask, Words(sizes, noise, weights, hidden))

    def by_rows(step: int) -> list[np.ndarray]:
        draws = Draws(0, step, len(rows), np.arange(len(rows)))
        return list(
            visibility(mask, [Text(one, fixed, None, draws.generator("rows", i)) for i, one in enumerate(word)])
        )

    return by_rows if by_row else words


def collated(collate: Collator, rows: np.ndarray) -> Callable[[int], Any]:
    """Row numbers → tensors."""
    return lambda step: collate(rows, Draws(0, step, len(rows), np.arange(len(rows))))


def theirs(corpus: Corpus, rows: np.ndarray, backbone: Path, length: int) -> Callable[[int], Any]:
    """Lists of ids → tensors by `DataCollatorForLanguageModeling`: pieces, not whole words, at 30 %."""
    from transformers import AutoTokenizer, DataCollatorForLanguageModeling

    tokenizer = AutoTokenizer.from_pretrained(backbone, local_files_only=True)
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3, seed=0)
    texts = corpus.passages.pieces.take(rows, length)
    examples = [
        {"input_ids": [tokenizer.cls_token_id, *ids.tolist(), tokenizer.sep_token_id]}
        for ids in np.split(texts.values, texts.offsets[1:-1])
    ]
    for example in examples:  # as a data set that was prepared for it has it
        example["special_tokens_mask"] = [1, *[0] * length, 1]
    return lambda step: collate([dict(example) for example in examples])


def told(times: Times, batch: int) -> dict[str, dict[str, float]]:
    """Milliseconds per example: the fastest run and the median."""
    return {
        part: {"min": 1000 * min(seconds) / batch, "median": 1000 * float(np.median(seconds)) / batch}
        for part, seconds in times.items()
    }


def table(found: dict[str, dict[str, dict[str, float]]], length: int, batch: int, repeats: int) -> str:
    """Markdown."""
    lines = [
        f"n = {length}, batch {batch}, one core, {repeats} repeats; ms of CPU per example, min (median)",
        "",
        "| mask | mask | collated |",
        "|---|---:|---:|",
    ]
    for name, parts in found.items():
        cells = [
            f"{parts[p]['min']:.4f} ({parts[p]['median']:.4f})" if p in parts else "" for p in ("mask", "collated")
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for source, values in ELSEWHERE.items():
        lines += ["", f"{source}: " + ", ".join(f"{name} {value}" for name, value in values.items())]
    return "\n".join(lines)


if __name__ == "__main__":
    typer.run(measure)
