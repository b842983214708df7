"""A masked language model whose samples replace hidden pieces (SimLM, section 3.1, after ELECTRA)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stages.artifacts.attention import registered
from stages.artifacts.checkpoints import TextEncoder, quiet
from stages.artifacts.files import whole
from stages.artifacts.refusal import Refusal
from stages.artifacts.tensors import load_tensors, save_tensors
from stages.bottleneck.autoencoder import Autoencoder
from stages.bottleneck.batches import Batches
from stages.bottleneck.masks import Mask
from stages.bottleneck.recipe import Generation, Recipe, View
from stages.bottleneck.views import ViewBatch
from stages.bottleneck.vocabulary import VocabularyHead
from stages.training.loop import Plan, train
from stages.training.processes import Processes

ROWS = 1024  # distributions over the vocabulary that are held at once


class Generator(nn.Module):
    """An encoder, and a head from its states to pieces: ``pieces``, ``logits``, ``loss`` as in `VocabularyHead`."""

    def __init__(self, encoder: TextEncoder, head: nn.Module):
        super().__init__()
        self.encoder, self.head = encoder, head

    def fill(self, view: ViewBatch, joint: bool = False) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """Write a sample over every hidden piece of the view, at temperature 1.

        A sample is read off the cumulated distribution at the view's own noise: a function of seed and step, like
        the mask itself. It may be the piece that was hidden.

        Returns:
            [b, L] the new ids; and, where the generator is trained ``joint``, its summed loss and hits at the hidden
            pieces. Nothing else of it has a gradient.
        """
        assert view.noise is not None, "collation draws noise for views that a generator fills"
        places = view.hidden.reshape(-1).nonzero()[:, 0]
        with torch.set_grad_enabled(joint and torch.is_grad_enabled()):
            states = self.encoder.states(view.ids, view.lengths)
            states = states.reshape(-1, states.shape[-1])[places]
        ids = view.ids.clone()
        ids.view(-1)[places] = self.samples(states.detach(), view.noise.reshape(-1)[places])
        if not joint:
            return ids, None
        learnt: tuple[Tensor, Tensor] = self.head.loss(states, view.clean.reshape(-1)[places])  # type: ignore[operator]
        return ids, learnt

    @torch.no_grad()
    def samples(self, states: Tensor, noise: Tensor) -> Tensor:
        """[n, d] states, [n] uniform in [0, 1) → [n] pieces."""
        found = []
        for start in range(0, len(states), ROWS):
            part, drawn = states[start : start + ROWS], noise[start : start + ROWS]
            chances = self.head.logits(part).float().softmax(1).cumsum(1)  # type: ignore[operator]
            # up to what the sum has really reached, so that rounding never points behind the last piece
            found.append(torch.searchsorted(chances, drawn[:, None] * chances[:, -1:], right=True)[:, 0])
        chosen = torch.cat(found) if found else noise.new_zeros(0, dtype=torch.int64)
        pieces: Tensor = self.head.pieces  # type: ignore[assignment]
        return pieces[chosen.clamp(max=len(pieces) - 1)]


def made(spec: Generation, config: Any, counts: Tensor | None = None) -> Generator:
    """A new generator of the backbone's kind, half as wide, that says only what ``counts`` [V] has seen."""
    from transformers.models.bert.configuration_bert import BertConfig
    from transformers.models.bert.modeling_bert import BertModel

    heads = max(config.num_attention_heads // 2, 1)
    width = config.hidden_size // config.num_attention_heads * heads
    own = BertConfig(
        vocab_size=config.vocab_size,
        hidden_size=width,
        num_hidden_layers=spec.layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=config.max_position_embeddings,
        pad_token_id=config.pad_token_id,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation=registered(),
    )
    encoder = TextEncoder(BertModel(own, add_pooling_layer=False), "cls", normalise=False)
    return Generator(encoder, VocabularyHead(own, encoder.transformer.get_input_embeddings(), counts))  # type: ignore[operator]


class CheckpointHead(nn.Module):
    """The head of a masked language model of transformers: BERT's or ELECTRA's."""

    def __init__(self, model: Any):
        super().__init__()
        if hasattr(model, "generator_lm_head"):
            self.parts = nn.Sequential(model.generator_predictions, model.generator_lm_head)
        else:
            self.parts = nn.Sequential(model.cls)
        self.register_buffer("pieces", torch.arange(model.config.vocab_size), persistent=False)

    def logits(self, states: Tensor) -> Tensor:
        """[n, d] → [n, V]."""
        scores: Tensor = self.parts(states)
        return scores

    def loss(self, states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """[n, d] states, [n] pieces → summed cross-entropy, pieces guessed right."""
        logits = self.logits(states).float()
        loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
        return loss, (logits.argmax(1) == labels).sum()


def loaded(checkpoint: str, config: Any) -> Generator:
    """A masked language model from a folder or the Hub, without dropout.

    Raises:
        Refusal: there is none, or its vocabulary is not the backbone's, or it is neither a BERT nor an ELECTRA.
    """
    from transformers import AutoModelForMaskedLM

    quiet()
    try:
        model = AutoModelForMaskedLM.from_pretrained(
            checkpoint,
            dtype=torch.float32,
            attn_implementation=registered(),
            trust_remote_code=False,
            use_safetensors=True,
            local_files_only=Path(checkpoint).is_dir(),
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise Refusal(f"recipe: generator.checkpoint: {checkpoint}: {reason}") from error
    if model.config.model_type not in ("bert", "electra"):
        raise Refusal(f"recipe: generator.checkpoint: {checkpoint}: a {model.config.model_type}, not a bert or electra")
    if model.config.vocab_size != config.vocab_size:
        sizes = f"{model.config.vocab_size} pieces, the backbone has {config.vocab_size}"
        raise Refusal(f"recipe: generator.checkpoint: {checkpoint}: {sizes}")
    return Generator(TextEncoder(model.base_model, "cls", normalise=False), CheckpointHead(model))


def prepared(
    recipe: Recipe,
    encoder: TextEncoder,
    counts: Tensor,
    batches: Batches,
    plan: Plan,
    processes: Processes,
    state: Path,
) -> Generator | None:
    """The masked language model that the recipe samples from: loaded, or made and trained on the corpus first.

    Args:
        counts: [V] of the corpus' pieces: what never occurs, one of our own neither learns nor says.
        state: the run's folder; the training of the generator is resumed there too, and what it became kept.
    """
    spec = recipe.generator
    if spec is None:
        return None
    if spec.checkpoint:
        return loaded(spec.checkpoint, encoder.config).to(processes.device).eval()
    torch.manual_seed(plan.seed)
    generator = made(spec, encoder.config, counts).to(processes.device)
    kept = state / "generator.safetensors"
    if spec.steps and kept.is_file():
        generator.load_state_dict(load_tensors(kept), strict=False)
    elif spec.steps:
        _learn(generator, spec, counts, batches, plan, processes, state)
        if processes.first:
            with whole(kept) as partial:
                save_tensors(partial, dict(generator.named_parameters()))
        processes.wait()
    return generator.eval()


def _learn(
    generator: Generator,
    spec: Generation,
    counts: Tensor,
    batches: Batches,
    plan: Plan,
    processes: Processes,
    state: Path,
) -> None:
    alone = Recipe({"passage": View(mask=Mask("random", spec.ratio))})
    schedule = replace(plan, steps=spec.steps, warmup=spec.steps // 10, new_parts=0, probe_every=0)
    learner = Autoencoder(alone, generator.encoder, {}, counts=counts)
    train(learner, batches.of(alone), schedule, processes, state / "generator", what="generator")
    generator.head = learner.head
