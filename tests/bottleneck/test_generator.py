"""The generator: what is replaced, by what distribution, what learns, what is detected."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from stages.artifacts.checkpoints import load_encoder, load_vocabulary
from stages.artifacts.refusal import Refusal
from stages.bottleneck.generator import Generator, loaded, made
from stages.bottleneck.recipe import Generation, Recipe
from stages.bottleneck.views import ViewBatch
from stages.bottleneck.vocabulary import ReplacementHead
from tests.bottleneck import slow
from tests.bottleneck.build import batches, collated, model, named
from tests.conftest import World


def joint(name: str = "simlm", **numbers: float) -> Recipe:
    return replace(named(name), generator=Generation(train="joint", **numbers))  # type: ignore[arg-type]


def loud(generator: Generator) -> Generator:
    """So that its distributions are not all uniform."""
    with torch.no_grad():
        generator.head.bias.copy_(torch.randn_like(generator.head.bias) * 2)  # type: ignore[arg-type,operator]
    return generator


def test_samples_follow_the_distribution(world: World) -> None:
    config = load_encoder(world.backbone).config
    torch.manual_seed(0)
    generator = loud(made(Generation(), config)).eval()
    state = torch.randn(1, generator.encoder.config.hidden_size)
    chances = generator.head.logits(state)[0].softmax(0).detach()  # type: ignore[operator]
    draws = 20_000
    found = generator.samples(state.expand(draws, -1), torch.rand(draws)).bincount(minlength=config.vocab_size) / draws
    error = (chances * (1 - chances) / draws).sqrt().clamp(min=1e-4)
    assert ((found - chances).abs() < 5 * error).all()
    ends = generator.samples(state.expand(2, -1), torch.tensor([0.0, 1 - 2**-24]))
    assert ends[0] == chances.nonzero()[0, 0]
    assert 0 <= ends[1] < config.vocab_size


def test_pieces_that_the_corpus_lacks_are_never_sampled(world: World) -> None:
    config = load_encoder(world.backbone).config
    pieces = torch.arange(7, config.vocab_size, 3)
    counts = torch.zeros(config.vocab_size, dtype=torch.int64).index_fill_(0, pieces, 2)
    generator = loud(made(Generation(), config, counts)).eval()
    state = torch.randn(1, generator.encoder.config.hidden_size)
    whole = torch.nn.functional.linear(
        generator.head.transform(state),  # type: ignore[operator]
        generator.encoder.transformer.get_input_embeddings().weight,  # type: ignore[operator]
        generator.head.bias,  # type: ignore[arg-type]
    )
    torch.testing.assert_close(generator.head.logits(state), whole[:, pieces])  # type: ignore[operator]
    found = generator.samples(state.expand(2000, -1), torch.rand(2000))
    assert set(found.tolist()) <= set(pieces.tolist())
    assert generator.samples(state, torch.tensor([1 - 2**-24]))[0] == pieces[-1]


@pytest.mark.parametrize("name", ["simlm", "enc-dec-rtd"])
def test_only_hidden_pieces_are_replaced_and_the_decoder_replaces_more(world: World, name: str) -> None:
    recipe = named(name)
    net, batch = model(world, recipe), collated(world, recipe)
    loud(net.frozen[0])  # type: ignore[arg-type]
    views, losses = net.filled(batch.views)
    encoder, decoder = views["encoder/passage"], views["passage"]
    assert not losses
    mask = load_vocabulary(world.backbone).mask
    for view in (encoder, decoder):
        assert torch.equal(view.ids[~view.hidden], view.clean[~view.hidden])
        assert 0.5 < (view.ids != view.clean)[view.hidden].float().mean() <= 1
        assert (view.ids[view.hidden] == mask).float().mean() < 0.1
        ordinary = sum(int(length) - 2 for length in view.lengths)
        assert abs(len(view.labels) - ordinary) <= 3  # all but specials inside texts
    assert (decoder.hidden >= encoder.hidden).all()
    both = encoder.hidden & decoder.hidden
    assert (encoder.ids != decoder.ids)[both].any()  # sampled independently, as in the released code


def test_samples_depend_on_neither_micro_batches_nor_what_was_drawn_before(world: World) -> None:
    recipe = named("simlm")
    net = model(world, recipe)
    loud(net.frozen[0])  # type: ignore[arg-type]

    def rows(pieces: int) -> list[list[int]]:
        torch.rand(3)
        found = []
        for part in batches(world, recipe, 16, pieces)(2):
            view = net.filled(part.views)[0]["passage"]
            found += [ids[:length] for ids, length in zip(view.ids.tolist(), view.lengths.tolist(), strict=True)]
        return sorted(found)

    assert rows(10_000) == rows(80)


def test_a_frozen_generator_neither_learns_nor_is_kept(world: World) -> None:
    recipe = named("simlm")
    net, batch = model(world, recipe), collated(world, recipe)
    net(batch, batch.counts)[0].backward()
    assert net.frozen[0] is not None
    assert not net.frozen[0].training
    assert all(value.grad is None for value in net.frozen[0].parameters())
    assert not [name for name, _ in net.named_parameters() if name.startswith("generator")]


def test_a_joint_generator_learns_from_what_the_encoder_hides(world: World) -> None:
    recipe = joint(weight=0.2)
    net, batch = model(world, recipe).eval(), collated(world, recipe)
    share, observed = net(batch, batch.counts)
    view = batch.views["encoder/passage"]
    generator = net.generator
    with torch.no_grad():
        logits: Tensor = generator.head.logits(generator.encoder.states(view.ids, view.lengths)).double()  # type: ignore[operator,union-attr]
    expected = sum(
        slow.surprise(logits[row, column], int(view.clean[row, column]))
        for row, column in view.hidden.nonzero().tolist()
    )
    loss, count = observed["generator/encoder/passage/loss"]
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert int(count) == int(view.hidden.sum())
    others = sum(observed[f"{name}/loss"][0] / observed[f"{name}/loss"][1] for name in ("encoder/passage", "passage"))
    torch.testing.assert_close(share, others + 0.2 * loss / count)
    share.backward()
    grads = {name: value.grad for name, value in net.named_parameters() if name.startswith("generator.")}
    assert all(grad is not None for grad in grads.values())


def test_sampling_has_no_gradient_of_its_own(world: World) -> None:
    recipe = joint(weight=0.0)
    net, batch = model(world, recipe), collated(world, recipe)
    net(batch, batch.counts)[0].backward()
    for name, value in net.named_parameters():
        if name.startswith("generator."):
            assert value.grad is None or not value.grad.any()


def test_detection_is_binary_cross_entropy(world: World) -> None:
    recipe = named("enc-dec-rtd")
    net, batch = model(world, recipe).eval(), collated(world, recipe)
    loud(net.frozen[0])  # type: ignore[arg-type]
    torch.nn.init.normal_(net.detector.out.weight)  # type: ignore[union-attr,arg-type]
    observed = net(batch, batch.counts)[1]
    views = net.filled(batch.views)[0]
    states = {
        "encoder/passage": net.read(views["encoder/passage"]).states,
        "passage": net.decoders["passage"].states(net.read(views["encoder/passage"]), views["passage"]),  # type: ignore[operator]
    }
    for name, found in states.items():
        view: ViewBatch = views[name]
        expected, right = 0.0, 0
        for place in view.places.tolist():
            row, column = divmod(place, view.ids.shape[1])
            hidden = slow.gelu(slow.linear(net.detector.dense, found[row, column].detach().double()))
            logit = float(slow.linear(net.detector.out, hidden).detach())  # type: ignore[union-attr]
            label = int(view.ids[row, column]) != int(view.clean[row, column])
            chance = 1 / (1 + 2.718281828459045**-logit)
            expected -= float(torch.tensor(chance if label else 1 - chance).log())
            right += (logit > 0) == label
        assert observed[f"{name}/loss"][0].item() == pytest.approx(expected, rel=1e-4)
        assert observed[f"{name}/accuracy"][0].item() == right
    assert isinstance(net.detector, ReplacementHead)


def test_a_checkpoint_is_taken_if_its_vocabulary_fits(world: World, tmp_path: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM, ElectraConfig, ElectraForMaskedLM

    config = load_encoder(world.backbone).config
    shape = {"vocab_size": config.vocab_size, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    bert = BertForMaskedLM(BertConfig(**shape, intermediate_size=32))
    electra = ElectraForMaskedLM(ElectraConfig(**shape, intermediate_size=32, embedding_size=8))
    ids, lengths = torch.randint(5, 100, (2, 9)), torch.tensor([9, 6])
    for name, theirs in {"bert": bert, "electra": electra}.items():
        theirs.eval().save_pretrained(tmp_path / name)
        ours = loaded(str(tmp_path / name), config).eval()
        real = torch.arange(9) < lengths[:, None]
        with torch.no_grad():
            expected = theirs(input_ids=ids, attention_mask=real.long()).logits
            found = ours.head.logits(ours.encoder.states(ids, lengths))  # type: ignore[operator]
        torch.testing.assert_close(found[real], expected[real], rtol=1e-4, atol=1e-5)
    bert.resize_token_embeddings(config.vocab_size + 8)
    bert.save_pretrained(tmp_path / "other")
    with pytest.raises(Refusal, match=f"{config.vocab_size + 8} pieces, the backbone has {config.vocab_size}"):
        loaded(str(tmp_path / "other"), config)
    with pytest.raises(Refusal, match=r"generator\.checkpoint"):
        loaded(str(tmp_path / "nothing"), config)
