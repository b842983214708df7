"""Whether a model and a table of tokens speak of the same pieces: a model from elsewhere may number others."""

import unicodedata
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from stages.artifacts.checkpoints import load_tokenizer
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Table, Tokens, rows_of

PASSAGES = 32  # that are looked at
ENOUGH = 0.5  # share of decoded words that stand in their passages; nearly all do, or hardly any


def refuse_other_pieces(model: Path | str, tokens: Path | str, passages: Path | str) -> None:
    """Raise `Refusal` where the pieces of the tokens, decoded by a model's tokenizer, do not spell the passages."""
    tokenizer = load_tokenizer(model)
    right = words = 0
    pairs = zip(_first(tokens, Tokens, "pieces"), _first(passages, Passages, "title", "text"), strict=False)
    for row, passage in pairs:
        text = _folded(f"{passage['title']} {passage['text']}")
        found = _folded(tokenizer.decode(row["pieces"])).split()
        right += sum(word in text for word in found)
        words += len(found)
    if right < ENOUGH * words:
        raise Refusal(f"{tokens}: its pieces are not those of {model}/tokenizer.json: {right} of {words} words agree")


def _first(path: Path | str, table: Table, *columns: str) -> Iterator[dict[str, Any]]:
    return islice(rows_of(batch.slice(0, PASSAGES) for batch in table.stream(path, list(columns))), PASSAGES)


def _folded(text: str) -> str:
    """Without case and accents, as many tokenizers leave a text."""
    return "".join(c for c in unicodedata.normalize("NFD", text.casefold()) if not unicodedata.combining(c))
