"""What each masking strategy hides: how often frequent and rare pieces are masked (CDMAE, Figure 2)."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from stages.artifacts.checkpoints import load_tokenizer, load_vocabulary
from stages.artifacts.documents import write_json
from stages.artifacts.files import whole
from stages.bottleneck.masks import Mask
from stages.bottleneck.recipe import Recipe, View
from stages.bottleneck.texts import read_corpus
from stages.bottleneck.views import Collator, Draws
from stages.training.progress import Progress

BATCH = 256  # passages masked together


def masks(
    passages: Annotated[Path, typer.Argument(help="Passages table")],
    tokens: Annotated[Path, typer.Argument(help="Tokens table")],
    backbone: Annotated[Path, typer.Argument(help="model folder of the tokenizer")],
    keywords: Annotated[Path, typer.Argument(help="Weights table of TF-IDF")],
    salience: Annotated[Path, typer.Argument(help="Weights table of mutual information")],
    out: Annotated[Path, typer.Option(help="JSON rows for dvc plots: share hidden by frequency, a column a strategy")],
    top: Annotated[Path | None, typer.Option(help="TSV to write: the pieces that each strategy hides most")] = None,
    ratio: Annotated[float, typer.Option(min=0.01, max=0.99, help="share of the pieces hidden")] = 0.5,
    sample: Annotated[int, typer.Option(min=1, help="passages masked, at most")] = 20_000,
    longest: Annotated[int, typer.Option(min=3, help="pieces of a passage, special ones included")] = 128,
    count: Annotated[int, typer.Option(min=1, help="pieces listed a strategy")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="of sample and masks")] = 0,
) -> None:
    """Mask a sample of the corpus uniformly, by TF-IDF (MASTER) and by mutual information (CDMAE), and count."""
    strategies = {
        "random": Mask("random", ratio),
        "weighted": Mask("weighted", ratio, by="keywords"),
        "salient": Mask("salient", ratio, by="salience"),
    }
    corpus = read_corpus(passages, tokens, {"keywords": keywords, "salience": salience})
    vocabulary = load_vocabulary(backbone)
    collator = Collator(
        Recipe(encoder={name: View(mask=mask) for name, mask in strategies.items()}), corpus, vocabulary, longest
    )
    rows = np.sort(np.random.default_rng(seed).permutation(len(corpus))[:sample])
    seen, hidden = (
        np.zeros(vocabulary.size, np.int64),
        {name: np.zeros(vocabulary.size, np.int64) for name in strategies},
    )
    with Progress("masks", len(rows), "passages") as bar:
        for step, start in enumerate(range(0, len(rows), BATCH)):
            part = rows[start : start + BATCH]
            views = collator(part, Draws(seed, step, len(part), np.arange(len(part)))).views
            for name, found in hidden.items():
                view = views[f"encoder/{name}"]
                clean, masked = view.clean.numpy(), view.hidden.numpy()
                found += np.bincount(clean[masked], minlength=vocabulary.size)
            seen += np.bincount(clean.ravel(), minlength=vocabulary.size)
            bar.advance(len(part))
    seen[list(vocabulary.special)] = 0
    write_json(out, by_frequency(seen, hidden))
    if top:
        pieces = load_tokenizer(backbone)
        lines = [f"{name}\t{pieces.id_to_token(i)}\t{n}\t{m}" for name, i, n, m in _most(seen, hidden, count)]
        with whole(top) as partial:
            partial.write_text("\n".join(["strategy\tpiece\toccurrences\thidden", *lines]) + "\n", encoding="utf-8")


def by_frequency(seen: np.ndarray, hidden: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """A row for the piece of rank 1, for those of ranks 2 and 3, 4 to 7, …: what share of them each strategy hides.

    Args:
        seen: [vocabulary] occurrences of each piece.
        hidden: strategy → [vocabulary] how many of them were hidden.
    """
    order = np.argsort(-seen, kind="stable")[: np.count_nonzero(seen)]
    rows = []
    for bit in range(len(order).bit_length()):
        ids = order[2**bit - 1 : 2 ** (bit + 1) - 1]
        total = int(seen[ids].sum())
        shares = {name: float(found[ids].sum() / total) for name, found in hidden.items()}
        rows.append({"rank": 2**bit, "pieces": len(ids), "occurrences": total, **shares})
    return rows


def _most(seen: np.ndarray, hidden: dict[str, np.ndarray], count: int) -> list[tuple[str, int, int, int]]:
    """(strategy, piece, occurrences, hidden) of the pieces hidden most often."""
    return [
        (name, int(i), int(seen[i]), int(found[i]))
        for name, found in hidden.items()
        for i in np.argsort(-found, kind="stable")[:count]
        if found[i]
    ]
