"""Recovers the vector that the backbone, as it was, gives the unmasked text.

MASTER's recovering of other models' outputs (section 4.2), with a vector for the output: what the backbone knew
before pre-training is one more thing that the bottleneck must hold.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from stages.bottleneck.decoders.reading import Network, Reading, Surroundings

if TYPE_CHECKING:
    from stages.bottleneck.recipe import Decoder
    from stages.bottleneck.views import ViewBatch


class Vector(Network):
    """1 − cosine between a linear map of the vector and the frozen backbone's vector of the clean text."""

    per = "texts"
    teacher = True

    def __init__(self, spec: "Decoder", surroundings: Surroundings):
        super().__init__(spec, surroundings)
        width = surroundings.encoder.config.hidden_size
        self.map = nn.Linear(width, width, bias=False)
        nn.init.eye_(self.map.weight)  # so that the vector itself, not a rotation of it, is what is recovered

    def forward(self, reading: Reading, target: "ViewBatch") -> tuple[Tensor, Tensor | None]:
        teacher = self.around[0].teacher
        assert teacher is not None, "the autoencoder gives a teacher to those that ask"
        with torch.no_grad():
            wanted = teacher(target.clean, target.lengths)
        return (1 - nn.functional.cosine_similarity(self.map(reading.vector).float(), wanted.float())).sum(), None
