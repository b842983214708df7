"""A retriever in training: batches of texts, their vectors, one loss over every process's vectors."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from stages.artifacts.checkpoints import TextEncoder, Vocabulary
from stages.artifacts.ragged import Ragged
from stages.embedding.pieces import Padded, chunks, lengths_of, single
from stages.ranking.groups import Groups
from stages.ranking.losses import Denominator, contrastive, distillation
from stages.ranking.sampling import Drawn, Sampler
from stages.training.loop import Observed
from stages.training.processes import Processes

UNCACHED = 16_384  # pieces encoded in one call, padding included, where gradients are not cached


@dataclass(frozen=True)
class Batch:
    """This process's texts, and what is known of the whole batch.

    Attributes:
        texts: different texts in chunks of like length.
        queries: [N/world] where each query's vector stands among the chunks' vectors.
        passages: [N·n/world] where each passage's vector stands.
        allowed: [N, N·n] bool: which passages are no positive of the query other than its own one.
        teacher: [N, n] scores, or None.
    """

    texts: list[Padded]
    queries: Tensor
    passages: Tensor
    allowed: Tensor
    teacher: Tensor | None
    counts: dict[str, int]

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        teacher = None if self.teacher is None else self.teacher.to(device)
        texts = [text.to(device) for text in self.texts]
        places = self.queries.to(device), self.passages.to(device)
        return Batch(texts, *places, self.allowed.to(device), teacher, self.counts)


@dataclass(frozen=True)
class Batches:
    """Makes the batch of any step; texts that occur twice are encoded once.

    Attributes:
        queries: pieces of all queries; passages: of all passages.
        chunk: pieces encoded at once, padding included.
    """

    sampler: Sampler
    queries: Ragged
    passages: Ragged
    vocabulary: Vocabulary
    longest_query: int
    longest: int
    chunk: int
    processes: Processes

    def __call__(self, step: int) -> list[Batch]:
        """The one micro-batch of a step."""
        drawn = self.sampler.step(step)
        share = len(drawn.groups) // self.processes.world
        mine = slice(self.processes.rank * share, (self.processes.rank + 1) * share)
        queries, query_of = np.unique(self.sampler.groups.queries[drawn.groups[mine]], return_inverse=True)
        passages, passage_of = np.unique(drawn.passages[mine], return_inverse=True)
        texts, place = self._texts(queries, passages)
        tokens = sum(int(text.lengths.sum()) for text in texts)
        return [
            Batch(
                texts,
                torch.from_numpy(place[query_of]),
                torch.from_numpy(place[len(queries) + passage_of.ravel()]),
                torch.from_numpy(allowed(self.sampler.groups, drawn)),
                None if drawn.teacher is None else torch.from_numpy(drawn.teacher),
                {"queries": share, "tokens": tokens, "filled": drawn.filled if self.processes.first else 0},
            )
        ]

    def _texts(self, queries: np.ndarray, passages: np.ndarray) -> tuple[list[Padded], np.ndarray]:
        """Chunks of different texts, and the place of each (queries, then passages) among the chunks' rows."""
        texts, places, done = [], [], 0
        for pieces, rows, longest in (
            (self.queries, queries, self.longest_query),
            (self.passages, passages, self.longest),
        ):
            lengths = lengths_of(pieces, rows, longest - 2) + 2
            place = np.empty(len(rows), dtype=np.int64)
            for chunk in chunks(lengths, self.chunk):
                texts.append(single(pieces, rows[chunk], self.vocabulary, longest))
                place[chunk] = done + np.arange(len(chunk))
                done += len(chunk)
            places.append(place)
        return texts, np.concatenate(places)


def allowed(groups: Groups, drawn: Drawn) -> np.ndarray:
    """[N, N·n] bool: false where a passage is a positive of the query (by id or text), save its own one."""
    names = groups.same[drawn.passages.ravel()]
    out = np.ones((len(drawn.groups), len(names)), dtype=bool)
    for i, group in enumerate(drawn.groups):
        first, last = groups.positives.offsets[group : group + 2]
        out[i] = ~np.isin(names, groups.same[groups.positives.values[first:last]])
        out[i, i * drawn.passages.shape[1]] = True
    return out


class Retriever(nn.Module):
    """The shared encoder of queries and passages, and the loss of a batch.

    Attributes:
        scale: 1/τ.
        alpha: weight of the contrastive loss beside a distillation loss.
        cached: recompute every chunk's activations in the backward pass (gradient caching, Gao et al. 2021): the
            same gradients, and memory for one chunk instead of the batch.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        processes: Processes,
        scale: float,
        denominator: Denominator = "eq3",
        alpha: float = 0.2,
        cached: bool = False,
    ):
        super().__init__()
        self.encoder, self.processes, self.scale = encoder, processes, scale
        self.denominator, self.alpha, self.cached = denominator, alpha, cached

    def forward(self, batch: Batch, totals: dict[str, int]) -> tuple[Tensor, Observed]:
        """This process's share of the loss.

        Every process computes the loss of the whole batch from the gathered vectors, of which only its own rows
        carry a gradient; the sum of the processes' gradients is then that of the whole loss.
        """
        vectors = torch.cat(list(self._encoded(batch.texts)))
        q_ND = self.processes.gathered(vectors[batch.queries])
        d_MD = self.processes.gathered(vectors[batch.passages])
        with torch.autocast(q_ND.device.type, enabled=False):  # 1/τ = 50 would magnify bfloat16's rounding
            loss, observed = self._loss(q_ND, d_MD, batch)
        share = loss.detach() / self.processes.world
        return loss - loss.detach() + share, observed | _counted(batch, totals)

    def _encoded(self, texts: list[Padded]) -> Iterator[Tensor]:
        for text in texts:
            if self.cached and torch.is_grad_enabled():
                yield checkpoint(self.encoder, text.ids, text.lengths, use_reentrant=False)
            else:
                yield self.encoder(text.ids, text.lengths)

    def _loss(self, q_ND: Tensor, d_MD: Tensor, batch: Batch) -> tuple[Tensor, Observed]:
        n, one = len(d_MD) // len(q_ND), torch.ones((), device=q_ND.device)
        loss = contrastive(q_ND, d_MD, batch.allowed, self.scale, self.denominator)
        s_Nn = self.scale * torch.einsum("nd,nkd->nk", q_ND, d_MD.view(-1, n, d_MD.shape[1]))
        observed: Observed = {"contrastive": (loss.detach(), one)}
        if n > 1:
            observed["first in its group"] = ((s_Nn.argmax(1) == 0).float().sum(), one * len(s_Nn))
        if batch.teacher is not None:
            kl = distillation(s_Nn, batch.teacher)
            observed["distillation"] = (kl.detach(), one)
            loss = kl + self.alpha * loss
        return loss, observed


def _counted(batch: Batch, totals: dict[str, int]) -> Observed:
    """Negatives that a query saw, false negatives masked and gaps filled, as means over queries."""
    queries = torch.tensor(float(len(batch.allowed)))
    seen = batch.allowed.sum().cpu().float() - queries
    masked = (~batch.allowed).sum().cpu().float()
    filled = torch.tensor(float(totals["filled"]))
    return {"negatives": (seen, queries), "masked": (masked, queries), "filled": (filled, queries)}
