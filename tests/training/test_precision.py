"""What ``auto`` stands for on which hardware."""

from typing import Any

import pytest
import torch

from stages.training.precision import cpu_gains, resolved

XEON = {"cpu_name": "Intel Xeon", "architecture": "x86_64", "avx512_f": True}


@pytest.mark.parametrize(
    ("found", "gains"),
    [
        (XEON | {"avx512_bf16": False, "amx_bf16": False}, False),
        (XEON | {"avx512_bf16": True, "amx_bf16": False}, False),
        (XEON | {"avx512_bf16": True, "amx_bf16": True}, True),
        ({"cpu_name": "AMD EPYC 9B14", "avx512_bf16": True, "amx_bf16": False}, True),
        ({"cpu_name": "AMD EPYC 7B13", "avx512_bf16": False, "avx2": True}, False),
        ({"architecture": "aarch64", "neon": True, "bf16": True}, True),
        ({"architecture": "aarch64", "neon": True, "bf16": False}, False),
        ({}, False),
    ],
)
def test_processors(found: dict[str, Any], gains: bool) -> None:
    assert cpu_gains(found) == gains


@pytest.mark.parametrize("old", [True, False])
def test_a_gpu_decides_where_there_is_one(monkeypatch: pytest.MonkeyPatch, old: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: not old)
    monkeypatch.setattr("stages.training.precision.cpu_gains", lambda: old)
    assert resolved("auto") == ("fp32" if old else "bf16")


@pytest.mark.parametrize("gains", [True, False])
def test_the_processor_decides_where_there_is_none_and_a_name_stays(
    monkeypatch: pytest.MonkeyPatch, gains: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("stages.training.precision.cpu_gains", lambda: gains)
    assert resolved("auto") == ("bf16" if gains else "fp32")
    assert (resolved("bf16"), resolved("fp32")) == ("bf16", "fp32")
