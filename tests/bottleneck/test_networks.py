"""Every network against an independent, slow definition, and what it may look at."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from stages.artifacts.checkpoints import load_heads, load_vocabulary, save_encoder
from stages.artifacts.refusal import Refusal
from stages.bottleneck.autoencoder import Autoencoder
from stages.bottleneck.decoders.contrastive import contrast
from stages.bottleneck.decoders.reading import Reading
from stages.bottleneck.recipe import Recipe
from stages.bottleneck.views import Collator, Draws, MicroBatch, ViewBatch
from tests.bottleneck import slow
from tests.bottleneck.build import RECIPES, collated, corpus, model, named, written
from tests.conftest import World

TRAINED = [path.stem for path in sorted(RECIPES.glob("*.yaml")) if path.stem != "none"]
ROWS = np.array([2, 5, 9])


def few(world: World, recipe: Recipe, longest: int = 14) -> MicroBatch:
    """Three short texts of unequal length."""
    everything = corpus(world)
    return Collator(recipe, everything, load_vocabulary(world.backbone), longest)(ROWS, Draws(1, 0, 3, np.arange(3)))


def lively(world: World, recipe: Recipe) -> Autoencoder:
    """A model whose numbers are large enough for differences to show, biases and norms included."""
    net = model(world, recipe).eval()
    torch.manual_seed(3)
    with torch.no_grad():
        for name, value in net.named_parameters():
            if not name.startswith("encoder."):
                value.add_(torch.randn_like(value) * 0.2)
    return net.requires_grad_(False)


def observed(net: Autoencoder, batch: MicroBatch, name: str) -> float:
    with torch.no_grad():
        return net(batch, batch.counts)[1][f"{name}/loss"][0].item()


def places(view: ViewBatch) -> list[tuple[int, int, int]]:
    """Row, column and label of everything to predict."""
    width = view.clean.shape[1]
    return [
        (*divmod(place, width), label) for place, label in zip(view.places.tolist(), view.labels.tolist(), strict=True)
    ]


@pytest.mark.parametrize("name", ["retromae", "dupmae-release"])
def test_enhanced_decoding(world: World, name: str) -> None:
    recipe = named(name)
    net, batch = lively(world, recipe), few(world, recipe)
    view, layer = batch.views["passage"], net.decoders["passage"].layer
    vectors = net.read(batch.views["encoder/passage"]).vector.detach()
    own: Any = net.encoder.transformer.embeddings
    inner, expected, seen = layer.attention.self, 0.0, 0
    assert view.visible is not None
    for row, i, label in places(view):
        h = vectors[row].double()
        query = h + own.position_embeddings.weight[i].double()
        if name == "dupmae-release":
            query = slow.norm(own.LayerNorm, query + own.token_type_embeddings.weight[0].double())
        columns = [j for j in range(int(view.lengths[row])) if view.visible[row, i, j]]
        assert i not in columns
        assert 0 in columns
        seen += len(columns) - 1
        context = [h if j == 0 else slow.embedded(net, int(view.clean[row, j]), j) for j in columns]
        keys, values = ([slow.linear(part, one) for one in context] for part in (inner.key, inner.value))
        mixed = slow.attention(slow.linear(inner.query, query), keys, values, inner.num_attention_heads)
        state = slow.layer_behind_attention(layer, mixed, query)
        expected += slow.surprise(slow.transformed(net, state), label)
    assert observed(net, batch, "passage") == pytest.approx(expected, rel=1e-4)
    assert seen > 0


def test_a_row_never_sees_its_own_piece(world: World) -> None:
    recipe = named("retromae")
    net, batch = lively(world, recipe), few(world, recipe)
    view = batch.views["passage"]
    reading = net.read(batch.views["encoder/passage"])
    with torch.no_grad():
        before = net.decoders["passage"].states(reading, view)  # type: ignore[operator]
        for i in range(1, int(view.lengths[0]) - 1):
            clean = view.clean.clone()
            clean[0, i] = (clean[0, i] + 7) % 100 + 20
            after = net.decoders["passage"].states(reading, replace(view, clean=clean))  # type: ignore[operator]
            assert torch.equal(after[0, i], before[0, i])
            assert view.visible is not None
            lookers = view.visible[0, :, i]
            assert (after[0] != before[0]).any(1)[lookers].all()
            assert torch.equal(after[0][~lookers], before[0][~lookers])


@pytest.mark.parametrize("name", ["seed", "optimus"])
def test_causal_decoding(world: World, name: str, tmp_path: Path) -> None:
    recipe = named(name)
    recipe = replace(recipe, decoders={"passage": replace(recipe.decoders["passage"], layers=3)})
    net, batch = lively(world, recipe), few(world, recipe)
    view, vectors = batch.views["passage"], net.read(batch.views["encoder/passage"]).vector.detach()
    words = net.encoder.transformer.get_input_embeddings().weight.double()  # type: ignore[operator]
    bias, expected = net.head.bias.double(), 0.0
    for row in range(3):
        ids = view.clean[row, : int(view.lengths[row])].tolist()
        states = slow.causal(net, net.decoders["passage"], vectors[row].double(), ids[:-1])
        # [CLS] x1 … xn guess x1 … xn [SEP]; the last of them is no piece of the text
        expected += sum(slow.surprise(words @ states[t - 1] + bias, ids[t]) for t in range(1, len(ids) - 1))
    assert len(view.labels) == int((view.lengths - 2).sum())
    assert observed(net, batch, "passage") == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("layers", "span"), [(1, 1), (1, 8), (2, 3), (3, 2)])
def test_the_memory_of_the_text_is_as_short_as_layers_and_span_say(
    world: World, tmp_path: Path, layers: int, span: int
) -> None:
    decoder = f"{{network: causal, layers: {layers}, fill: keep, predict: all, options: {{span: {span}}}}}"
    net = lively(world, written(tmp_path, f"encoder: {{passage: {{}}}}\ndecoders: {{a: {decoder}}}"))
    causal: Any = net.decoders["a"]
    vector, ids = torch.randn(1, 32), torch.randint(5, 100, (1, 24))
    reach = layers * (span - 1) + 1
    with torch.no_grad():
        before = causal.states(vector, ids)[0]
        for place in range(24):
            other = ids.clone()
            other[0, place] = ids[0, place] + 1
            changed = (causal.states(vector, other)[0] != before).any(1).nonzero()[:, 0].tolist()
            last = 23 if place == 0 else min(place + reach - 1, 23)  # column 0 is always seen
            assert changed == list(range(place, last + 1))
        assert (causal.states(vector + 1, ids)[0] != before).any(1).all()


def test_a_span_that_is_none_is_refused(world: World, tmp_path: Path) -> None:
    decoder = "decoders: {a: {network: causal, predict: all, options: {span: none}}}"
    with pytest.raises(Refusal, match="span: 'none' should be a whole number > 0 or 'all'"):
        model(world, written(tmp_path, f"encoder: {{passage: {{}}}}\n{decoder}"))


def test_skip_reads_the_vector_and_the_middle_layer(world: World) -> None:
    from transformers.models.bert.modeling_bert import BertModel

    recipe = named("condenser")
    net, batch = lively(world, recipe), few(world, recipe)
    view, target = batch.views["encoder/passage"], batch.views["passage"]
    half = BertModel(net.encoder.config, add_pooling_layer=False).eval()
    half.load_state_dict(net.encoder.transformer.state_dict(), strict=False)
    half.encoder.layer = half.encoder.layer[:1]  # of two
    real = torch.arange(view.ids.shape[1]) < view.lengths[:, None]
    with torch.no_grad():
        states = half(input_ids=view.ids, attention_mask=real[:, None, None, :]).last_hidden_state.double()
    layers, vectors = net.decoders["passage"].layers, net.read(view).vector.detach()
    assert torch.equal(target.places, view.places)
    expected = 0.0
    for row in range(3):
        length = int(view.lengths[row])
        stream = [vectors[row].double(), *states[row, 1:length]]
        for layer in layers:  # type: ignore[union-attr]
            inner: Any = layer.attention.self  # type: ignore[union-attr]
            keys, values = ([slow.linear(part, one) for one in stream] for part in (inner.key, inner.value))
            mixed = [
                slow.attention(slow.linear(inner.query, one), keys, values, inner.num_attention_heads) for one in stream
            ]
            stream = [slow.layer_behind_attention(layer, one, old) for one, old in zip(mixed, stream, strict=True)]
        mine = [(i, label) for where, i, label in places(target) if where == row]
        expected += sum(slow.surprise(slow.transformed(net, stream[i]), label) for i, label in mine)
    assert observed(net, batch, "passage") == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["dupmae", "dupmae-release"])
def test_bag_of_words(world: World, name: str) -> None:
    recipe = named(name)
    net, batch = lively(world, recipe), few(world, recipe)
    view, special = batch.views["encoder/passage"], load_vocabulary(world.backbone).special
    states = net.read(view).states.detach().double()
    expected = 0.0
    for row in range(3):
        length = int(view.lengths[row])
        if name == "dupmae":
            pooled = [j for j in range(1, length - 1) if not view.hidden[row, j]]
            logits = [slow.linear(net.decoders["bag"].lpu, states[row, j]) for j in pooled]
        else:
            logits = [slow.transformed(net, states[row, j]) for j in range(1, length)]
        largest = torch.stack(logits).amax(0)
        pieces = set(view.clean[row, 1 : length - 1].tolist())
        assert not pieces & set(special)
        each = 1 / len(pieces) if name == "dupmae" else 1 / length
        expected += sum(each * slow.surprise(largest, piece) for piece in sorted(pieces))
    assert observed(net, batch, "bag") == pytest.approx(expected, rel=1e-4)
    assert recipe.decoders["bag"].weight == (1.0 if name == "dupmae" else 0.1)


def test_the_bags_own_projection_is_kept_for_fine_tuning(world: World, tmp_path: Path) -> None:
    net = model(world, named("dupmae"))
    save_encoder(net.encoder, world.backbone, tmp_path / "model", net.heads())
    kept = load_heads(tmp_path / "model")["decoders.bag.lpu.weight"]
    assert torch.equal(kept, net.decoders["bag"].lpu.weight)  # type: ignore[union-attr,arg-type]


def test_contrast_is_over_all_spans_but_those_of_the_document() -> None:
    torch.manual_seed(0)
    spans, documents = torch.randn(5, 2, 4), torch.tensor([3, 1, 3, 2, 0])
    flat, of = spans.view(10, 4).double(), documents.repeat_interleave(2).tolist()
    for pair, loss in enumerate(contrast(spans, documents).tolist()):
        terms = []
        for i, j in ((2 * pair, 2 * pair + 1), (2 * pair + 1, 2 * pair)):
            others = [k for k in range(10) if k == j or of[k] != of[i]]
            logits = torch.stack([flat[i] @ flat[k] for k in others])
            terms.append(slow.surprise(logits, others.index(j)))
        assert loss == pytest.approx(sum(terms) / 2, rel=1e-5)


def test_spans_of_a_pair_are_of_one_document_and_both_heads_are_one(world: World) -> None:
    recipe = named("cocondenser")
    net, batch = model(world, recipe).eval(), collated(world, recipe)
    first, second = batch.views["encoder/passage"], batch.views["encoder/sibling"]
    mine = torch.searchsorted(first.rows, second.rows)
    assert torch.equal(first.documents[mine], second.documents)
    assert torch.equal(batch.views["contrast"].documents, second.documents)
    assert 0 < len(second.rows) < len(first.rows)
    assert set(net.decoders) == {"head", "contrast"}
    one, other = net.read(first).vector[mine], net.read(second).vector
    expected = contrast(torch.stack([one, other], 1), second.documents).sum().item()
    assert observed(net, batch, "contrast") == pytest.approx(expected, rel=1e-4)


def test_one_network_for_all_tasks(world: World) -> None:
    shared, apart = model(world, named("master-shared")), model(world, named("master"))
    assert set(shared.decoders) == {"all"}
    assert set(apart.decoders) == set(named("master").decoders)
    assert set(named("master-shared").decoders) == set(named("master").decoders)
    batch = collated(world, named("master-shared"))
    shared(batch, batch.counts)[0].backward()
    assert all(value.grad is not None for value in shared.decoders.parameters())


def test_the_release_of_master_has_eight_losses_and_three_encoder_passes(world: World) -> None:
    recipe = named("master-release")
    net, batch = model(world, recipe).eval(), collated(world, recipe)
    losses = {name for name in net(batch, batch.counts)[1] if name.endswith("/loss")}
    assert len(losses) == 8
    assert len([name for name in losses if name.startswith("encoder/")]) == 3
    half, rest, whole = (batch.views[name] for name in ("encoder/half", "neighbour", "encoder/passage"))
    for row in range(len(whole.rows)):
        end = int(half.lengths[row]) - 1
        joined = [*half.clean[row, 1:end].tolist(), *rest.clean[row, 1 : int(rest.lengths[row]) - 1].tolist()]
        assert joined == whole.clean[row, 1 : int(whole.lengths[row]) - 1].tolist()
    weight = net.decoders["queries"].layers[0].output.dense.weight  # type: ignore[union-attr,index]
    bound = weight.shape[1] ** -0.5  # PyTorch's own initialisation is uniform, and wider than BERT's
    assert weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)


def test_the_bottlenecks_map_is_one_linear_layer(world: World) -> None:
    recipe = named("cdmae")
    net, batch = lively(world, recipe), few(world, recipe)
    decoder: Any = net.decoders["salience"]
    plain = replace(recipe, decoders={"salience": replace(recipe.decoders["salience"], bottleneck="identity")})
    other = model(world, plain).eval()
    other.load_state_dict({name: v for name, v in net.state_dict().items() if "bottleneck" not in name})
    encode = other.encoder.pool
    other.encoder.pool = lambda states, lengths: F.linear(  # type: ignore[method-assign]
        encode(states, lengths), decoder.bottleneck.weight, decoder.bottleneck.bias
    )
    assert isinstance(decoder.bottleneck, nn.Linear)
    assert observed(net, batch, "salience") == pytest.approx(observed(other, batch, "salience"), rel=1e-5)


@pytest.mark.parametrize("name", TRAINED)
def test_masks_are_related_as_the_recipe_says(world: World, name: str) -> None:
    recipe = named(name)
    related = {
        key: spec for key, spec in recipe.decoders.items() if spec.mask.strategy in ("same", "complement", "superset")
    }
    for step in range(2):
        batch = collated(world, recipe, step)
        for key, spec in related.items():
            encoder, decoder = batch.views[f"encoder/{spec.reads}"], batch.views[key]
            assert torch.equal(encoder.rows, decoder.rows)
            if spec.mask.strategy == "same":
                assert torch.equal(encoder.hidden, decoder.hidden)
            elif spec.mask.strategy == "complement":
                assert not (encoder.hidden & decoder.hidden).any()
            else:
                assert (decoder.hidden >= encoder.hidden).all()
                assert decoder.hidden.sum() > encoder.hidden.sum()


@pytest.mark.parametrize("name", TRAINED)
def test_rates_are_those_of_the_recipe(world: World, name: str) -> None:
    recipe = named(name)
    batches = [collated(world, recipe, step) for step in range(3)]
    for key, view in recipe.views().items():
        if view.mask.ratio and batches[0].views[key].visible is None:
            hidden = sum(int(batch.views[key].hidden.sum()) for batch in batches)
            ordinary = sum(int((batch.views[key].lengths - 2).sum()) for batch in batches)
            # whole words leave a little of the budget; specials inside a text are never hidden
            assert view.mask.ratio - 0.07 < hidden / ordinary < view.mask.ratio + 0.03


@pytest.mark.parametrize("name", TRAINED)
def test_losses_in_bf16_are_those_in_fp32_but_for_rounding(world: World, name: str) -> None:
    recipe = named(name)
    net, batch = model(world, recipe).eval(), collated(world, recipe)
    with torch.no_grad():
        exact = net(batch, batch.counts)[1]
    with torch.autocast("cpu", torch.bfloat16):
        share, rounded = net(batch, batch.counts)
    share.backward()
    assert all(value.grad is None or value.grad.isfinite().all() for value in net.parameters())
    for key in (key for key in exact if key.endswith("/loss") and key != "contrast/loss"):
        assert rounded[key][0].item() == pytest.approx(exact[key][0].item(), rel=0.02, abs=0.5)
    if "contrast/loss" in exact:  # differences of large products: the vectors' own rounding shows
        assert rounded["contrast/loss"][0].isfinite()


def test_a_reading_is_cut_with_all_its_parts(world: World) -> None:
    recipe = named("cocondenser")
    net, batch = model(world, recipe).eval(), collated(world, recipe)
    readings = {name: net.read(batch.views[f"encoder/{name}"]) for name in recipe.encoder}
    part: Reading = net.part(recipe.decoders["contrast"], readings, batch.views, batch.views["contrast"])
    assert part.beside is not None
    assert part.middle is not None
    assert len(part.vector) == len(part.beside) == len(part.middle) == len(batch.views["contrast"].rows)
