"""A text as a bag of pieces: the largest logit of every piece (DupMAE, Xiao et al. 2023, section 3.4).

The head that makes logits of states is the one that pre-training has left in ``heads.safetensors``: a linear unit of
its own, or the masked language model's. A retriever's folder keeps it there, and in ``bag.json`` how much of a
passage's bag is kept.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from stages.artifacts.checkpoints import TextEncoder, load_heads
from stages.artifacts.documents import read_json, write_json
from stages.artifacts.names import BAG, HEADS
from stages.artifacts.refusal import Refusal
from stages.artifacts.tensors import save_tensors

OWN = ".lpu.weight"
TRANSFORM = "head.transform."


class Bag(nn.Module):
    """States → logits of all pieces → their maxima over the ordinary positions.

    Attributes:
        kept: pieces that are kept of a passage's bag, the largest; a query's is whole.
        dense: whether the vector of the pooled states stands before the bag.
    """

    def __init__(self, transform: nn.Module, decoder: nn.Linear | None, tied: nn.Embedding, bias: Tensor, kept: int):
        super().__init__()
        self.transform, self.decoder, self.kept, self.dense = transform, decoder, kept, True
        self.tied = (tied,)  # in a tuple: the parameter belongs to the encoder
        self.bias = nn.Parameter(bias)

    @property
    def weight(self) -> Tensor:
        """[V, d]."""
        return self.decoder.weight if self.decoder is not None else self.tied[0].weight

    def forward(self, states: Tensor, lengths: Tensor, whole: bool) -> Tensor:
        """[B, L, d] states, [B] lengths (special pieces included) → [B, V] float32, zero where a piece is not kept.

        A text at a time, and checkpointed: its [L, V] logits are the most that is ever held.
        """
        rows = []
        for text, length in zip(states, lengths.tolist(), strict=True):
            ordinary = text[1 : max(length - 1, 2)]  # an empty text has its separator
            grown = torch.is_grad_enabled()
            rows.append(checkpoint(self._largest, ordinary, use_reentrant=False) if grown else self._largest(ordinary))
        bag = torch.stack(rows)
        return bag if whole else sparse(bag, self.kept)

    def _largest(self, states: Tensor) -> Tensor:
        logits = nn.functional.linear(self.transform(states), self.weight, self.bias.to(self.weight.dtype))
        return logits.amax(0).float()

    def parameters_by_name(self) -> dict[str, Tensor]:
        """What pre-training calls them."""
        if self.decoder is not None:
            return {f"decoders.bag{OWN}": self.decoder.weight, "decoders.bag.lpu.bias": self.bias}
        return {f"head.{name}": value for name, value in self.named_parameters()}

    def save(self, folder: Path) -> None:
        """Write the head and what is kept into a model folder."""
        save_tensors(folder / HEADS, self.parameters_by_name())
        write_json(folder / BAG, {"dense": self.dense, "kept": self.kept})


def sparse(bag: Tensor, kept: int) -> Tensor:
    """[B, V] → the same with all but each row's ``kept`` largest values zero."""
    best = bag.topk(kept, dim=1)
    return torch.zeros_like(bag).scatter(1, best.indices, best.values)


def has_bag(folder: Path | str) -> bool:
    """Whether a retriever's folder says that its texts are bags, too."""
    return (Path(folder) / BAG).is_file()


def load_bag(folder: Path, encoder: TextEncoder, kept: int | None = None) -> Bag:
    """The bag head in a model folder.

    Args:
        kept: pieces kept of a passage; None: as ``bag.json`` says.

    Raises:
        Refusal: the folder has no head that makes logits, or fewer pieces than are to be kept.
    """
    heads, embeddings = load_heads(folder), encoder.transformer.get_input_embeddings()  # type: ignore[operator]
    own = next((name for name in sorted(heads) if name.endswith(OWN)), None)
    stated = read_json(folder / BAG) if has_bag(folder) else {}
    kept = stated.get("kept") if kept is None else kept
    assert kept is not None, "a folder without bag.json, and nobody says what to keep"
    if kept > len(embeddings.weight):
        raise Refusal(f"--bag {kept}: the vocabulary has only {len(embeddings.weight)} pieces")
    if own is not None:
        decoder = nn.Linear(heads[own].shape[1], heads[own].shape[0], bias=False)
        decoder.weight = nn.Parameter(heads[own])
        bag = Bag(nn.Identity(), decoder, embeddings, heads[own.removesuffix("weight") + "bias"], kept)
    elif "head.bias" in heads:
        bag = Bag(_transform(encoder.config, heads), None, embeddings, heads["head.bias"], kept)
    else:
        raise Refusal(f"{folder / HEADS}: no head that makes a bag of words; pre-train with recipe dupmae")
    bag.dense = stated.get("dense", True)
    return bag


def _transform(config: Any, heads: dict[str, Tensor]) -> nn.Module:
    from transformers.models.bert.modeling_bert import BertPredictionHeadTransform

    transform: nn.Module = BertPredictionHeadTransform(config)
    names = [name for name in heads if name.startswith(TRANSFORM)]
    transform.load_state_dict({name.removeprefix(TRANSFORM): heads[name] for name in names})
    return transform
