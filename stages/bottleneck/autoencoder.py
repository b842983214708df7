"""The whole model: encode each view once, hand each decoder the view that it reads, sum the named losses."""

from typing import Any

import torch
from torch import Tensor, nn

from stages.artifacts.checkpoints import TextEncoder
from stages.bottleneck.decoders import NETWORKS
from stages.bottleneck.decoders.reading import Network, Reading, Surroundings, initialise
from stages.bottleneck.recipe import Recipe
from stages.bottleneck.views import MicroBatch, ViewBatch
from stages.bottleneck.vocabulary import VocabularyHead


class Autoencoder(nn.Module):
    """An encoder and the heads that a recipe trains it with.

    Attributes:
        new: names of the parameters that the backbone did not bring.
    """

    def __init__(
        self,
        recipe: Recipe,
        encoder: TextEncoder,
        heads: dict[str, Tensor],
        teacher: TextEncoder | None = None,
        pieces: Tensor | None = None,
    ):
        """Args:
        heads: parameters of a previous pre-training or of the backbone's own head, by name; those that fit are taken.
        teacher: the backbone as it was, for networks that recover its vectors.
        pieces: [V'] the pieces that occur in the corpus; all by default.
        """
        super().__init__()
        self.recipe, self.encoder = recipe, encoder
        self.head = VocabularyHead(encoder.config, encoder.transformer.get_input_embeddings(), pieces)  # type: ignore[operator]
        initialise(self.head, "normal")
        around = Surroundings(encoder, self.head, teacher)
        self.decoders = nn.ModuleDict(
            {name: NETWORKS[spec.network](spec, around) for name, spec in recipe.decoders.items()}
        )
        taken = self.take(heads)
        self.new = {name for name, _ in self.named_parameters() if not name.startswith("encoder.")} - taken

    @torch.no_grad()
    def take(self, heads: dict[str, Tensor]) -> set[str]:
        """Copy the parameters that fit by name and shape, and return their names."""
        own = dict(self.named_parameters())
        fit = {name for name, value in heads.items() if name in own and own[name].shape == value.shape}
        for name in fit:
            own[name].copy_(heads[name])
        return fit

    def heads(self) -> dict[str, Tensor]:
        """Every parameter that is not the encoder's, by name."""
        return {name: value for name, value in self.named_parameters() if not name.startswith("encoder.")}

    def forward(self, batch: MicroBatch, totals: dict[str, int]) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """This micro-batch's share of the weighted sum of mean losses, and every loss and accuracy by name."""
        readings = {name: self.read(batch.views[f"encoder/{name}"]) for name in self.recipe.encoder}
        losses: dict[str, tuple[Tensor, Tensor | None]] = {}
        for name in self.recipe.encoder:
            view = batch.views[f"encoder/{name}"]
            if len(view.labels):
                losses[f"encoder/{name}"] = self.guess(readings[name].states, view)
        for name, spec in self.recipe.decoders.items():
            target = batch.views[name]
            if len(target.rows):
                part = _part(readings[spec.reads], batch.views[f"encoder/{spec.reads}"], target)
                losses[name] = self.decoders[name](part, target)
        return self.sum(losses, batch, totals)

    def read(self, view: ViewBatch) -> Reading:
        """Encode a view."""
        wanted = any(_network(decoder).middle for decoder in self.decoders.values())
        states, middle = encode(self.encoder, view, wanted)
        return Reading(self.encoder.pool(states, view.lengths), states, middle, view.lengths, view.clean)

    def guess(self, states: Tensor, view: ViewBatch) -> tuple[Tensor, Tensor]:
        """The encoder's own masked language modelling."""
        return self.head.loss(states.reshape(-1, states.shape[-1])[view.places], view.labels)

    def sum(
        self, losses: dict[str, tuple[Tensor, Tensor | None]], batch: MicroBatch, totals: dict[str, int]
    ) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """Σ weight · loss / count over the global batch."""
        share = next(iter(losses.values()))[0] * 0 if losses else self.head.bias.sum() * 0
        observed: dict[str, tuple[Tensor, Tensor]] = {}
        for name, (loss, hits) in losses.items():
            per_text = name in self.decoders and _network(self.decoders[name]).per == "texts"
            count = f"{name}/texts" if per_text else name
            share = share + self.recipe.views()[name].weight * loss / max(totals[count], 1)
            here = torch.tensor(float(batch.counts[count]))
            observed[f"{name}/loss"] = (loss, here)
            if hits is not None:
                observed[f"{name}/accuracy"] = (hits, here)
        return share, observed


def encode(encoder: TextEncoder, view: ViewBatch, middle: bool) -> tuple[Tensor, Tensor | None]:
    """[B, L, d] states of the last layer and, if wanted, of the layer at half the depth."""
    kept: list[Tensor] = []
    if not middle:
        return encoder.states(view.ids, view.lengths), None
    layers: Any = encoder.transformer.encoder.layer  # type: ignore[union-attr]
    handle = layers[len(layers) // 2 - 1].register_forward_hook(lambda module, args, out: kept.append(out))
    try:
        return encoder.states(view.ids, view.lengths), kept[0]
    finally:
        handle.remove()


def _part(reading: Reading, read: ViewBatch, target: ViewBatch) -> Reading:
    """The rows of the encoder's view that have the decoder's text."""
    if len(target.rows) == len(read.rows):
        return reading
    rows = torch.searchsorted(read.rows, target.rows)
    middle = None if reading.middle is None else reading.middle[rows]
    return Reading(reading.vector[rows], reading.states[rows], middle, reading.lengths[rows], reading.clean[rows])


def _network(module: nn.Module) -> Network:
    assert isinstance(module, Network)
    return module
