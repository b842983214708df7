"""A query encoder learns a teacher's softmax; passages do not move."""

from typing import Any

import numpy as np
import pytest
import torch

from stages.artifacts.checkpoints import load_encoder, load_tokenizer, load_vocabulary
from stages.artifacts.ragged import Ragged
from stages.artifacts.tables import Queries
from stages.embedding.pieces import tokenised
from stages.ranking.asking import Asker, Batches, Lessons
from stages.ranking.encoding import Vectors
from stages.training.processes import Processes

CPU = torch.device("cpu")
SCALE, SHARPNESS, BEST, DEPTH, BATCH = 20.0, 6.0, 3, 7, 10


@pytest.fixture
def batches(world: Any) -> Any:
    """process → its batches of queries with drawn teachers, some of whom have ranked fewer passages."""
    texts = Queries.read(world.queries)["text"].to_pylist()
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(40, 32)).astype(np.float32)
    depths = [4 if query % 3 == 0 else DEPTH + 5 for query in range(len(texts))]
    scores = Ragged.of((np.sort(rng.random(depth) * 2)[::-1] for depth in depths), np.float32)
    passages = Ragged.of((rng.permutation(40)[:depth] for depth in depths), np.int64)
    lessons = Lessons(np.arange(len(texts)), passages, scores, BEST, DEPTH - BEST)
    pieces, vocabulary = tokenised(texts, load_tokenizer(world.backbone)), load_vocabulary(world.backbone)

    def of(rank: int, world_size: int) -> Batches:
        processes = Processes(rank, world_size, CPU)
        return Batches(lessons, pieces, Vectors.of(vectors), vocabulary, 16, BATCH, 5, processes)

    return of


def divergence(student: np.ndarray, teacher: np.ndarray) -> float:
    """KL(softmax teacher ‖ softmax student) in float64, over what the teacher has scored."""
    known = ~np.isnan(teacher)
    p, q = (np.exp(row[known] - row[known].max()) for row in (teacher, student))
    p, q = p / p.sum(), q / q.sum()
    return float(sum(a * np.log(a / b) for a, b in zip(p, q, strict=True)))


def test_the_loss_is_the_mean_divergence_from_the_teachers_softmax(world: Any, batches: Any) -> None:
    encoder = load_encoder(world.backbone).eval()
    [batch] = batches(0, 1)(4)
    assert batch.counts["queries"] == len(batch.passages) == BATCH
    loss, observed = Asker(encoder, SCALE, SHARPNESS)(batch, batch.counts)
    asked = encoder(batch.texts.ids, batch.texts.lengths).detach().double().numpy()
    expected = [
        divergence(SCALE * (passages @ query), SHARPNESS * scores)
        for query, passages, scores in zip(
            asked, batch.passages.double().numpy(), batch.scores.double().numpy(), strict=True
        )
    ]
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-5)
    total, count = observed["divergence"]
    assert (total / count).item() == pytest.approx(loss.item(), rel=1e-6)


def test_processes_share_out_a_batch_and_its_gradient(world: Any, batches: Any) -> None:
    def gradient(world_size: int) -> tuple[float, torch.Tensor]:
        asker = Asker(load_encoder(world.backbone), SCALE, SHARPNESS)
        parts = [batches(rank, world_size)(2)[0] for rank in range(world_size)]
        totals = {name: sum(part.counts[name] for part in parts) for name in parts[0].counts}
        assert totals["queries"] == BATCH
        loss = sum(asker(part, totals)[0] for part in parts)
        loss.backward()
        return loss.item(), asker.encoder.transformer.encoder.layer[0].attention.self.query.weight.grad

    (one, alone), (other, shared) = gradient(1), gradient(3)
    assert one == pytest.approx(other, rel=1e-5)
    torch.testing.assert_close(alone, shared, rtol=1e-4, atol=1e-7)


def test_the_best_are_always_learnt_and_others_of_the_ranking_in_turn(batches: Any) -> None:
    lessons = batches(0, 1).lessons
    whole = lessons.scores.values[lessons.scores.offsets[1] : lessons.scores.offsets[2]]
    drawn = [lessons.of(1, np.random.default_rng(seed))[1] for seed in range(60)]
    for scores in drawn:
        np.testing.assert_array_equal(scores[:BEST], whole[:BEST])
        assert set(scores[BEST:]) <= set(whole[BEST:])
        assert len(set(scores)) == DEPTH
    assert set(np.concatenate(drawn)) == set(whole)
    _, short = lessons.of(0, np.random.default_rng(0))
    assert np.isnan(short).sum() == DEPTH - 4


def test_every_step_draws_each_query_once_at_most_and_the_same_again(batches: Any) -> None:
    make = batches(0, 1)
    scores = [make(step)[0].scores for step in range(3)]
    for one, again in zip(scores, [make(step)[0].scores for step in range(3)], strict=True):
        torch.testing.assert_close(one, again, equal_nan=True)
    assert not torch.equal(scores[0].nan_to_num(), scores[1].nan_to_num())
    assert len(torch.unique(scores[0].nan_to_num(), dim=0)) == BATCH
