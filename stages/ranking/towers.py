"""Who reads what: one encoder for queries and passages, or one each; a dense vector alone, or with a bag of words.

A retriever's folder is its passage encoder; an encoder of the queries' own lies in ``query/`` below it. Each is a
sentence-transformers folder by itself.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from stages.artifacts.checkpoints import TextEncoder, load_encoder, write_encoder
from stages.artifacts.files import whole
from stages.artifacts.heads import new_head
from stages.artifacts.names import BAG
from stages.artifacts.refusal import Refusal
from stages.embedding.pieces import Padded
from stages.ranking.bags import Bag, has_bag, load_bag
from stages.training.precision import Numbers, lowered

QUERY = "query"
Behind = Literal["none", "linear", "linear-norm"]


@dataclass(frozen=True)
class Shape:
    """What the vectors of a retriever are made of.

    Attributes:
        untied: queries have an encoder of their own.
        normalise: dense vectors have length 1.
        head: new layers behind the pooling; ``none`` leaves what is there.
        width: dimensions behind the head; 0 for no dense vector beside the bag; None: as it starts.
        bag: pieces kept of a passage's bag; 0 for none.
    """

    untied: bool = False
    normalise: bool = True
    head: Behind = "none"
    width: int | None = None
    bag: int = 0

    def refuse(self) -> None:
        """Raise `Refusal` where the parts contradict one another."""
        if self.bag and self.untied:
            raise Refusal("--bag: one encoder makes the bags of queries and passages; not with --towers untied")
        if self.bag and self.normalise:
            raise Refusal("--bag needs --similarity dot: dense and sparse products are added as they are")
        if self.width == 0 and not self.bag:
            raise Refusal("--width 0 leaves nothing without --bag")
        if self.width and self.head == "none":
            raise Refusal(f"--width {self.width} needs --head linear or linear-norm")


class Towers(nn.Module):
    """The encoder of passages and that of queries, which may be the same, and perhaps the bag beside them."""

    def __init__(self, passage: TextEncoder, query: TextEncoder | None = None, bag: Bag | None = None):
        super().__init__()
        self.passage, self.query, self.bag = passage, query or passage, bag

    @property
    def tied(self) -> bool:
        """Whether there is one encoder only."""
        return self.query is self.passage

    @property
    def dense_width(self) -> int:
        """Dimensions of the dense vector, d′."""
        return 0 if self.bag is not None and not self.bag.dense else self.passage.width

    @property
    def width(self) -> int:
        """Dimensions of what `forward` makes, the bag's included: d′ + V."""
        return self.dense_width + (0 if self.bag is None else len(self.bag.weight))

    def forward(self, text: Padded, asks: bool) -> Tensor:
        """[B, width] float32 vectors of queries (``asks``) or passages, whose bags are cut to the kept pieces."""
        encoder = self.query if asks else self.passage
        if self.bag is None:
            vectors: Tensor = encoder(text.ids, text.lengths)
            return vectors
        states = encoder.states(text.ids, text.lengths)
        parts = [encoder.finish(encoder.pool(states.float(), text.lengths))] if self.bag.dense else []
        return torch.cat([*parts, self.bag(states, text.lengths, asks)], dim=1)


def query_folder(folder: Path | str) -> Path:
    """Where the encoder of queries is that belongs to a retriever's folder."""
    own = Path(folder) / QUERY
    return own if own.is_dir() else Path(folder)


def passage_parts(folder: Path | str) -> list[Path]:
    """What the vectors of passages depend on: all of a retriever's folder but the encoder of queries."""
    return sorted(part for part in Path(folder).iterdir() if part.name != QUERY)


def load_towers(folder: Path, shape: Shape, dropout: float = 0.0, seed: int = 0) -> Towers:
    """The towers of a model folder in a shape; untied ones start alike where the folder has but one.

    Raises:
        Refusal: the folder has two towers or a bag, and the shape has not.
    """
    if query_folder(folder) != folder and not shape.untied:
        raise Refusal(f"{folder / QUERY}: queries have an encoder of their own here; say --towers untied")
    if has_bag(folder) and not shape.bag:
        raise Refusal(f"{folder / BAG}: texts have a bag of words here; say --bag")
    query = load_encoder(query_folder(folder), dropout) if shape.untied else None
    towers = Towers(load_encoder(folder, dropout), query)
    for encoder in {id(tower): tower for tower in (towers.passage, towers.query)}.values():
        encoder.normalise = shape.normalise
        _add_head(encoder, shape, seed)
        if not shape.bag:
            encoder.vectors_only()
    if shape.bag:
        towers.bag = load_bag(folder, towers.passage, shape.bag)
        if shape.width is not None:
            towers.bag.dense = shape.width > 0
    return towers


def stored_towers(folder: Path) -> Towers:
    """A retriever as its folder says that it is, in float32.

    Raises:
        Refusal: it is no model folder.
    """
    passage, asking = load_encoder(folder), query_folder(folder)
    query = None if asking == folder else load_encoder(asking)
    return Towers(passage, query, load_bag(folder, passage) if has_bag(folder) else None)


def load_for_inference(folder: Path, precision: Numbers, device: torch.device) -> Towers:
    """The one tower of a folder with a bag, which reads in a precision."""
    encoder = load_encoder(folder)
    bag = lowered(load_bag(folder, encoder), precision, device)
    lowered(encoder.transformer, precision, device)
    return Towers(encoder, None, bag).to(device).eval()


def save_towers(towers: Towers, tokenizer_from: Path, folder: Path) -> None:
    """Write the passage encoder as a model folder, the query encoder below it; whole or not at all."""
    with whole(folder) as partial:
        write_encoder(towers.passage, tokenizer_from, partial)
        if not towers.tied:
            write_encoder(towers.query, tokenizer_from, partial / QUERY)
        if towers.bag is not None:
            towers.bag.save(partial)


def save_query(encoder: TextEncoder, model: Path, folder: Path) -> None:
    """Write a copy of a retriever's folder, byte for byte, with another encoder of queries; whole or not at all."""
    with whole(folder) as partial:
        shutil.copytree(model, partial, ignore=shutil.ignore_patterns(QUERY))
        write_encoder(encoder, model, partial / QUERY)


def _add_head(encoder: TextEncoder, shape: Shape, seed: int) -> None:
    """Put a new head behind a tower that has none of this kind and width yet."""
    if shape.head == "none":
        return
    inside = int(encoder.config.hidden_size)
    head = new_head(inside, shape.width or inside, shape.head == "linear-norm", seed)
    if encoder.head is None or _sizes(head) != _sizes(encoder.head):
        encoder.head = head


def _sizes(head: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in head.parameters()]
