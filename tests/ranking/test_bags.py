"""Bags of words beside vectors: what is kept, what is learnt from, and exact search over both."""

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from transformers.models.bert.modeling_bert import BertPredictionHeadTransform

from stages.artifacts.checkpoints import TextEncoder, load_encoder, load_tokenizer, load_vocabulary, save_encoder
from stages.artifacts.documents import read_json
from stages.artifacts.ragged import Ragged, read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Queries, Tokens
from stages.embedding.pieces import Padded, single, tokenised
from stages.mining import mine
from stages.ranking.bags import load_bag
from stages.ranking.encoding import Vectors, Wanted, encode
from stages.ranking.hybrid import HybridVectors, Questions, encode_hybrid
from stages.ranking.runs import by_query
from stages.ranking.search import Index, torch_top
from stages.ranking.towers import Shape, Towers, load_towers, save_towers
from stages.training.processes import Processes

ALONE = Processes(0, 1, torch.device("cpu"))
KEPT = 12


def start(world: Any, folder: Path, own: bool) -> Path:
    """The backbone with a head as pre-training leaves it: a linear unit of its own, or the language model's."""
    encoder, draw = load_encoder(world.backbone), torch.Generator().manual_seed(8)
    size, width = encoder.config.vocab_size, encoder.config.hidden_size
    if own:
        shapes = {"decoders.bag.lpu.weight": (size, width), "decoders.bag.lpu.bias": (size,)}
    else:
        transform = BertPredictionHeadTransform(encoder.config).state_dict()
        shapes = {f"head.transform.{name}": tuple(value.shape) for name, value in transform.items()}
        shapes["head.bias"] = (size,)
    heads = {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    save_encoder(encoder, world.backbone, folder, heads)
    return folder


@pytest.fixture(params=[True, False], ids=["own", "head"])
def folder(request: pytest.FixtureRequest, world: Any, tmp_path: Path) -> Path:
    return start(world, tmp_path / "start", request.param)


def shaped(folder: Path, width: int | None = 6) -> Towers:
    shape = Shape(normalise=False, head="linear" if width else "none", width=width, bag=KEPT)
    shape.refuse()
    return load_towers(folder, shape, seed=1)


def some(world: Any) -> Padded:
    """Five passages."""
    return single(read_ragged(Tokens, world.tokens, "pieces"), np.arange(5), load_vocabulary(world.backbone), 30)


def slow_bag(encoder: TextEncoder, folder: Path, text: Padded) -> np.ndarray:
    """Every logit of every ordinary position, one text at a time."""
    bag = load_bag(folder, encoder, KEPT)
    rows = []
    for ids, length in zip(text.ids, text.lengths.tolist(), strict=True):
        states = encoder.states(ids[None, :length], torch.tensor([length]))[0, 1:-1]
        rows.append((bag.transform(states) @ bag.weight.T + bag.bias).max(0).values.detach().numpy())
    return np.stack(rows)


def test_a_query_keeps_its_bag_and_a_passage_its_largest_pieces(world: Any, folder: Path) -> None:
    towers, text = shaped(folder), some(world)
    expected, (asked, told) = slow_bag(towers.passage, folder, text), (towers(text, asks) for asks in (True, False))
    assert asked.shape[1] == towers.width == 6 + towers.passage.config.vocab_size
    np.testing.assert_allclose(asked[:, 6:].detach(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(asked[:, :6], told[:, :6])
    torch.testing.assert_close(told[:, :6], towers.passage(text.ids, text.lengths))
    for row, whole in zip(told[:, 6:].detach().numpy(), asked[:, 6:].detach().numpy(), strict=True):
        kept = np.flatnonzero(row)
        assert set(kept) == set(np.argsort(-whole)[:KEPT])
        np.testing.assert_array_equal(row[kept], whole[kept])


def test_what_is_not_kept_has_no_gradient(world: Any, tmp_path: Path) -> None:
    towers, text = shaped(start(world, tmp_path / "start", own=True)), some(world)
    assert towers.bag is not None
    told = towers(text, False)
    told[:, 6:].sum().backward()
    kept = (told[:, 6:] != 0).any(0)
    moved = towers.bag.weight.grad.abs().sum(1) > 0  # type: ignore[union-attr]
    assert torch.equal(moved, kept)
    assert 0 < int(kept.sum()) < len(kept)


@pytest.mark.parametrize("width", [6, 0])
def test_what_is_saved_is_read_again_and_goes_on(world: Any, folder: Path, tmp_path: Path, width: int) -> None:
    towers, text = shaped(folder, width), some(world)
    save_towers(towers, world.backbone, tmp_path / "model")
    again = load_towers(tmp_path / "model", Shape(normalise=False, bag=KEPT))
    assert again.dense_width == width
    torch.testing.assert_close(again(text, True), towers(text, True))
    with pytest.raises(Refusal, match=r"model/bag.json: texts have a bag of words here; say --bag$"):
        load_towers(tmp_path / "model", Shape())


def test_heads_that_are_absent_or_too_small_are_refused(world: Any, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"heads.safetensors: no head that makes a bag of words"):
        shaped(world.backbone)
    with pytest.raises(Refusal, match=r"--bag 9999: the vocabulary has only \d+ pieces$"):
        load_towers(start(world, tmp_path / "start", True), Shape(normalise=False, bag=9999))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 40),
    dense=st.sampled_from([0, 3]),
    kept=st.integers(1, 7),
    depth=st.integers(1, 50),
)
def test_search_is_the_full_dense_product(seed: int, count: int, dense: int, kept: int, depth: int) -> None:
    rng, vocabulary, size = np.random.default_rng(seed), 9, 16
    records = np.empty(count, [("dense", "f2", (dense,)), ("piece", "u2", (kept,)), ("value", "f2", (kept,))])
    records["dense"] = rng.integers(-2, 3, (count, dense))  # few values: many ties
    records["piece"] = np.sort(np.argsort(rng.random((count, vocabulary)), axis=1)[:, :kept], axis=1)
    records["value"] = rng.integers(-2, 3, (count, kept))
    vectors = HybridVectors([records[i : i + size] for i in range(0, count, size)], size=size, vocabulary=vocabulary)
    whole = np.zeros((count, dense + vocabulary))
    whole[:, :dense] = records["dense"]
    for row, record in zip(whole, records, strict=True):
        row[dense + record["piece"].astype(int)] = record["value"]
    some = rng.integers(0, count, 9)
    np.testing.assert_array_equal(vectors.take(some), whole[some])
    queries = rng.integers(-2, 3, (5, dense + vocabulary)).astype(np.float32)
    order = rng.permutation(count)
    index = Index(vectors, order, torch_top, block=7)
    [(first, rows, scores)] = index.search(Vectors.of(queries), depth)
    assert first == 0
    for query, found, values in zip(queries, rows, scores, strict=True):
        products = whole @ query
        expected = np.lexsort((order, -products))[:depth]
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(values, products[expected])
    assert vectors.numbers == dense + kept
    assert vectors.bytes == count * (2 * dense + 4 * kept)


@pytest.mark.parametrize("width", [6, 0])
def test_mining_ranks_by_the_hybrid_product(world: Any, folder: Path, tmp_path: Path, width: int) -> None:
    towers = shaped(folder, width)
    save_towers(towers, world.backbone, tmp_path / "model")
    tables = tmp_path / "model", world.tokens, world.queries
    mine(*tables, tmp_path / "run", ["dev"], 60, 40, 16, "fp32", tmp_path / "told")
    pieces: Ragged = read_ragged(Tokens, world.tokens, "pieces")
    vocabulary = load_vocabulary(world.backbone)
    passages = towers(single(pieces, np.arange(len(pieces)), vocabulary, 40), False).detach().double()
    names = Tokens.read(world.tokens)["passage_id"].to_pylist()
    asked = [row for row in Queries.read(world.queries).to_pylist() if row["split"] == "dev"]
    texts = tokenised([row["text"] for row in asked], load_tokenizer(world.backbone))
    queries = towers(single(texts, np.arange(len(texts)), vocabulary, 16), True).detach().double()
    for (_, ranking, scores), products in zip(by_query(tmp_path / "run"), queries @ passages.T, strict=True):
        expected = [products[names.index(name)].item() for name in ranking]
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-2)
        assert len(ranking) == len(names)
    told = read_json(tmp_path / "told")
    assert told["index"]["bytes_per_passage"] == 4 * width + KEPT * (2 + 4)
    assert told["index"]["products"] == width + KEPT
    assert told["speed"]["query_tokens_per_second"] > 0


def test_vectors_are_kept_and_queries_come_in_any_blocks(world: Any, tmp_path: Path) -> None:
    save_towers(shaped(start(world, tmp_path / "start", True)), world.backbone, tmp_path / "model")
    pieces = read_ragged(Tokens, world.tokens, "pieces")
    options = (tmp_path / "model", Wanted(pieces, "texts", 40), "bf16", ALONE)
    first, again = encode_hybrid(*options), encode_hybrid(*options)
    assert (first.fresh, again.fresh) == (1, 0)
    assert encode(*options).shards[0].dtype == np.float32  # the dense part alone is another set
    assert first.shards[0].dtype["value"].base == np.float32
    questions = Questions(tmp_path / "model", Wanted(pieces, "texts", 40), "fp32", ALONE)
    [(_, whole)] = questions.blocks(1_000)
    parts = list(questions.blocks(17))
    assert [start for start, _ in parts] == list(range(0, len(pieces), 17))
    np.testing.assert_allclose(np.concatenate([part for _, part in parts]), whole, rtol=1e-3, atol=1e-3)
