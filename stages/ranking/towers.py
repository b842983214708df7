"""Who reads what: one encoder for queries and passages, or one each.

A retriever's folder is its passage encoder; an encoder of the queries' own lies in ``query/`` below it. Each is a
sentence-transformers folder by itself.
"""

from pathlib import Path
from typing import Literal

from torch import Tensor, nn

from stages.artifacts.checkpoints import TextEncoder, load_encoder, write_encoder
from stages.artifacts.files import whole
from stages.artifacts.heads import new_head
from stages.artifacts.refusal import Refusal
from stages.embedding.pieces import Padded

QUERY = "query"
Tying = Literal["tied", "untied"]
Behind = Literal["none", "linear", "linear-norm"]


class Towers(nn.Module):
    """The encoder of passages and that of queries, which may be the same."""

    def __init__(self, passage: TextEncoder, query: TextEncoder | None = None):
        super().__init__()
        self.passage, self.query = passage, query or passage

    @property
    def tied(self) -> bool:
        """Whether there is one encoder only."""
        return self.query is self.passage

    def forward(self, text: Padded, asks: bool) -> Tensor:
        """[B, width] vectors of queries (``asks``) or passages."""
        vectors: Tensor = (self.query if asks else self.passage)(text.ids, text.lengths)
        return vectors


def query_folder(folder: Path | str) -> Path:
    """Where the encoder of queries is that belongs to a retriever's folder."""
    own = Path(folder) / QUERY
    return own if own.is_dir() else Path(folder)


def load_towers(folder: Path, tying: Tying, dropout: float, normalise: bool) -> Towers:
    """The towers of a model folder; untied ones start alike where the folder has but one.

    Raises:
        Refusal: the folder has two towers, and one is asked for.
    """
    if tying == "tied" and query_folder(folder) != folder:
        raise Refusal(f"{folder / QUERY}: queries have an encoder of their own here; say --towers untied")
    query = load_encoder(query_folder(folder), dropout) if tying == "untied" else None
    towers = Towers(load_encoder(folder, dropout), query)
    towers.passage.normalise = towers.query.normalise = normalise
    return towers


def add_heads(towers: Towers, behind: Behind, width: int | None, seed: int) -> None:
    """Put a new head behind every tower that has none of this kind and width yet."""
    for encoder in {id(tower): tower for tower in (towers.passage, towers.query)}.values():
        inside = int(encoder.config.hidden_size)
        head = new_head(inside, width or inside, behind == "linear-norm", seed) if behind != "none" else encoder.head
        if head is not None and (encoder.head is None or _shape(head) != _shape(encoder.head)):
            encoder.head = head


def save_towers(towers: Towers, tokenizer_from: Path, folder: Path) -> None:
    """Write the passage encoder as a model folder, the query encoder below it; whole or not at all."""
    with whole(folder) as partial:
        write_encoder(towers.passage, tokenizer_from, partial)
        if not towers.tied:
            write_encoder(towers.query, tokenizer_from, partial / QUERY)


def _shape(head: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in head.parameters()]
