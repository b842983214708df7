"""A generator from a model folder or the hub; anything unfit is refused before work begins."""

import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from tokenizers import Tokenizer

from stages.artifacts.checkpoints import load_tokenizer
from stages.artifacts.documents import read_json
from stages.artifacts.files import refuse_missing
from stages.artifacts.names import CONFIG
from stages.artifacts.refusal import Refusal
from stages.generating.generators import Causal, EncoderDecoder, Generator
from stages.generating.pieces import Pieces
from stages.generating.sampling import Sampling
from stages.training.precision import Numbers

HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
Family = Literal["encoder-decoder", "causal"]


def check(checkpoint: str, family: Family, prompt_pieces: int, how: Sampling) -> None:
    """Raise `Refusal` unless there is such a checkpoint, of this family, for texts this long."""
    folder = Path(checkpoint)
    if folder.is_dir():
        refuse_missing(folder, CONFIG)
    elif not HUB_ID.fullmatch(checkpoint):
        raise Refusal(f"checkpoint {checkpoint}: no such folder")
    config = _from("AutoConfig", checkpoint)
    if bool(config.is_encoder_decoder) != (family == "encoder-decoder"):
        raise Refusal(f"checkpoint {checkpoint}: a {config.model_type} model is not {_article(family)}")
    positions = getattr(config, "max_position_embeddings", None)
    if family == "causal" and positions is not None and prompt_pieces + how.new_pieces > positions:
        wanted = f"prompt-pieces {prompt_pieces} + new-pieces {how.new_pieces}"
        raise Refusal(f"{wanted}: checkpoint {checkpoint} has {positions} positions")


def load(checkpoint: str, family: Family, precision: Numbers, device: torch.device) -> Generator:
    """The generator, ready to write.

    Weights are read from safetensors where there are any; else from a PyTorch file in the mode that
    only builds tensors, since some doc2query checkpoints have nothing else.

    Raises:
        Refusal: weights or tokenizer are missing or damaged.
    """
    auto = "AutoModelForSeq2SeqLM" if family == "encoder-decoder" else "AutoModelForCausalLM"
    model = _from(auto, checkpoint, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    generator = EncoderDecoder if family == "encoder-decoder" else Causal
    return generator(model, _pieces(checkpoint), device)


def _pieces(checkpoint: str) -> Pieces:
    """The tokenizer of a checkpoint, and the pieces that a generator of one's own knows."""
    listed = Path(checkpoint) / "pieces.json"
    if listed.is_file():
        return Pieces(load_tokenizer(checkpoint), np.asarray(read_json(listed), dtype=np.int64))
    tokenizer = getattr(_from("AutoTokenizer", checkpoint), "backend_tokenizer", None)
    if not isinstance(tokenizer, Tokenizer):
        raise Refusal(f"checkpoint {checkpoint}: has no fast tokenizer")
    return Pieces(tokenizer)


def _from(loader: str, checkpoint: str, **options: Any) -> Any:
    import transformers  # costs seconds: only when a checkpoint is really needed

    transformers.utils.logging.disable_progress_bar()
    try:
        return getattr(transformers, loader).from_pretrained(checkpoint, trust_remote_code=False, **options)
    except (OSError, ValueError) as error:
        raise Refusal(f"checkpoint {checkpoint}: {str(error).strip().splitlines()[0]}") from error


def _article(family: Family) -> str:
    return f"an {family}" if family[0] in "aeiou" else f"a {family} language model"
