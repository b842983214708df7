"""Tiny generators from a configuration, with the tokenizer of the test world's backbone."""

from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

from stages.artifacts.checkpoints import load_tokenizer, load_vocabulary
from stages.generating.generators import Causal, EncoderDecoder, Generator
from stages.generating.pieces import Pieces


def model(family: str, backbone: Path, positions: int = 64) -> Any:
    """Random weights, large enough that pieces are not all alike."""
    vocabulary = load_vocabulary(backbone)
    torch.manual_seed(3)
    if family == "causal":
        config = GPT2Config(
            vocab_size=vocabulary.size,
            n_embd=32,
            n_layer=2,
            n_head=2,
            n_positions=positions,
            initializer_range=0.5,
            bos_token_id=vocabulary.sep,
            eos_token_id=vocabulary.sep,
            pad_token_id=vocabulary.pad,
        )
        return GPT2LMHeadModel(config).eval()
    config = T5Config(
        vocab_size=vocabulary.size,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        pad_token_id=vocabulary.pad,
        eos_token_id=vocabulary.sep,
        decoder_start_token_id=vocabulary.pad,
        initializer_factor=3.0,
    )
    return T5ForConditionalGeneration(config).eval()


def generator(family: str, backbone: Path) -> Generator:
    """A generator in float32, so that batches of different shape agree."""
    made = Causal if family == "causal" else EncoderDecoder
    return made(model(family, backbone), Pieces(load_tokenizer(backbone)), torch.device("cpu"))
