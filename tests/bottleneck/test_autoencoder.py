"""The model: losses against slow definitions, the bottleneck, padding, learning, export, heads."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from stages.artifacts.checkpoints import load_encoder, load_heads, save_encoder
from stages.bottleneck.vocabulary import LinearCrossEntropy
from stages.training.loop import Plan, train
from tests.bottleneck.build import ALONE, RECIPES, batches, collated, corpus, model, named, written
from tests.conftest import World

TRAINED = [path.stem for path in sorted(RECIPES.glob("*.yaml")) if path.stem != "none"]
LOOKS_BEYOND = {"bag", "skip"}  # designs whose networks read more of the encoder than its vector


def test_linear_cross_entropy_is_cross_entropy() -> None:
    torch.manual_seed(0)
    hidden, weight, bias = (torch.randn(*shape, requires_grad=True) for shape in ((2500, 8), (50, 8), (50,)))
    labels = torch.randint(0, 50, (2500,))
    ours, hits = LinearCrossEntropy.apply(hidden, weight, bias, labels)  # type: ignore[no-untyped-call]
    (ours * 0.3).backward()
    found = [tensor.grad.clone() for tensor in (hidden, weight, bias)]  # type: ignore[union-attr]
    for tensor in (hidden, weight, bias):
        tensor.grad = None
    logits = hidden.double() @ weight.double().T + bias.double()
    expected = F.cross_entropy(logits, labels, reduction="sum")
    (expected * 0.3).backward()
    torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=0)
    assert hits.item() == (logits.argmax(1) == labels).sum().item()
    for grad, tensor in zip(found, (hidden, weight, bias), strict=True):
        torch.testing.assert_close(grad, tensor.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TRAINED)
def test_padding_and_micro_batches_never_change_the_loss(world: World, name: str) -> None:
    recipe = named(name)
    # across spans, a loss is over the micro-batch and says so; see test_contrast
    apart = {key: spec for key, spec in recipe.decoders.items() if spec.network != "contrastive"}
    recipe = replace(recipe, decoders=apart)
    net = model(world, recipe).eval()

    def loss(pieces: int) -> float:
        parts = batches(world, recipe, 16, pieces)(0)
        totals = {key: sum(part.counts[key] for part in parts) for key in parts[0].counts}
        torch.manual_seed(0)
        return sum(net(part, totals)[0].item() for part in parts)

    assert loss(10_000) == pytest.approx(loss(100), rel=1e-4)


@pytest.mark.parametrize("name", TRAINED)
def test_decoders_see_nothing_of_the_encoder_but_its_vector(world: World, name: str) -> None:
    recipe = named(name)
    net, batch = model(world, recipe).eval(), collated(world, recipe)
    free = [key for key, spec in recipe.decoders.items() if spec.network not in LOOKS_BEYOND]
    encode = net.encoder.states

    def disturbed(ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        states = encode(ids, lengths).clone()
        states[:, 1:] += torch.randn(states[:, 1:].shape)
        return states

    def losses() -> dict[str, float]:
        torch.manual_seed(0)
        return {key: value[0].item() for key, value in net(batch, batch.counts)[1].items()}

    before = losses()
    net.encoder.states = disturbed  # type: ignore[method-assign]
    after = losses()
    assert all(before[f"{key}/loss"] == after[f"{key}/loss"] for key in free)
    predicted = [key for key in before if key.startswith("encoder/") and key.endswith("/loss")]
    assert all(before[key] != after[key] for key in predicted)


def test_the_vector_matters_to_every_decoder(world: World) -> None:
    recipe = named("master")
    net, batch = model(world, recipe).eval(), collated(world, recipe)
    torch.nn.init.normal_(net.encoder.transformer.embeddings.word_embeddings.weight)  # type: ignore[union-attr,arg-type]
    before = net(batch, batch.counts)[1]
    pool = net.encoder.pool
    net.encoder.pool = lambda states, lengths: -pool(states, lengths)  # type: ignore[method-assign]
    after = net(batch, batch.counts)[1]
    for name in recipe.decoders:
        assert before[f"{name}/loss"][0] != after[f"{name}/loss"][0]


def test_the_encoders_loss_is_bert_for_masked_lms(world: World) -> None:
    from transformers import BertForMaskedLM

    recipe = named("mlm")
    net, batch = model(world, recipe).eval(), collated(world, recipe)
    theirs = BertForMaskedLM(net.encoder.config).eval()
    theirs.bert.load_state_dict({k: v for k, v in net.encoder.transformer.state_dict().items() if "pooler" not in k})
    theirs.cls.predictions.transform.load_state_dict(net.head.transform.state_dict())
    theirs.cls.predictions.bias.data.copy_(net.head.bias)
    view = batch.views["encoder/passage"]
    labels = torch.full_like(view.clean, -100).reshape(-1)
    labels[view.places] = view.labels
    real = torch.arange(view.ids.shape[1]) < view.lengths[:, None]
    expected = theirs(input_ids=view.ids, attention_mask=real.long(), labels=labels.view_as(view.clean)).loss
    torch.testing.assert_close(net(batch, batch.counts)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TRAINED)
def test_every_recipe_learns_resumes_and_exports(world: World, name: str, tmp_path: Path) -> None:
    from transformers import AutoModel

    recipe = named(name)
    plan = Plan(steps=30, learning_rate=3e-3, warmup=3, log_every=5, precision="fp32", checkpoint=0.0)
    whole = model(world, recipe)
    history = train(whole, batches(world, recipe, 24), plan, ALONE, tmp_path / "whole").history
    assert history[-1]["loss"] < history[0]["loss"]
    resumed = model(world, recipe, seed=5)  # other new parts: all must come from the state
    train(resumed, batches(world, recipe, 24), plan, ALONE, tmp_path / "whole")
    for (key, one), (_, other) in zip(whole.named_parameters(), resumed.named_parameters(), strict=True):
        assert torch.equal(one, other), key
    save_encoder(whole.encoder, world.backbone, tmp_path / "model", whole.heads())
    _, info = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]


def test_pieces_that_never_occur_only_leave_the_denominator(world: World) -> None:
    recipe = named("mlm")
    counts = torch.from_numpy(corpus(world).counts(model(world, recipe).encoder.config.vocab_size))
    batch = collated(world, recipe)
    full, few = model(world, recipe), model(world, recipe, counts=counts)
    few.load_state_dict(full.state_dict())
    with torch.no_grad():  # as improbable as may be, so that both denominators agree
        absent = counts == 0
        full.head.bias[absent] = -1e4
    ours, theirs = few.eval()(batch, batch.counts)[0], full.eval()(batch, batch.counts)[0]
    torch.testing.assert_close(ours, theirs)
    assert absent.any()


def test_a_new_head_begins_with_how_often_pieces_occur(world: World) -> None:
    """At states of zero nothing has been read: what is guessed there is the corpus' distribution over pieces."""
    everything = corpus(world)
    texts = [everything.passages, *(pieces for pieces, _ in everything.texts.values())]
    counter = Counter(piece for text in texts for piece in text.pieces.values.tolist())
    size = load_encoder(world.backbone).config.vocab_size
    counts = torch.from_numpy(everything.counts(size))
    assert counts.tolist() == [counter[piece] for piece in range(size)]
    wanted = torch.tensor([counter[piece] + 0.5 for piece in range(size)])
    for name in ("mlm", "dupmae"):
        net = model(world, named(name), counts=counts)
        torch.testing.assert_close(net.head.bias.softmax(0), wanted / wanted.sum())
    torch.testing.assert_close(net.decoders["bag"].lpu.bias, net.head.bias)  # type: ignore[union-attr]


def test_a_new_detector_expects_the_share_that_is_hidden(world: World) -> None:
    net = model(world, named("enc-dec-rtd"))
    torch.testing.assert_close(net.detector.out.bias.sigmoid(), torch.tensor([0.4]))  # of 30 % and 50 %


def test_heads_are_taken_up_again(world: World, tmp_path: Path) -> None:
    recipe = named("master")
    first = model(world, recipe)
    save_encoder(first.encoder, world.backbone, tmp_path / "model", first.heads())
    heads = load_heads(tmp_path / "model")
    second = model(world, recipe, seed=9)
    assert second.new == set(heads)
    assert second.take(heads) == set(heads)
    for key, value in second.heads().items():
        assert torch.equal(value, first.heads()[key])


def test_copies_of_the_last_layers(world: World, tmp_path: Path) -> None:
    net = model(world, written(tmp_path, "encoder: {passage: {}}\ndecoders: {a: {mask: all, init: last, layers: 1}}"))
    last = dict(net.encoder.transformer.encoder.layer[-1].named_parameters())  # type: ignore[union-attr,index]
    for key, value in net.decoders["a"].layers[0].named_parameters():  # type: ignore[union-attr,index]
        assert torch.equal(value, last[key])
        assert value is not last[key]
