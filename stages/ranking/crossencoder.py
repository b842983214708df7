"""A cross-encoder: query and passage read together, one logit. Loads in transformers and sentence-transformers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stages.artifacts.attention import NAME, registered
from stages.artifacts.checkpoints import Vocabulary, copy_tokenizer, quiet
from stages.artifacts.files import refuse_missing, whole
from stages.artifacts.lastlayer import read_first
from stages.artifacts.names import CONFIG, WEIGHTS
from stages.artifacts.ragged import Ragged
from stages.embedding.pieces import BUDGET, Padded, chunks, lengths_of, places_in
from stages.ranking.losses import consistent, listwise
from stages.ranking.pieces import paired
from stages.ranking.sampling import Sampler
from stages.training.buckets import cut
from stages.training.loop import Observed
from stages.training.precision import Numbers, lowered
from stages.training.processes import Processes

DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "pooler_dropout",
    "cls_dropout",
)


class CrossEncoder(nn.Module):
    """A sequence classifier with one class; its logit is the score."""

    def __init__(self, classifier: nn.Module):
        super().__init__()
        self.classifier = classifier

    @property
    def config(self) -> Any:
        """The classifier's configuration."""
        return self.classifier.config

    def forward(self, pairs: Padded) -> Tensor:
        """[B] float32 scores."""
        real = torch.arange(pairs.ids.shape[1], device=pairs.ids.device) < pairs.lengths[:, None]
        ours = self.config._attn_implementation == NAME
        inputs = {"input_ids": pairs.ids, "attention_mask": real[:, None, None, :] if ours else real.long()}
        if getattr(self.config, "type_vocab_size", 0) > 1:
            inputs["token_type_ids"] = pairs.segments
        scores: Tensor = self.classifier(**inputs).logits[:, 0]
        return scores


class Exact(nn.Linear):
    """A last layer in float32 whatever runs before it: in bfloat16 many different passages would score the same."""

    def forward(self, states: Tensor) -> Tensor:
        """[…, d] → […, classes] float32."""
        with torch.autocast(states.device.type, enabled=False):
            bias = None if self.bias is None else self.bias.float()
            return nn.functional.linear(states.float(), self.weight.float(), bias)


def load_crossencoder(folder: Path | str, dropout: float = 0.0, seed: int = 0) -> CrossEncoder:
    """A cross-encoder in float32, or an encoder with a new head drawn from ``seed``.

    Raises:
        Refusal: the folder is no model folder, or its weights are not safetensors.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification, logging

    refuse_missing(Path(folder), CONFIG, WEIGHTS)
    config = AutoConfig.from_pretrained(folder, num_labels=1, local_files_only=True, trust_remote_code=False)
    for name in DROPOUTS:
        if hasattr(config, name):
            setattr(config, name, dropout)
    quiet()
    logging.set_verbosity_error()  # that the head is new is what we want
    options = {"config": config, "dtype": torch.float32, "trust_remote_code": False, "use_safetensors": True}
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True, **options)
    if model._supports_sdpa:
        model.set_attn_implementation(registered())
        read_first(model)
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    last.__class__ = Exact  # the same parameters under the same names
    return CrossEncoder(model)


def for_inference(folder: Path | str, precision: Numbers, device: torch.device) -> CrossEncoder:
    """A cross-encoder that scores in a precision."""
    return lowered(load_crossencoder(folder), precision, device).to(device).eval()


def save_crossencoder(model: CrossEncoder, tokenizer_from: Path | str, folder: Path | str) -> None:
    """Write the classifier as a model folder, whole or not at all."""
    with whole(folder) as partial:
        model.classifier.save_pretrained(partial)  # type: ignore[operator]
        copy_tokenizer(tokenizer_from, partial)


@dataclass(frozen=True)
class Pairs:
    """Everything needed to read pairs: pieces of all queries and passages, and where they are cut."""

    queries: Ragged
    passages: Ragged
    vocabulary: Vocabulary
    longest: int
    longest_query: int

    def padded(self, queries: np.ndarray, passages: np.ndarray) -> Padded:
        """``[CLS] query [SEP] passage [SEP]`` of rows of queries and passages."""
        texts = self.queries.take(queries), self.passages.take(passages, self.longest)
        return paired(*texts, self.vocabulary, self.longest, self.longest_query)

    def lengths(self, queries: np.ndarray, passages: np.ndarray) -> np.ndarray:
        """[n] pieces of each pair."""
        query = lengths_of(self.queries, queries, self.longest_query - 2)
        lengths: np.ndarray = np.minimum(query + lengths_of(self.passages, passages, self.longest) + 3, self.longest)
        return lengths


def _rows(pairs: Padded, kept: Tensor) -> Padded:
    return Padded(pairs.ids[kept], pairs.lengths[kept], pairs.segments[kept])


@torch.inference_mode()
def score(model: CrossEncoder, pairs: Pairs, queries: np.ndarray, passages: np.ndarray) -> np.ndarray:
    """[n] float32 scores of pairs of rows, in their order, read in batches of like length."""
    device = next(model.parameters()).device
    out = np.empty(len(queries), dtype=np.float32)
    for chunk in chunks(pairs.lengths(queries, passages), BUDGET[device.type], device):
        batch = pairs.padded(queries[chunk], passages[chunk]).to(device)
        out[chunk] = model(batch).cpu().numpy()
    return out


@dataclass(frozen=True)
class Batch:
    """Whole groups of pairs.

    Attributes:
        pairs: the pairs in chunks of like length.
        places: [N, n] where each group's pairs stand among the chunks' rows, the positive first.
        prior: [N, n] what a retriever thinks of the pairs; zeros where nobody was asked.
    """

    pairs: list[Padded]
    places: Tensor
    prior: Tensor
    counts: dict[str, int]

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        pairs = [some.to(device) for some in self.pairs]
        return Batch(pairs, self.places.to(device), self.prior.to(device), self.counts)


@dataclass(frozen=True)
class Batches:
    """Makes the micro-batches of any step.

    Attributes:
        budget: pieces in a micro-batch, padding included: as many whole groups as fit.
        chunk: pieces read in one call, padding included.
    """

    sampler: Sampler
    pairs: Pairs
    budget: int
    chunk: int
    processes: Processes

    def __call__(self, step: int) -> list[Batch]:
        """This process's micro-batches."""
        drawn = self.sampler.step(step)
        mine = np.arange(len(drawn.groups))[self.processes.rank :: self.processes.world]
        queries = self.sampler.groups.queries[drawn.groups[mine]]
        passages = drawn.passages[mine]
        n = passages.shape[1]
        lengths = self.pairs.lengths(np.repeat(queries, n), passages.ravel()).reshape(-1, n)
        longest = lengths.max(1)
        order = np.argsort(longest, kind="stable")
        rows = [order[run] for run in cut(longest[order], max(1, self.budget // n))]
        prior = np.zeros(passages.shape, np.float32) if drawn.teacher is None else drawn.teacher[mine]
        # what fills a gap has no score: it is as bad as the worst of its group
        prior = np.where(np.isnan(prior), np.nanmin(prior, axis=1, keepdims=True), prior)
        return [self._batch(queries[part], passages[part], prior[part]) for part in rows]

    def _batch(self, queries: np.ndarray, passages: np.ndarray, prior: np.ndarray) -> Batch:
        owners, rows = np.repeat(queries, passages.shape[1]), passages.ravel()
        lengths = self.pairs.lengths(owners, rows)
        parts = chunks(lengths, self.chunk, self.processes.device)
        places = places_in(parts).reshape(passages.shape)
        pairs = [self.pairs.padded(owners[part], rows[part]) for part in parts]
        counts = {"queries": len(queries), "tokens": int(lengths.sum())}
        return Batch(pairs, torch.from_numpy(places), torch.from_numpy(prior), counts)


class Reranker(nn.Module):
    """A cross-encoder in training: the positive is to be chosen from its group.

    With a ``prior``, the weight of the retriever's own scores beside the logit, the logit is a correction: what
    the retriever knows already need not be learned again.

    Attributes:
        factor: of n passages only the n / factor that a first pass without gradient scores highest are learnt from,
            the positive always among them (SimLM's released code).
        r_drop: two passes with different dropout must also agree (R-Drop; SimLM's released code).
    """

    def __init__(self, model: CrossEncoder, prior: float = 0.0, factor: int = 1, r_drop: bool = False):
        super().__init__()
        self.model, self.prior, self.factor, self.r_drop = model, prior, factor, r_drop

    def forward(self, batch: Batch, totals: dict[str, int]) -> tuple[Tensor, Observed]:
        """This micro-batch's share of the mean loss over queries."""
        batch = self.hardest(batch) if self.factor > 1 else batch
        scores = self.scores(batch)
        right = (scores.argmax(1) == 0).float().sum()
        observed: Observed = {"first in its group": (right, torch.tensor(float(len(scores))))}
        loss = listwise(scores)
        if self.r_drop:
            again = self.scores(batch)
            apart = consistent(scores, again)
            observed["consistency"] = (apart.detach(), torch.tensor(float(len(scores))))
            loss = 0.5 * (loss + listwise(again)) + apart
        return loss / totals["queries"], observed

    def scores(self, batch: Batch) -> Tensor:
        """[N, n] logits, the prior added."""
        scores = torch.cat([self.model(pairs) for pairs in batch.pairs])[batch.places]
        return scores + self.prior * batch.prior

    @torch.no_grad()
    def hardest(self, batch: Batch) -> Batch:
        """The batch with the positive and the passages that score highest without dropout, n / factor a query."""
        self.model.eval()
        scores = self.scores(batch)
        self.model.train()
        scores[:, 0] = torch.inf
        best = scores.topk(scores.shape[1] // self.factor).indices  # the positive comes first
        places = batch.places.gather(1, best)
        kept = torch.zeros(batch.places.numel(), dtype=torch.bool, device=places.device)
        kept[places.flatten()] = True
        masks = torch.split(kept, [len(pairs.ids) for pairs in batch.pairs])
        pairs = [_rows(some, mask) for some, mask in zip(batch.pairs, masks, strict=True) if mask.any()]
        return Batch(pairs, (kept.cumsum(0) - 1)[places], batch.prior.gather(1, best), batch.counts)
