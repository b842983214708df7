"""A last layer of the first state alone: the same state, the same gradients, less work."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from stages.artifacts.attention import registered
from stages.artifacts.lastlayer import FAMILIES, read_first

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 96, "vocab_size": 50}


def built(family: str, kind: Any = AutoModel) -> Any:
    torch.manual_seed(1)
    config = AutoConfig.for_model(family, **SIZES, num_labels=1, pad_token_id=0)
    model = kind.from_config(config)
    model.set_attn_implementation(registered())
    return model.eval()


def inputs() -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 50, (4, 9), generator=torch.Generator().manual_seed(2))
    real = torch.arange(9) < torch.tensor([9, 2, 5, 1])[:, None]
    return {"input_ids": ids, "attention_mask": real[:, None, None, :]}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_state_and_every_gradient_stay(family: str) -> None:
    pull, found = torch.randn(4, 24, generator=torch.Generator().manual_seed(3)), []
    for shortened in (False, True):
        model = built(family)
        if shortened:
            read_first(model)
        states = model(**inputs()).last_hidden_state
        assert states.shape[1] == (1 if shortened else 9)
        (pull * states[:, 0]).sum().backward()  # not a norm: behind layer normalisation that is constant
        slopes = {name: part.grad for name, part in model.named_parameters() if part.grad is not None}
        found.append((states[:, 0].detach(), slopes))
    (whole, slopes), (first, others) = found
    torch.testing.assert_close(first, whole, rtol=1e-5, atol=1e-6)
    assert slopes.keys() == others.keys()
    for name, slope in slopes.items():
        torch.testing.assert_close(others[name], slope, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_classifier_scores_the_same_with_less_work(family: str, dtype: torch.dtype) -> None:
    model = built(family, AutoModelForSequenceClassification).to(dtype)
    names = list(model.state_dict())
    found = []
    for _ in range(2):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            scores = model(**inputs()).logits
        found.append((scores, counter.get_total_flops()))
        read_first(model)
    near = {"rtol": 0.05, "atol": 0.02} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(found[1][0], found[0][0], **near)
    assert found[1][1] < 0.75 * found[0][1]
    assert list(model.state_dict()) == names


def test_an_unknown_family_stays_as_it_is() -> None:
    config = AutoConfig.for_model("distilbert", dim=24, n_layers=2, n_heads=3, hidden_dim=48, vocab_size=50)
    model = AutoModel.from_config(config).eval()
    model.set_attn_implementation(registered())
    read_first(model)
    assert model(**inputs()).last_hidden_state.shape == (4, 9, 24)
