"""What a decoder is given, and what it owes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stages.artifacts.checkpoints import TextEncoder
from stages.artifacts.refusal import Refusal
from stages.bottleneck.vocabulary import ReplacementHead, VocabularyHead
from stages.training.processes import Processes

if TYPE_CHECKING:
    from stages.bottleneck.recipe import Decoder
    from stages.bottleneck.views import ViewBatch


@dataclass
class Surroundings:
    """What networks share instead of owning.

    Attributes:
        encoder: its embeddings, its last layers, its shape.
        head: from states to pieces.
        teacher: the backbone as it was, frozen, where a decoder wants its vectors.
        detector: from states to whether a piece was replaced, where a view asks that.
        processes: the peers that hold the rest of the batch.
    """

    encoder: TextEncoder
    head: VocabularyHead
    teacher: TextEncoder | None = None
    detector: ReplacementHead | None = None
    processes: Processes | None = None

    def rebuild(self, states: Tensor, view: "ViewBatch", predict: str) -> tuple[Tensor, Tensor]:
        """[b, L, d] states → summed loss and hits at the places to predict."""
        chosen = states.reshape(-1, states.shape[-1])[view.places]
        if predict != "replaced":
            return self.head.loss(chosen, view.labels)
        assert self.detector is not None, "the autoencoder makes a detector where a view asks for it"
        return self.detector.loss(chosen, view.ids.reshape(-1)[view.places] != view.labels)


@dataclass
class Reading:
    """One encoder view as a decoder sees it, cut to the passages that have the decoder's text.

    Attributes:
        vector: [b, d] the bottleneck.
        states: [b, L, d] of the last layer and ``middle`` of half the depth; only designs that say so may look.
        lengths: [b] pieces of the encoder's view, specials included.
        clean: [b, L] the encoder's text before masking.
        beside: [b, d] the vector of another encoder view of the same passages, where the recipe names one.
    """

    vector: Tensor
    states: Tensor
    middle: Tensor | None
    lengths: Tensor
    clean: Tensor
    beside: Tensor | None = None


class Network(nn.Module):
    """A decoder: gives the summed loss of its view and, where pieces are guessed, how many rightly.

    Attributes:
        per: what the loss is a sum over: ``pieces`` or ``texts``.
        middle: whether it reads the encoder's middle layer.
        teacher: whether it reads the frozen backbone.
        rows: whether its view's mask is drawn for every row of a visibility matrix.
        compares: whether it needs the vector of a second encoder view.
    """

    per = "pieces"
    middle = False
    teacher = False
    rows = False
    compares = False

    def __init__(self, spec: "Decoder", surroundings: Surroundings):
        super().__init__()
        self.around = (surroundings,)  # in a tuple: shared modules are not this one's parameters
        self.predict = spec.predict

    @property
    def encoder(self) -> TextEncoder:
        """The encoder whose parts are shared."""
        return self.around[0].encoder

    def forward(self, reading: Reading, target: "ViewBatch") -> tuple[Tensor, Tensor | None]:
        """The summed loss, and the number of pieces guessed right (None where nothing is guessed)."""
        raise NotImplementedError

    def rebuild(self, states: Tensor, target: "ViewBatch") -> tuple[Tensor, Tensor]:
        """[b, L, d] states → loss and hits at the places to predict."""
        return self.around[0].rebuild(states, target, self.predict)


def options(spec: "Decoder", **defaults: Any) -> dict[str, Any]:
    """A network's own options over their defaults.

    Raises:
        Refusal: an option that the network does not have.
    """
    for key in spec.options:
        if key not in defaults:
            raise Refusal(f"recipe: options.{key}: this network has {', '.join(defaults) or 'no options'}")
    return defaults | spec.options


def visible(lengths: Tensor, width: int) -> Tensor:
    """[b] → [b, 1, 1, width] bool: real pieces, as attention wants them."""
    return (torch.arange(width, device=lengths.device) < lengths[:, None])[:, None, None, :]


def initialise(module: nn.Module, how: str, std: float = 0.02) -> None:
    """``normal``: matrices from N(0, std), biases 0 (BERT). ``torch``: as PyTorch made them."""
    if how == "normal":
        for part in module.modules():
            if isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, std=std)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
