"""An autoregressive decoder with a short memory (SEED-Encoder, section 3.2)."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stages.artifacts.attention import attend
from stages.artifacts.refusal import Refusal
from stages.bottleneck.decoders.bidirectional import bottleneck
from stages.bottleneck.decoders.reading import Network, Reading, Surroundings, initialise, options

if TYPE_CHECKING:
    from stages.bottleneck.recipe import Decoder
    from stages.bottleneck.views import ViewBatch


class Layer(nn.Module):
    """A pre-norm layer: causal self-attention, the memory, a feed-forward net; each adds to the stream.

    Cross-attention over a memory of one vector h: softmax over one key is 1 whatever the query, so the sum is
    W_o W_v h at every position. That is what is computed; the query and key matrices would never get a gradient.
    """

    def __init__(self, config: Any):
        super().__init__()
        from transformers.activations import ACT2FN

        width = config.hidden_size
        self.heads, self.dropout = config.num_attention_heads, config.attention_probs_dropout_prob
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=config.layer_norm_eps) for _ in range(2))
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.memory = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
        self.up, self.down = nn.Linear(width, config.intermediate_size), nn.Linear(config.intermediate_size, width)
        self.activation = ACT2FN[config.hidden_act]
        self.drop = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, states: Tensor, vector: Tensor, seen: Tensor) -> Tensor:
        """[b, L, d] states, [b, d] vector, [L, L] bool → [b, L, d]."""
        b, width, d = states.shape
        parts = self.project(self.norms[0](states)).view(b, width, 3, self.heads, d // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed, _ = attend(self, query, key, value, seen[None, None], self.dropout if self.training else 0.0)
        states = states + self.drop(self.out(mixed.flatten(2)))
        states = states + self.drop(self.memory(vector))[:, None]
        wide = self.activation(self.up(self.norms[1](states)))
        out: Tensor = states + self.drop(self.down(wide))
        return out


class Causal(Network):
    """Reads the clean text up to a piece and guesses it; the vector is its only memory.

    Embedding matrix and output matrix are the encoder's, without the language-modelling transform; positions and
    norms are its own. ``predict: all`` means every piece of the text; the [SEP] behind it is not guessed.

    Options:
        span: how many pieces back a layer looks, the present one included; ``all``: any number (GPT-2).
            [CLS] at the start is always seen.
    """

    def __init__(self, spec: "Decoder", surroundings: Surroundings):
        super().__init__(spec, surroundings)
        self.span = options(spec, span=2)["span"]
        if self.span != "all" and not (isinstance(self.span, int) and self.span > 0):
            raise Refusal(f"recipe: options.span: {self.span!r} should be a whole number > 0 or 'all'")
        config = surroundings.encoder.config
        self.positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.first, self.last = (nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) for _ in range(2))
        self.layers = nn.ModuleList(Layer(config) for _ in range(spec.layers))
        self.drop = nn.Dropout(config.hidden_dropout_prob)
        initialise(self, spec.init)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.bottleneck = bottleneck(spec, config.hidden_size)

    def forward(self, reading: Reading, target: "ViewBatch") -> tuple[Tensor, Tensor | None]:
        states = self.states(reading.vector, target.clean[:, :-1])
        # the state of column t knows the text up to t and guesses t + 1
        shifted = torch.cat([states[:, :1], states], 1).reshape(-1, states.shape[-1])
        return self.around[0].head.loss(shifted[target.places], target.labels, plain=True)

    def states(self, vector: Tensor, ids: Tensor) -> Tensor:
        """[b, d] vector, [b, L] ids → [b, L, d]."""
        words = self.encoder.transformer.get_input_embeddings()(ids)  # type: ignore[operator]
        states = self.drop(self.first(words + self.positions.weight[: ids.shape[1]]))
        seen, vector = self.seen(ids.shape[1], ids.device), self.bottleneck(vector)
        for layer in self.layers:
            states = layer(states, vector, seen)
        normed: Tensor = self.last(states)
        return normed

    def seen(self, width: int, device: torch.device) -> Tensor:
        """[L, L] bool: row i sees columns i - span + 1 … i, and column 0."""
        columns = torch.arange(width, device=device)
        back = columns[:, None] - columns
        near = back < (width if self.span == "all" else self.span)
        return (back >= 0) & (near | (columns == 0))
