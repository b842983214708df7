"""The mine chapter: a run in the total order, the same as brute force."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.artifacts.checkpoints import load_tokenizer, load_vocabulary
from stages.artifacts.documents import read_json
from stages.artifacts.ragged import read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Queries, Run, Tokens
from stages.embedding.pieces import tokenised
from stages.embedding.vectors import encode_rows
from stages.mining import mine
from stages.ranking.encoding import for_inference
from stages.ranking.runs import by_query
from stages.training.processes import join


def vectors(world: Any, *splits: str) -> tuple[list[dict[str, str]], np.ndarray, np.ndarray]:
    """The queries of some splits, their float64 vectors, and those of all passages, cut at 40 pieces."""
    encoder = for_inference(world.backbone, "fp32", join().device).vectors_only()
    vocabulary = load_vocabulary(world.backbone)
    pieces = read_ragged(Tokens, world.tokens, "pieces")
    asked = [row for row in Queries.read(world.queries).to_pylist() if row["split"] in splits]
    texts = tokenised([row["text"] for row in asked], load_tokenizer(world.backbone))
    queries = encode_rows(encoder, texts, np.arange(len(asked)), vocabulary, 32).astype(np.float64)
    passages = encode_rows(encoder, pieces, np.arange(len(pieces)), vocabulary, 40).astype(np.float64)
    return asked, queries, passages


def test_ranks_every_query_of_the_splits_as_brute_force_does(world: Any, tmp_path: Path) -> None:
    mine(
        world.backbone, world.tokens, world.queries, tmp_path / "run",
        splits=["dev", "test"], depth=7, longest=40, precision="fp32", metrics=tmp_path / "metrics.json",
    )  # fmt: skip
    asked, queries, passages = vectors(world, "dev", "test")
    names = Tokens.read(world.tokens)["passage_id"].to_pylist()
    found = list(by_query(tmp_path / "run"))  # refuses what is out of order
    assert [query for query, _, _ in found] == [row["query_id"] for row in asked]
    for (_, ranking, scores), query in zip(found, queries, strict=True):
        products = (passages @ query).astype(np.float32)
        expected = sorted(zip(-products, names, strict=True))[:7]
        assert ranking == [name for _, name in expected]
        np.testing.assert_allclose(scores, [-score for score, _ in expected], rtol=1e-5)
    told = read_json(tmp_path / "metrics.json")
    assert told["precision"] == "fp32"
    assert told["counts"] == {"queries": len(asked), "passages": len(passages)}
    assert told["speed"]["passage_tokens_per_second"] > 0


def test_feedback_moves_queries_towards_what_they_find_first(world: Any, tmp_path: Path) -> None:
    mine(
        world.backbone, world.tokens, world.queries, tmp_path / "run",
        splits=["dev"], depth=9, longest=40, feedback=3, feedback_weight=0.6, precision="fp32",
    )  # fmt: skip
    _, queries, passages = vectors(world, "dev")
    for (_, _, scores), query in zip(by_query(tmp_path / "run"), queries, strict=True):
        first = sorted(passages, key=lambda passage: -(passage @ query))[:3]
        towards = query + 0.6 * sum(first) / 3
        towards *= np.linalg.norm(query) / np.linalg.norm(towards)
        np.testing.assert_allclose(scores, sorted(passages @ towards)[::-1][:9], rtol=1e-5)


def test_feedback_of_no_weight_is_none(world: Any, tmp_path: Path) -> None:
    for name, passages in (("plain", 0), ("still", 4)):
        options = {"depth": 5, "feedback": passages, "feedback_weight": 0.0}
        mine(world.backbone, world.tokens, world.queries, tmp_path / name, splits=["test"], **options)  # type: ignore[arg-type]
    plain, still = (Run.read(tmp_path / name) for name in ("plain", "still"))
    assert plain["query_id"].equals(still["query_id"])
    np.testing.assert_allclose(plain["score"].to_numpy(), still["score"].to_numpy(), rtol=1e-6)


def test_another_split_of_the_same_model_encodes_no_passage_again(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine(world.backbone, world.tokens, world.queries, tmp_path / "one", splits=["dev"], depth=3)
    assert "encode passages" in capsys.readouterr().err
    mine(world.backbone, world.tokens, world.queries, tmp_path / "two", splits=["test"], depth=3)
    assert "encode passages" not in capsys.readouterr().err


def test_a_depth_beyond_the_corpus_ranks_all_of_it(world: Any, tmp_path: Path) -> None:
    mine(world.backbone, world.tokens, world.queries, tmp_path / "run", splits=["dev"], depth=1000)
    count = Tokens.count(world.tokens)
    assert all(len(ranking) == count for _, ranking, _ in by_query(tmp_path / "run"))


def test_nothing_to_rank_is_refused_before_any_work(world: Any, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"queries\.parquet: no query of split final$"):
        mine(world.backbone, world.tokens, world.queries, tmp_path / "run", splits=["final"])
    with pytest.raises(Refusal, match=r"not a Tokens table"):
        mine(world.backbone, world.passages, world.queries, tmp_path / "run")
    Tokens.write(tmp_path / "none", {"passage_id": [], "pieces": [], "words": [], "word_of_piece": []})
    with pytest.raises(Refusal, match=r"none: no passages$"):
        mine(world.backbone, tmp_path / "none", world.queries, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_same_bytes_again(world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        monkeypatch.setenv("ISTHMUS_SCRATCH", str(tmp_path / f"scratch-{name}"))
        mine(world.backbone, world.tokens, world.queries, tmp_path / name, depth=20)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert Run.count(tmp_path / "one") == 20 * Queries.count(world.queries)
