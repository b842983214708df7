"""A generator of one's own: what it learns from, what it starts from, and that it learns."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from stages.artifacts.documents import read_json
from stages.artifacts.names import WEIGHTS
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Qrels, Queries
from stages.generating import own
from stages.generating.loading import load
from stages.generating.own import School, learn_language, learn_queries
from stages.generating.prompts import blocks, texts, training_pairs
from tests.conftest import World

CPU = torch.device("cpu")


def school(steps: int) -> School:
    return School(layers=1, width=32, steps=steps, batch=8, learning_rate=1e-2, seed=1, precision="fp32")


def test_blocks_are_the_passages_in_order(world: World) -> None:
    whole = Passages.read(world.passages)
    found = list(blocks(world.passages, 7))
    assert [block.num_rows for block in found[:-1]] == [7] * (len(found) - 1)
    assert list(chain(*(block["passage_id"].to_pylist() for block in found))) == whole["passage_id"].to_pylist()
    assert texts(found[0])[0] == f"{whole['title'][0]} {whole['text'][0]}"


def test_pairs_are_those_of_the_training_split_alone(world: World) -> None:
    queries = {row["query_id"]: row for row in Queries.read(world.queries).to_pylist()}
    judged = Qrels.read(world.qrels).to_pylist()
    wanted = [queries[row["query_id"]]["text"] for row in judged if queries[row["query_id"]]["split"] == "train"]
    pairs = training_pairs(world.passages, world.queries, world.qrels)
    assert [pair.query for pair in pairs] == wanted
    assert all(set(pair.query.split()) <= set(pair.passage.split()) for pair in pairs)


def test_other_queries_change_no_byte(world: World, tmp_path: Path) -> None:
    """Without the dev and test queries the very same generator comes out."""
    table = Queries.read(world.queries).to_pylist()
    training = [row for row in table if row["split"] == "train"]
    Queries.write(tmp_path / "queries.parquet", {name: [row[name] for row in training] for name in table[0]})
    for name, queries in (("all", world.queries), ("training", tmp_path / "queries.parquet")):
        pairs = training_pairs(world.passages, queries, world.qrels)
        learn_queries(world.backbone, world.passages, pairs, (20, 8), school(2), tmp_path / name)
    one, two = (tmp_path / name / own.FOLDER / WEIGHTS for name in ("all", "training"))
    assert one.read_bytes() == two.read_bytes()


def test_a_corpus_without_training_queries_is_refused(world: World, tmp_path: Path) -> None:
    path = tmp_path / "queries.parquet"
    Queries.write(path, {"query_id": ["a"], "text": ["b"], "split": ["dev"]})
    line = f"{world.qrels}: no passage is judged relevant to a training query of {path}; name a checkpoint"
    with pytest.raises(Refusal) as refused:
        training_pairs(world.passages, path, world.qrels)
    assert str(refused.value) == line


def test_a_pair_with_an_unknown_passage_is_refused(world: World, tmp_path: Path) -> None:
    Queries.write(tmp_path / "queries.parquet", {"query_id": ["a"], "text": ["b"], "split": ["train"]})
    path = tmp_path / "qrels.parquet"
    Qrels.write(path, {"query_id": ["x", "a"], "passage_id": ["p0-0", "nowhere"], "relevance": [1, 1]})
    with pytest.raises(Refusal) as refused:
        training_pairs(world.passages, tmp_path / "queries.parquet", path)
    assert str(refused.value) == f"{path}: row 1: passage_id 'nowhere' is not in {world.passages}"


def test_a_width_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(Refusal, match=r"^width 40: not a multiple of 32, the width of an attention head$"):
        School(1, 40, 1, 1, 1e-3, 1, "fp32")


def test_queries_are_learnt(world: World, tmp_path: Path) -> None:
    pairs = training_pairs(world.passages, world.queries, world.qrels)
    for steps in (2, 60):
        learn_queries(world.backbone, world.passages, pairs, (40, 12), school(steps), tmp_path / str(steps))
    assert own.report(tmp_path / "60")["loss"] < own.report(tmp_path / "2")["loss"] - 1
    known = read_json(tmp_path / "60" / own.FOLDER / "pieces.json")
    generator = load(str(tmp_path / "60" / own.FOLDER), "encoder-decoder", "fp32", CPU)
    assert generator.model.config.vocab_size == len(known)
    assert generator.pieces.known[generator.end] == load(
        str(tmp_path / "2" / own.FOLDER), "encoder-decoder", "fp32", CPU
    ).pieces.tokenizer.token_to_id("[SEP]")


def test_language_is_learnt_and_training_is_not_repeated(world: World, tmp_path: Path) -> None:
    for steps in (2, 60):
        learn_language(world.backbone, world.passages, 30, school(steps), tmp_path / str(steps))
    assert own.report(tmp_path / "60")["loss"] < own.report(tmp_path / "2")["loss"] - 0.5
    before = (tmp_path / "60" / own.FOLDER / WEIGHTS).stat().st_mtime_ns
    learn_language(world.backbone, world.passages, 30, school(60), tmp_path / "60")
    assert (tmp_path / "60" / own.FOLDER / WEIGHTS).stat().st_mtime_ns == before


def test_embeddings_are_the_backbone_s_up_to_a_turn_and_a_scale(world: World) -> None:
    known = np.arange(5, 100)
    lent = own._embeddings(world.backbone, known)
    assert lent is not None
    weights = load_file(world.backbone / WEIGHTS)
    assert any(value.ndim == 2 and len(value) >= 100 and torch.equal(value[known], lent) for value in weights.values())
    target = torch.zeros(len(known), 64)
    own._lend(target, world.backbone, known, 0.5)
    centred = lent - lent.mean(0)
    products, lent_products = target @ target.T, centred @ centred.T
    scale = products.trace() / lent_products.trace()
    torch.testing.assert_close(products, lent_products * scale, rtol=1e-3, atol=1e-3)
    assert float(target[:, : lent.shape[1]].std()) == pytest.approx(0.5, rel=1e-3)


def test_a_backbone_without_weights_lends_nothing(tmp_path: Path) -> None:
    assert own._embeddings(tmp_path, np.arange(3)) is None
