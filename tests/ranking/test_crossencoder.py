"""Cross-encoders: read elsewhere as they are read here, trained by the listwise loss, scored in any batches."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder as Theirs
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from stages.artifacts.checkpoints import load_tokenizer, load_vocabulary
from stages.artifacts.ragged import read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Queries, Tokens
from stages.embedding.pieces import BUDGET, tokenised
from stages.ranking.crossencoder import (
    Batch,
    Batches,
    CrossEncoder,
    Pairs,
    Reranker,
    for_inference,
    load_crossencoder,
    save_crossencoder,
    score,
)
from stages.ranking.groups import Inputs, Rules, read_groups
from stages.ranking.losses import consistent, listwise
from stages.ranking.runs import ordered
from stages.ranking.sampling import Sampler
from stages.training.processes import Processes

ALONE = Processes(0, 1, torch.device("cpu"))


@pytest.fixture
def pairs(world: Any) -> Pairs:
    texts = Queries.read(world.queries)["text"].to_pylist()
    pieces = tokenised(texts, load_tokenizer(world.backbone)), read_ragged(Tokens, world.tokens, "pieces")
    return Pairs(*pieces, load_vocabulary(world.backbone), longest=120, longest_query=16)


def drawn(count: int, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.integers(0, len(pairs.queries), count), rng.integers(0, len(pairs.passages), count)


def test_scores_do_not_depend_on_the_batches_and_lengths_are_right(
    world: Any, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BUDGET, "cpu", 700)
    model = for_inference(world.backbone, "fp32", ALONE.device)
    queries, passages = drawn(50, pairs)
    together = score(model, pairs, queries, passages)
    alone = [score(model, pairs, queries[[i]], passages[[i]])[0] for i in range(50)]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_array_equal(pairs.lengths(queries, passages), pairs.padded(queries, passages).lengths.numpy())


def test_transformers_and_sentence_transformers_read_what_is_saved(world: Any, pairs: Pairs, tmp_path: Path) -> None:
    model = load_crossencoder(world.backbone, seed=5)
    torch.nn.init.normal_(model.classifier.classifier.weight)  # else all scores are nearly the same
    save_crossencoder(model, world.backbone, tmp_path / "model")
    queries, passages = drawn(12, pairs)
    mine = score(for_inference(tmp_path / "model", "fp32", ALONE.device), pairs, queries, passages)
    np.testing.assert_allclose(mine, score(model.eval(), pairs, queries, passages), atol=1e-6)
    asked = [Queries.read(world.queries)["text"][int(i)].as_py() for i in queries]
    table = Passages.read(world.passages)
    texts = [table["text"][int(i)].as_py() for i in passages]
    told = [
        load_tokenizer(world.backbone).decode(pairs.passages.take(np.array([i])).values, skip_special_tokens=False)
        for i in passages
    ]
    assert all(text.split()[-1] in read for text, read in zip(texts, told, strict=True))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    with torch.no_grad():
        logits = classifier(**tokenizer(asked, told, padding=True, return_tensors="pt")).logits[:, 0]
    np.testing.assert_allclose(mine, logits.numpy(), atol=1e-5)
    theirs = Theirs(str(tmp_path / "model"), device="cpu")
    found = theirs.predict(list(zip(asked, told, strict=True)), activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(mine, found, atol=1e-5)


def test_bfloat16_scores_are_near_and_finely_graded(world: Any, pairs: Pairs) -> None:
    queries, passages = drawn(200, pairs)
    exact, near = (
        score(for_inference(world.backbone, p, ALONE.device), pairs, queries, passages) for p in ("fp32", "bf16")
    )
    assert np.abs(exact - near).max() < 0.02
    assert len(np.unique(near)) > 0.9 * len(np.unique(exact))  # a bfloat16 head would leave a handful of values


def test_a_head_is_drawn_from_the_seed(world: Any) -> None:
    weights = [load_crossencoder(world.backbone, seed=seed).classifier.classifier.weight for seed in (1, 1, 2)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(Refusal, match=r"model\.safetensors: no such file$"):
        load_crossencoder(tmp_path)


def test_micro_batches_add_up_to_the_loss_of_the_whole(world: Any, pairs: Pairs, tmp_path: Path) -> None:
    table, names = Queries.read(world.queries), Tokens.read(world.tokens)["passage_id"].to_pylist()
    rows = [(q, p) for q in table["query_id"].to_pylist() for p in names]
    run = ordered([q for q, _ in rows], [p for _, p in rows], np.random.default_rng(2).random(len(rows)))
    from stages.artifacts.tables import Run

    Run.write(tmp_path / "run", run)
    inputs = Inputs(world.tokens, world.queries, world.qrels, world.passages, (tmp_path / "run",))
    asking, _, groups = read_groups(inputs, Rules(), 0, 1.0)
    own = Pairs(tokenised(asking.texts, load_tokenizer(world.backbone)), pairs.passages, pairs.vocabulary, 64, 16)
    sampler = Sampler(groups, 6, 4, seed=3)
    model = Reranker(load_crossencoder(world.backbone))

    def loss_and_gradient(budget: int, processes: list[Processes]) -> tuple[float, torch.Tensor]:
        model.zero_grad()
        total = 0.0
        for process in processes:
            for part in Batches(sampler, own, budget, budget // 2, process)(2):
                loss, _ = model(part, {"queries": 6})
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.item()
        return total, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    whole = loss_and_gradient(10**6, [ALONE])
    parts = loss_and_gradient(150, [ALONE])
    shared = loss_and_gradient(10**6, [Processes(rank, 2, ALONE.device) for rank in (0, 1)])
    for loss, gradient in (parts, shared):
        assert loss == pytest.approx(whole[0], rel=1e-5)
        torch.testing.assert_close(gradient, whole[1], atol=1e-6, rtol=1e-4)
    drawn_now = sampler.step(2)
    scores = [
        score(model.model.eval(), own, np.repeat(groups.queries[g], 4), p)
        for g, p in zip(drawn_now.groups, drawn_now.passages, strict=True)
    ]
    slow = -np.mean([s[0] - np.log(np.exp(s.astype(np.float64)).sum()) for s in scores])
    assert whole[0] == pytest.approx(slow, rel=1e-5)


def groups_of(pairs: Pairs) -> Batch:
    """Five groups of six pairs, in chunks of like length."""
    rng = np.random.default_rng(4)
    queries, passages = rng.integers(0, len(pairs.queries), 5), rng.integers(0, len(pairs.passages), (5, 6))
    prior = rng.normal(size=(5, 6)).astype(np.float32)
    batches = Batches(None, pairs, 999, 300, ALONE)  # type: ignore[arg-type]
    return batches._batch(queries, passages, prior)


def test_the_forward_factor_keeps_the_positive_and_the_highest_scores(world: Any, pairs: Pairs) -> None:
    model = Reranker(load_crossencoder(world.backbone, dropout=0.1), prior=0.5, factor=2)
    torch.nn.init.normal_(model.model.classifier.classifier.weight)
    batch = groups_of(pairs)
    model.eval()
    with torch.no_grad():
        scores = model.scores(batch)
        kept = model.hardest(batch)
        model.eval()
        found = model.scores(kept)
    assert found.shape == (5, 3)
    for row, whole in zip(found.tolist(), scores.tolist(), strict=True):
        assert row == pytest.approx([whole[0], *sorted(whole[1:], reverse=True)[:2]], abs=1e-5)
    assert sum(len(some.ids) for some in kept.pairs) == 15


def test_r_drop_is_the_mean_of_two_passes_and_their_distance(world: Any, pairs: Pairs) -> None:
    model = Reranker(load_crossencoder(world.backbone, dropout=0.3), r_drop=True)
    torch.nn.init.normal_(model.model.classifier.classifier.weight)
    model.train()
    batch = groups_of(pairs)
    torch.manual_seed(3)
    loss, observed = model(batch, {"queries": 5})
    torch.manual_seed(3)
    one, other = model.scores(batch), model.scores(batch)
    assert not torch.allclose(one, other)
    expected = 0.5 * (listwise(one) + listwise(other)) + consistent(one, other)
    assert loss.item() == pytest.approx(expected.item() / 5, rel=1e-6)
    assert observed["consistency"][0].item() > 0


def test_config_says_one_label(world: Any) -> None:
    model: CrossEncoder = load_crossencoder(world.backbone, dropout=0.25)
    assert model.config.num_labels == 1
    assert model.config.hidden_dropout_prob == model.config.classifier_dropout == 0.25
