"""Enhanced decoding: every piece is rebuilt from a context of its own (RetroMAE; DupMAE, section 3.1, Eq. 2-5)."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stages.artifacts.attention import attend
from stages.artifacts.refusal import Refusal
from stages.bottleneck.decoders.bidirectional import bottleneck, layers
from stages.bottleneck.decoders.reading import Network, Reading, Surroundings, options

if TYPE_CHECKING:
    from stages.bottleneck.recipe import Decoder
    from stages.bottleneck.views import ViewBatch


class Enhanced(Network):
    """One layer, two streams: queries are vector + position, keys and values the vector and the clean text.

    ``target.visible`` says what a row may look at (see `visibility`): never the piece that it rebuilds.

    Options:
        rows: ``own`` (a mask for every row) or ``pool`` (rows draw from min(L, 256) masks: the released code).
        queries: ``sum`` (vector + position, Eq. 2) or ``embedded`` (the whole embedding layer on the vector, with
            type, norm and dropout: DupMAE's released code).
    """

    rows = True

    def __init__(self, spec: "Decoder", surroundings: Surroundings):
        super().__init__(spec, surroundings)
        if spec.layers != 1:
            raise Refusal(f"recipe: layers: {spec.layers}: `network: enhanced` has one layer")
        self.options = options(spec, rows="own", queries="sum")
        self.layer: Any = layers(spec, surroundings)[0]
        self.bottleneck = bottleneck(spec, surroundings.encoder.config.hidden_size)

    def forward(self, reading: Reading, target: "ViewBatch") -> tuple[Tensor, Tensor | None]:
        return self.rebuild(self.states(reading, target), target)

    def states(self, reading: Reading, target: "ViewBatch") -> Tensor:
        """[b, L, d]: row i from the vector and what i may look at."""
        assert target.visible is not None, "collation draws a matrix for networks that ask"
        vector = self.bottleneck(reading.vector)
        context = self.encoder.transformer.embeddings(input_ids=target.clean)  # type: ignore[operator]
        context = torch.cat([vector[:, None].to(context.dtype), context[:, 1:]], 1)
        queries = self.queries(vector, context.shape[1]).to(context.dtype)
        inner = self.layer.attention.self
        shape = (*context.shape[:2], inner.num_attention_heads, inner.attention_head_size)
        query, key, value = (
            project(states).view(shape).transpose(1, 2)
            for project, states in ((inner.query, queries), (inner.key, context), (inner.value, context))
        )
        dropout = inner.dropout.p if self.training else 0.0
        mixed, _ = attend(inner, query, key, value, target.visible[:, None], dropout, inner.scaling)
        attended = self.layer.attention.output(mixed.flatten(2), queries)
        states: Tensor = self.layer.output(self.layer.intermediate(attended), attended)
        return states

    def queries(self, vector: Tensor, width: int) -> Tensor:
        """[b, d] → [b, L, d], the same vector at every position."""
        embeddings: Any = self.encoder.transformer.embeddings
        repeated = vector[:, None].expand(-1, width, -1)
        if self.options["queries"] == "embedded":
            embedded: Tensor = embeddings(inputs_embeds=repeated)
            return embedded
        positions: Tensor = embeddings.position_embeddings.weight
        return repeated + positions[:width]
