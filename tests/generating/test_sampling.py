"""Draws against transformers' own logits processors; writing against its ``generate``."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig
from transformers.generation.logits_process import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from stages.artifacts.ragged import Ragged
from stages.generating import sampling
from stages.generating.sampling import Sampling, draw, sample
from tests.conftest import World
from tests.generating.build import generator

FAMILIES = ("causal", "encoder-decoder")
DRAWS = 4001


def expected(logits: torch.Tensor, how: Sampling) -> torch.Tensor:
    """The distribution that transformers would draw from."""
    ids = torch.zeros(1, 1, dtype=torch.long)
    scores = TemperatureLogitsWarper(how.temperature)(ids, logits)
    if how.top_k:
        scores = TopKLogitsWarper(how.top_k)(ids, scores)
    if how.top_p < 1:
        scores = TopPLogitsWarper(how.top_p)(ids, scores)
    return torch.softmax(scores, -1)[0]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 50]),
    top_p=st.sampled_from([0.2, 0.9, 1.0]),
)
def test_draws_follow_the_distribution_of_transformers(seed: int, temperature: float, top_k: int, top_p: float) -> None:
    logits = torch.randn(1, 30, generator=torch.Generator().manual_seed(seed)) * 2
    how = Sampling(1, 1, temperature, top_k, top_p)
    noise = torch.linspace(0, 1, DRAWS)[:-1]
    shares = torch.bincount(draw(logits.expand(DRAWS - 1, -1), noise, how), minlength=30) / (DRAWS - 1)
    torch.testing.assert_close(shares, expected(logits, how), atol=2 / DRAWS, rtol=0)


def test_the_largest_number_below_one_draws_nothing_that_is_cut_off() -> None:
    logits = torch.log(torch.tensor([[0.6, 0.3, 0.1]]))
    noise = torch.tensor([np.nextafter(np.float32(1), np.float32(0))])
    assert draw(logits, noise, Sampling(1, 1, top_p=0.5)).tolist() == [0]
    assert draw(logits, noise, Sampling(1, 1, top_k=2)).tolist() == [1]


def prompts(count: int = 7) -> Ragged:
    """Prompts of 0 to 12 pieces."""
    rng = np.random.default_rng(5)
    return Ragged.of([rng.integers(5, 100, 2 * row) for row in range(count)], np.int64)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_best_pieces_are_those_of_generate(world: World, family: str) -> None:
    made = generator(family, Path(world.backbone))
    rows = prompts().take(np.arange(1, 7))
    found = sample(made, rows, np.zeros((6, 9), np.float32), Sampling(1, 9, top_k=1))
    config = GenerationConfig(
        max_new_tokens=9,
        do_sample=False,
        eos_token_id=made.end,
        pad_token_id=made.end,
        decoder_start_token_id=getattr(made.model.config, "decoder_start_token_id", None),
        suppress_tokens=made.mute.tolist(),
        begin_suppress_tokens=made.mute_first.tolist(),
    )
    for row, text in enumerate(found):
        alone = torch.from_numpy(rows.take(np.array([row])).padded())
        out: Any = made.model.generate(alone, attention_mask=torch.ones_like(alone), generation_config=config)[0]
        ids = out[1:] if family != "causal" else out[alone.shape[1] :]
        wanted = ids.tolist()
        assert text.tolist() == wanted[: wanted.index(made.end) if made.end in wanted else None]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_does_not_depend_on_its_batch_or_on_dropped_rows(
    world: World, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = generator(family, Path(world.backbone))
    with torch.no_grad():  # an end that comes often, so that rows do finish
        made.model.get_output_embeddings().weight[made.end] *= 4
    how = Sampling(2, 12, top_k=20)
    noise = np.random.default_rng(1).random((7, 2, 12), np.float32)
    together = sample(made, prompts(), noise.reshape(14, 12), how)
    assert len({len(text) for text in together}) >= 3
    assert min(len(text) for text in together) >= 1
    monkeypatch.setattr(sampling, "SHRINK", 0)
    assert [text.tolist() for text in sample(made, prompts(), noise.reshape(14, 12), how)] == [
        text.tolist() for text in together
    ]
    alone = [text for row in range(7) for text in sample(made, prompts().take(np.array([row])), noise[row], how)]
    assert [text.tolist() for text in alone] == [text.tolist() for text in together]


@pytest.mark.parametrize("family", FAMILIES)
def test_no_text_holds_a_special_piece_or_begins_inside_a_word(world: World, family: str) -> None:
    made = generator(family, Path(world.backbone))
    noise = np.random.default_rng(2).random((70, 12), np.float32)
    texts = sample(made, prompts(), noise, Sampling(10, 12, temperature=5.0))
    assert not np.isin(np.concatenate(texts), made.pieces.special()).any()
    assert len(made.pieces.inside()) > 0
    assert not np.isin([text[0] for text in texts], made.pieces.inside()).any()
