"""A head on the last layer's vector and the half-depth layer's other states (Condenser, Gao & Callan 2021)."""

from typing import TYPE_CHECKING

from torch import Tensor

from stages.bottleneck.decoders.bidirectional import Bidirectional
from stages.bottleneck.decoders.reading import Reading

if TYPE_CHECKING:
    from stages.bottleneck.views import ViewBatch


class Skip(Bidirectional):
    """As `Bidirectional`, but behind the vector stand the encoder's own states of half the depth, not embeddings.

    Its view has the mask of the view that it reads (``mask: same``): those states have seen that input.
    """

    middle = True

    def embedded(self, reading: Reading, target: "ViewBatch") -> Tensor:
        """[b, L, d] states of half the depth; the first is replaced by the vector."""
        assert reading.middle is not None, "the autoencoder keeps the middle layer for those that ask"
        return reading.middle
