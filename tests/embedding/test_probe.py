"""The probe: a sample that holds every positive, RR@10 as defined, and collapse."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.artifacts.checkpoints import load_encoder, load_tokenizer, load_vocabulary
from stages.artifacts.judgements import passage_ids
from stages.artifacts.ragged import Ragged, read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Qrels, Queries, Tokens
from stages.embedding.probe import Probe, Sample, dev_sample, mean_cosine, normalised, reciprocal_rank
from stages.embedding.vectors import encode_rows
from tests.conftest import World


def sample(world: World, count: int = 4, distractors: int = 10, seed: int = 3) -> Sample:
    tokenizer, ids = load_tokenizer(world.backbone), passage_ids(world.tokens)
    return dev_sample(world.queries, world.qrels, ids, tokenizer, count, distractors, seed)


def test_a_sample_holds_dev_queries_and_all_that_answers_them(world: World) -> None:
    drawn, tokenizer = sample(world), load_tokenizer(world.backbone)
    ids = passage_ids(world.tokens).to_pylist()
    dev = {row["query_id"]: row["text"] for row in Queries.read(world.queries).to_pylist() if row["split"] == "dev"}
    answers = {row["query_id"]: row["passage_id"] for row in Qrels.read(world.qrels).to_pylist()}
    assert len(drawn.queries) == 4
    assert (np.diff(drawn.rows) > 0).all()
    assert 10 <= len(drawn.rows) <= 14
    asked = {tuple(tokenizer.encode(text, add_special_tokens=False).ids): name for name, text in dev.items()}
    for i in range(4):
        (place,) = drawn.positives.take(np.array([i])).values
        name = asked[tuple(drawn.queries.take(np.array([i])).values.tolist())]
        assert ids[drawn.rows[place]] == answers[name]
    again, other = sample(world), sample(world, seed=4)
    assert np.array_equal(again.rows, drawn.rows)
    assert not np.array_equal(other.rows, drawn.rows)


def test_without_judged_dev_queries_it_is_refused(world: World, tmp_path: Path) -> None:
    Qrels.write(tmp_path / "q", {"query_id": ["q-p0-0"], "passage_id": ["p0-0"], "relevance": [1]})  # of split train
    with pytest.raises(Refusal, match="q: no dev query has a positive, and a probe needs some"):
        dev_sample(world.queries, tmp_path / "q", passage_ids(world.tokens), load_tokenizer(world.backbone), 4, 10, 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=30), st.data())
def test_reciprocal_rank_is_that_of_the_best_positive_behind_its_equals(scores: list[int], data: st.DataObject) -> None:
    places = st.lists(st.integers(0, len(scores) - 1), min_size=1, max_size=3, unique=True)
    positives = sorted(data.draw(places))
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i in positives))
    rank = next(rank for rank, i in enumerate(order, 1) if i in positives)
    assert reciprocal_rank(np.array(scores, float), np.array(positives)) == (1 / rank if rank <= 10 else 0)


def test_mean_cosine_is_over_pairs_of_different_vectors() -> None:
    vectors = normalised(np.random.default_rng(0).normal(size=(7, 5)))
    pairs = [vectors[i] @ vectors[j] for i in range(7) for j in range(7) if i != j]
    assert mean_cosine(vectors) == pytest.approx(np.mean(pairs))
    assert mean_cosine(np.tile(vectors[:1], (4, 1))) == pytest.approx(1)


@pytest.mark.parametrize("cosine", [True, False])
def test_a_probe_ranks_its_sample(world: World, cosine: bool) -> None:
    drawn, pieces = sample(world), read_ragged(Tokens, world.tokens, "pieces")
    encoder, vocabulary = load_encoder(world.backbone).eval(), load_vocabulary(world.backbone)
    assert not encoder.normalise
    found = Probe(encoder, drawn, pieces, vocabulary, 16, 24, "fp32", "dev ", cosine)(1)

    def vectors(texts: Ragged, rows: np.ndarray, longest: int) -> np.ndarray:
        made = [encode_rows(encoder, texts, np.array([row]), vocabulary, longest)[0] for row in rows]
        return np.stack([one / np.linalg.norm(one) if cosine else one for one in made])

    scores = vectors(drawn.queries, np.arange(4), 16) @ vectors(pieces, drawn.rows, 24).T
    ranks = [reciprocal_rank(row, drawn.positives.take(np.array([i])).values) for i, row in enumerate(scores)]
    assert found["dev RR@10"] == pytest.approx(np.mean(ranks))
    assert set(found) == {"dev RR@10", "dev cosine"}
