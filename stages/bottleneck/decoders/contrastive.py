"""Two spans of one document know each other among the spans of others (coCondenser, Gao & Callan 2022, Eq. 7)."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from stages.bottleneck.decoders.reading import Network, Reading
from stages.training.processes import Processes

if TYPE_CHECKING:
    from stages.bottleneck.views import ViewBatch


class Contrastive(Network):
    """Cross-entropy of a span's sibling among all other spans, by the raw product of vectors.

    Both vectors of a pair take a turn as the query; a text's loss is the mean of the two. The other spans are those
    of this micro-batch, of every process; spans of the query's own document are no negatives. So a larger
    micro-batch (``pretrain.pieces``) is a harder task, and cutting the batch smaller changes the loss.
    """

    per = "texts"
    compares = True

    def forward(self, reading: Reading, target: "ViewBatch") -> tuple[Tensor, Tensor | None]:
        assert reading.beside is not None, "the recipe names a second view"
        spans = torch.stack([reading.vector, reading.beside], 1).float()
        peers = self.around[0].processes
        if peers is None or peers.world == 1:
            losses = contrast(spans, target.documents)
            return losses.sum(), None
        everyone, documents, mine = gathered(spans, target.documents, peers)
        losses = contrast(everyone, documents)
        # the value is this process's share; the gradient that of everyone's losses, as its vectors stand in all
        total = losses.sum()
        return losses[mine].sum().detach() + total - total.detach(), None


def contrast(spans: Tensor, documents: Tensor) -> Tensor:
    """[n, 2, d] pairs of spans, [n] the documents that they are of → [n] losses."""
    flat, document = spans.flatten(0, 1), documents.repeat_interleave(2)
    with torch.autocast(flat.device.type, enabled=False):  # products are large, and bf16 has three digits
        logits = flat @ flat.T
    columns = torch.arange(len(flat), device=flat.device)
    sibling = columns ^ 1
    own = document[:, None] == document
    own[columns, sibling] = False
    logits = logits.masked_fill(own, torch.finfo(logits.dtype).min)
    return torch.nn.functional.cross_entropy(logits, sibling, reduction="none").view(-1, 2).mean(1)


def gathered(spans: Tensor, documents: Tensor, processes: Processes) -> tuple[Tensor, Tensor, Tensor]:
    """[n, 2, d] and [n] of every process, in rank order, and which [N] bool are this one's; n may differ."""
    counts = torch.zeros(processes.world, dtype=torch.int64, device=spans.device)
    counts[processes.rank] = len(spans)
    counts = processes.total(counts)
    most = int(counts.max())
    padded = torch.cat([spans.flatten(1), spans.new_zeros(most - len(spans), spans.shape[1:].numel())])
    names = torch.cat([documents, documents.new_zeros(most - len(documents))])
    rank = torch.arange(processes.world, device=spans.device).repeat_interleave(most)
    real = torch.arange(most, device=spans.device).repeat(processes.world) < counts[rank]
    everyone = processes.gathered(padded).view(-1, *spans.shape[1:])
    return everyone[real], processes.gathered(names)[real], rank[real] == processes.rank
