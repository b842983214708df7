"""A retriever in training: batches of texts, their vectors, one loss over every process's vectors."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from stages.artifacts.checkpoints import Vocabulary
from stages.artifacts.ragged import Ragged
from stages.embedding.pieces import Padded, chunks, framed_lengths, places_in, single
from stages.ranking.groups import Groups
from stages.ranking.objective import Objective
from stages.ranking.sampling import Drawn, Sampler
from stages.ranking.towers import Towers
from stages.training.loop import Observed
from stages.training.processes import Processes

UNCACHED = 16_384  # pieces encoded in one call, padding included, where gradients are not cached


@dataclass(frozen=True)
class Batch:
    """This process's texts, and what is known of the whole batch.

    Attributes:
        texts: different texts in chunks of like length, queries first.
        asking: how many of the chunks are queries.
        queries: [N/world] where each query's vector stands among the chunks' vectors.
        passages: [N·n/world] where each passage's vector stands.
        allowed: [N, N·n] bool: which passages are no positive of the query other than its own one.
        teacher: [N, n] scores, or None.
    """

    texts: list[Padded]
    asking: int
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
        return Batch(texts, self.asking, *places, self.allowed.to(device), teacher, self.counts)


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
        asking, place_of_query = self._texts(self.queries, queries, self.longest_query)
        answers, place = self._texts(self.passages, passages, self.longest)
        tokens = sum(int(text.lengths.sum()) for text in asking + answers)
        return [
            Batch(
                asking + answers,
                len(asking),
                torch.from_numpy(place_of_query[query_of]),
                torch.from_numpy(len(queries) + place[passage_of.ravel()]),
                torch.from_numpy(allowed(self.sampler.groups, drawn)),
                None if drawn.teacher is None else torch.from_numpy(drawn.teacher),
                {"queries": share, "tokens": tokens, "filled": drawn.filled if self.processes.first else 0},
            )
        ]

    def _texts(self, pieces: Ragged, rows: np.ndarray, longest: int) -> tuple[list[Padded], np.ndarray]:
        """Chunks of different texts, and the place of each row among the chunks' rows."""
        parts = chunks(framed_lengths(pieces, rows, longest), self.chunk, self.processes.device)
        return [single(pieces, rows[part], self.vocabulary, longest) for part in parts], places_in(parts)


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
    """The towers in training, and the loss of a batch.

    Attributes:
        cached: recompute every chunk's activations in the backward pass (gradient caching, Gao et al. 2021): the
            same gradients, and memory for one chunk instead of the batch.
    """

    def __init__(self, towers: Towers, processes: Processes, objective: Objective, cached: bool = False):
        super().__init__()
        self.towers, self.processes, self.objective, self.cached = towers, processes, objective, cached

    def forward(self, batch: Batch, totals: dict[str, int]) -> tuple[Tensor, Observed]:
        """This process's share of the loss.

        Every process computes the loss of the whole batch from the gathered vectors, of which only its own rows
        carry a gradient; the sum of the processes' gradients is then that of the whole loss.
        """
        vectors = torch.cat(list(self._encoded(batch)))
        q_ND = self.processes.gathered(vectors[batch.queries])
        d_MD = self.processes.gathered(vectors[batch.passages])
        with torch.autocast(q_ND.device.type, enabled=False):  # 1/τ = 50 would magnify bfloat16's rounding
            loss, observed = self.objective(q_ND, d_MD, batch.allowed, batch.teacher)
        share = loss.detach() / self.processes.world
        return loss - loss.detach() + share, observed | _counted(batch, totals)

    def _encoded(self, batch: Batch) -> Iterator[Tensor]:
        for number, text in enumerate(batch.texts):
            asks = number < batch.asking
            if self.cached and torch.is_grad_enabled():
                # a tensor by itself: checkpoint keeps dropout's random state of the devices that it sees
                yield checkpoint(self._read, text.ids, text, asks, use_reentrant=False)
            else:
                yield self.towers(text, asks)

    def _read(self, _: Tensor, text: Padded, asks: bool) -> Tensor:
        vectors: Tensor = self.towers(text, asks)
        return vectors


def _counted(batch: Batch, totals: dict[str, int]) -> Observed:
    """Negatives that a query saw, false negatives masked and gaps filled, as means over queries."""
    queries = torch.tensor(float(len(batch.allowed)))
    seen = batch.allowed.sum().cpu().float() - queries
    masked = (~batch.allowed).sum().cpu().float()
    filled = torch.tensor(float(totals["filled"]))
    return {"negatives": (seen, queries), "masked": (masked, queries), "filled": (filled, queries)}
