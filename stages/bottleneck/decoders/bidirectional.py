"""A shallow bidirectional transformer whose first input is the vector (MASTER, section 4.1; SimLM, section 3.1)."""

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from stages.bottleneck.decoders.reading import Network, Reading, Surroundings, initialise, visible

if TYPE_CHECKING:
    from stages.bottleneck.recipe import Decoder
    from stages.bottleneck.views import ViewBatch


def layers(spec: "Decoder", surroundings: Surroundings) -> nn.ModuleList:
    """``spec.layers`` layers of the encoder's kind: new, or copies of its last ones (``init: last``)."""
    from transformers.models.bert.modeling_bert import BertLayer

    own = surroundings.encoder.transformer.encoder.layer  # type: ignore[union-attr]
    if spec.init == "last":
        return nn.ModuleList(copy.deepcopy(own[-spec.layers :]))  # type: ignore[index]
    made = nn.ModuleList(BertLayer(surroundings.encoder.config, index) for index in range(spec.layers))
    initialise(made, spec.init)
    return made


def bottleneck(spec: "Decoder", width: int) -> nn.Module:
    """What stands between the vector and the decoder: nothing, or a linear map (CDMAE, section 3.3)."""
    if spec.bottleneck == "identity":
        return nn.Identity()
    map_ = nn.Linear(width, width)
    initialise(map_, "normal")
    return map_


class Bidirectional(Network):
    """Slot 0 holds the vector in place of [CLS]'s embedding; every state may look at every other."""

    def __init__(self, spec: "Decoder", surroundings: Surroundings):
        super().__init__(spec, surroundings)
        self.layers = layers(spec, surroundings)
        self.bottleneck = bottleneck(spec, surroundings.encoder.config.hidden_size)

    def states(self, reading: Reading, target: "ViewBatch") -> Tensor:
        """[b, L, d] of the last layer."""
        embedded = self.embedded(reading, target)
        slot = self.bottleneck(reading.vector).to(embedded.dtype)
        states = torch.cat([slot[:, None], embedded[:, 1:]], 1)
        mask = visible(target.lengths, states.shape[1])
        for layer in self.layers:
            states = layer(states, mask)
        return states

    def embedded(self, reading: Reading, target: "ViewBatch") -> Tensor:
        """[b, L, d] what stands behind the vector: the embedding layer's output, positions and norm included."""
        embedded: Tensor = self.encoder.transformer.embeddings(input_ids=target.ids)  # type: ignore[operator]
        return embedded

    def forward(self, reading: Reading, target: "ViewBatch") -> tuple[Tensor, Tensor | None]:
        return self.rebuild(self.states(reading, target), target)
