"""From states to pieces: the language-modelling head, and its cross-entropy without the matrix of logits."""

import math
from typing import Any

import torch
from torch import Tensor, nn

ROWS_GPU = 8192
ROWS_CPU = 1024  # logits held at once: the gradient of the vocabulary matrix is added up once per such block …
CACHED = 256  # … while softmax runs over as many rows as stay in a CPU's cache


class LinearCrossEntropy(torch.autograd.Function):
    """Σ cross-entropy of softmax(h Wᵀ + b), its gradient computed in the forward, in blocks of rows.

    The [n, V] logits of a masked language model are its largest tensor by far; here only a block of them ever
    exists, and is multiplied back while it is at hand.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, pieces: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """[n, d], [V, d], [V], [n] → summed loss (float32) and the number of pieces guessed right.

        Args:
            pieces: [V'] the rows of weight and bias that are chosen among, all by default; labels are places in it.
        """
        kind = torch.bfloat16 if torch.is_autocast_enabled(hidden.device.type) else hidden.dtype
        rows = ROWS_GPU if hidden.is_cuda else ROWS_CPU
        cached = rows if hidden.is_cuda else CACHED
        matrix, offset, states = (part.detach() for part in (weight, bias, hidden))
        if pieces is not None:
            matrix, offset = matrix.index_select(0, pieces), offset.index_select(0, pieces)
        matrix, offset, states = matrix.to(kind), offset.to(kind), states.to(kind)
        learns = ctx.needs_input_grad[1]  # not while only new parts are trained
        grads = torch.empty_like(states), weight.new_zeros(matrix.shape if learns else 0), bias.new_zeros(len(matrix))
        loss, correct = hidden.new_zeros((), dtype=torch.float32), hidden.new_zeros((), dtype=torch.float32)
        for start in range(0, len(states), rows):
            block = states[start : start + rows]
            slopes = torch.empty(len(block), len(matrix), dtype=kind, device=hidden.device)
            for row in range(0, len(block), cached):
                part = slice(start + row, min(start + row + cached, start + len(block)))
                wanted = labels[part, None]
                chances = torch.addmm(offset, states[part], matrix.T).log_softmax(1, dtype=torch.float32)
                given = chances.gather(1, wanted)
                loss -= given.sum()
                correct += (given[:, 0] >= chances.amax(1)).sum()
                slopes[row : row + cached] = chances.exp_().scatter_add_(1, wanted, torch.full_like(given, -1.0))
            torch.mm(slopes, matrix, out=grads[0][start : start + rows])
            if learns:
                grads[1].add_(slopes.T @ block)
            grads[2].add_(slopes.sum(0, dtype=torch.float32))
        ctx.save_for_backward(*grads, pieces)
        ctx.kind, ctx.size = hidden.dtype, len(weight)
        ctx.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients that the forward found."""
        hidden, weight, bias, pieces = ctx.saved_tensors
        slope = outputs[0]
        weight, bias = (
            _spread(grad.mul_(slope), pieces, ctx.size) if grad.numel() else None for grad in (weight, bias)
        )
        return hidden.to(ctx.kind).mul_(slope), weight, bias, None, None


def _spread(grad: Tensor, pieces: Tensor | None, size: int) -> Tensor:
    """[V', ...] of the chosen rows → [V, ...] of all, zero elsewhere."""
    return grad if pieces is None else grad.new_zeros(size, *grad.shape[1:]).index_copy_(0, pieces, grad)


class VocabularyHead(nn.Module):
    """BERT's language-modelling head: transform, then the embedding matrix (tied) and a bias per piece.

    Encoder and decoders share it (MASTER, section 4.1). A new one's bias is the logarithm of how often a piece occurs:
    what can be guessed without reading is known from the start. Else the encoder learns it first, as a direction that
    all its states share, and with it all vectors become alike (docs/recipes.md).

    Attributes:
        pieces: [V'] the pieces that a loss chooses among, ascending; the others never occur in the corpus, and a
            softmax over them too would only cost time.
    """

    pieces: Tensor
    place: Tensor

    def __init__(self, config: Any, embeddings: nn.Embedding, counts: Tensor | None = None):
        """Args:
        counts: [V] how often each piece occurs in the corpus; all alike by default.
        """
        super().__init__()
        from transformers.models.bert.modeling_bert import BertPredictionHeadTransform

        self.transform = BertPredictionHeadTransform(config)
        counts = torch.ones(config.vocab_size) if counts is None else counts
        self.bias = nn.Parameter(((counts + 0.5) / counts.sum()).log())  # a half: another corpus may have the rest
        self.tied = (embeddings,)  # in a tuple: the parameter belongs to the encoder
        everything, pieces = torch.arange(config.vocab_size), counts.nonzero()[:, 0]
        self.register_buffer("pieces", pieces, persistent=False)
        self.register_buffer("place", torch.zeros_like(everything).scatter(0, pieces, torch.arange(len(pieces))), False)

    def loss(self, states: Tensor, labels: Tensor, plain: bool = False) -> tuple[Tensor, Tensor]:
        """[n, d] states, [n] pieces of the corpus → summed cross-entropy, pieces guessed right.

        Args:
            plain: states meet the embedding matrix as they are, without transform.
        """
        hidden = states if plain else self.transform(states)
        few, labels = (self.pieces, self.place[labels]) if self.chooses else (None, labels)
        outcome: tuple[Tensor, Tensor] = LinearCrossEntropy.apply(hidden, self.matrix, self.bias, labels, few)  # type: ignore[no-untyped-call]
        return outcome

    def logits(self, states: Tensor) -> Tensor:
        """[..., d] → [..., V'] of `pieces`, where all of them are really wanted."""
        hidden = self.transform(states)
        if not self.chooses:
            return nn.functional.linear(hidden, self.matrix, self.bias)
        return nn.functional.linear(hidden, *(part.index_select(0, self.pieces) for part in (self.matrix, self.bias)))

    @property
    def matrix(self) -> Tensor:
        """[V, d]: the encoder's embeddings."""
        return self.tied[0].weight

    @property
    def chooses(self) -> bool:
        """Whether there are fewer pieces to choose among than the vocabulary has."""
        return len(self.pieces) < len(self.place)


class ReplacementHead(nn.Module):
    """Whether a piece was replaced: dense, activation, one logit (ELECTRA, section 2; SimLM's Enc-Dec RTD)."""

    def __init__(self, config: Any):
        super().__init__()
        from transformers.activations import ACT2FN

        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.out = nn.Linear(config.hidden_size, 1)

    def expect(self, share: float) -> None:
        """Begin with this chance of a replacement, for the reason that `VocabularyHead` begins with frequencies."""
        nn.init.constant_(self.out.bias, math.log(share / (1 - share)))

    def loss(self, states: Tensor, replaced: Tensor) -> tuple[Tensor, Tensor]:
        """[n, d] states, [n] bool → summed binary cross-entropy, pieces judged right."""
        logits = self.out(self.activation(self.dense(states)))[:, 0].float()
        loss = nn.functional.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="sum")
        return loss, ((logits > 0) == replaced).sum()
