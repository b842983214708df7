"""Bag of words from the ordinary pieces: no decoder at all (DupMAE, section 3.2)."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from stages.bottleneck.decoders.reading import Network, Reading, Surroundings, initialise, options
from stages.bottleneck.largest import largest_logits

if TYPE_CHECKING:
    from stages.bottleneck.recipe import Decoder
    from stages.bottleneck.views import ViewBatch


class Bag(Network):
    """Ordinary states → vocabulary → maximum over positions → the set of the text's pieces.

    Paper (Eq. 8–10): a linear unit of its own (LPU), masked positions and specials left out, every piece of the set
    once. Options ``lpu: head`` (the masked language model's logits), ``masked: true`` (masked positions too) and
    ``over: length`` (weights 1/length instead of 1/|set|) are the released code's reading.

    The loss of a text is a mean over its set where the paper writes a sum, so that it weighs like the other losses.
    """

    per = "texts"

    def __init__(self, spec: "Decoder", surroundings: Surroundings):
        super().__init__(spec, surroundings)
        self.options = options(spec, lpu="own", masked=False, over="set")
        config = surroundings.encoder.config
        self.lpu: nn.Linear | None = None
        if self.options["lpu"] == "own":
            self.lpu = nn.Linear(config.hidden_size, config.vocab_size)
            initialise(self.lpu, "normal")
            self.lpu.bias.data.copy_(surroundings.head.bias.data)

    def forward(self, reading: Reading, target: "ViewBatch") -> tuple[Tensor, Tensor | None]:
        scores = self.scores(reading, target)
        wanted, share = self.wanted(reading.clean, reading.lengths, target)
        rows = torch.arange(len(scores), device=scores.device)[:, None]
        given = scores.log_softmax(1)[rows, wanted]
        return -(given * share).sum(), None

    def scores(self, reading: Reading, target: "ViewBatch") -> Tensor:
        """[b, V] float32: μ of Eq. 8, the largest logit of every piece over the ordinary positions."""
        seen = self.seen(reading, target)
        states, lengths = reading.states[seen], seen.sum(1).tolist()
        if self.lpu is None:
            head = self.around[0].head
            return largest_logits(head.transform(states), head.matrix, head.bias, lengths)
        return largest_logits(states, self.lpu.weight, self.lpu.bias, lengths)

    def seen(self, reading: Reading, target: "ViewBatch") -> Tensor:
        """[b, L] bool: the positions that are pooled."""
        columns = torch.arange(reading.states.shape[1], device=reading.lengths.device)
        last = reading.lengths[:, None] - (0 if self.options["masked"] else 1)
        seen = (columns > 0) & (columns < last)
        return seen if self.options["masked"] else seen & ~target.hidden

    def wanted(self, clean: Tensor, lengths: Tensor, target: "ViewBatch") -> tuple[Tensor, Tensor]:
        """[b, L] pieces in order, and the weight of each: 0 on repeats, specials and padding."""
        columns = torch.arange(clean.shape[1], device=clean.device)
        real = (columns > 0) & (columns < lengths[:, None] - 1)
        pieces = torch.where(real, clean, -1).sort(1).values
        first = torch.ones_like(real)
        first[:, 1:] = pieces[:, 1:] != pieces[:, :-1]
        once = first & (pieces >= 0)
        over = once.sum(1) if self.options["over"] == "set" else lengths
        return pieces.clamp(min=0), once / over[:, None].clamp(min=1)
