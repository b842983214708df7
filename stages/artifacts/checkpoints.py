"""Models cross stages as sentence-transformers folders: safetensors, tokenizer, pooling, normalisation."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from stages.artifacts.attention import registered
from stages.artifacts.documents import read_json, write_json
from stages.artifacts.files import refuse_missing, whole
from stages.artifacts.heads import Head, load_head
from stages.artifacts.lastlayer import read_first
from stages.artifacts.names import CONFIG, HEADS, TOKENIZER, WEIGHTS
from stages.artifacts.refusal import Refusal
from stages.artifacts.tensors import load_tensors, save_tensors

Pooling = Literal["cls", "mean"]

TOKENIZER_FILES = (TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


@dataclass(frozen=True)
class Vocabulary:
    """The ids that collation needs: special pieces, and how many pieces there are."""

    size: int
    cls: int
    sep: int
    pad: int
    mask: int
    special: tuple[int, ...]


class TextEncoder(nn.Module):
    """A transformer and how its states become the one vector of a text.

    Attributes:
        transformer: any encoder of transformers that maps ids [B, L] to states [B, L, d].
        pooling: ``cls`` (the papers) or ``mean`` over the real pieces.
        normalise: whether vectors have length 1, so that their product is the cosine.
        head: what stands between pooling and normalisation; None: nothing.
    """

    def __init__(self, transformer: nn.Module, pooling: Pooling, normalise: bool, head: Head | None = None):
        super().__init__()
        self.transformer, self.pooling, self.normalise = transformer, pooling, normalise
        self.head = head

    @property
    def config(self) -> Any:
        """The transformer's configuration."""
        return self.transformer.config

    def vectors_only(self) -> "TextEncoder":
        """Itself, whose `states` nobody asks for any more: with [CLS] pooling all others need not be computed."""
        if self.pooling == "cls":
            read_first(self.transformer)
        return self

    @property
    def width(self) -> int:
        """Dimensions of a vector."""
        return self.head.width if self.head is not None else int(self.config.hidden_size)

    def states(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """[B, L] ids and [B] lengths (special pieces included) → [B, L, d] last-layer states."""
        real = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        states: Tensor = self.transformer(input_ids=ids, attention_mask=real[:, None, None, :]).last_hidden_state
        return states

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        """[B, L, d] states → [B, d]: the first state, or the mean over the real ones; without the head."""
        if self.pooling == "cls":
            return states[:, 0]
        real = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
        return (states * real[..., None]).sum(1) / lengths[:, None]

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """[B, L] ids and [B] lengths → [B, d] float32 vectors."""
        return self.finish(self.pool(self.states(ids, lengths), lengths))

    def finish(self, pooled: Tensor) -> Tensor:
        """[B, d] pooled states → [B, width] float32 vectors: through the head, and to length 1."""
        vectors = pooled.float() if self.head is None else self.head(pooled)
        return nn.functional.normalize(vectors, dim=-1) if self.normalise else vectors


def load_tokenizer(folder: Path | str) -> Tokenizer:
    """The fast tokenizer of a model folder, neither truncating nor padding.

    Text that spells a special piece (``[SEP]``) stays text.

    Raises:
        Refusal: the folder holds no tokenizer.json.
    """
    path = Path(folder) / TOKENIZER
    if not path.is_file():
        raise Refusal(f"{path}: no such file; a model folder needs a fast tokenizer")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def load_vocabulary(folder: Path | str) -> Vocabulary:
    """The special ids of a model folder's tokenizer.

    Raises:
        Refusal: it has no [CLS], [SEP], [PAD] or [MASK] (under any name).
    """
    tokenizer = load_tokenizer(folder)
    names = read_json(Path(folder) / "tokenizer_config.json")
    ids: dict[str, int] = {}
    for role, ours in (("cls_token", "cls"), ("sep_token", "sep"), ("pad_token", "pad"), ("mask_token", "mask")):
        named = names.get(role)
        content = named["content"] if isinstance(named, dict) else named
        found = tokenizer.token_to_id(content) if content else None
        if found is None:
            raise Refusal(f"{folder}/tokenizer_config.json: {role} is missing")
        ids[ours] = found
    special = tuple(sorted(key for key, piece in tokenizer.get_added_tokens_decoder().items() if piece.special))
    return Vocabulary(size=tokenizer.get_vocab_size(), special=special, **ids)


def load_encoder(folder: Path | str, dropout: float | None = 0.0) -> TextEncoder:
    """The encoder in a model folder, in float32, with the pooling that the folder states (else [CLS]).

    Args:
        dropout: probability for hidden states and attention; SDPA's fast path on a CPU needs 0. None: as stated.

    Raises:
        Refusal: the folder is no model folder, or its weights are not safetensors.
    """
    from transformers import AutoModel  # costs seconds: only when a model is really needed

    folder = Path(folder)
    refuse_missing(folder, CONFIG, WEIGHTS)
    quiet()
    stated = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout} if dropout is not None else {}
    transformer = AutoModel.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation=registered(),
        trust_remote_code=False,
        use_safetensors=True,
        local_files_only=True,
        **stated,
    )
    return TextEncoder(transformer, stated_pooling(folder), stated_normalisation(folder), load_head(folder))


def quiet() -> None:
    """Switch off transformers' bars for reading and writing weights: a stage shows its own progress."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()


def stated_pooling(folder: Path | str) -> Pooling:
    """``mean`` or ``cls`` as 1_Pooling/config.json says; [CLS], as in the papers, where it is silent."""
    path = Path(folder) / "1_Pooling" / "config.json"
    if path.is_file() and read_json(path).get("pooling_mode_mean_tokens"):
        return "mean"
    return "cls"


def stated_normalisation(folder: Path | str) -> bool:
    """Whether modules.json names a normalisation."""
    path = Path(folder) / "modules.json"
    return path.is_file() and any("Normalize" in module["type"] for module in read_json(path))


def save_encoder(
    encoder: TextEncoder, tokenizer_from: Path | str, folder: Path | str, heads: dict[str, Tensor] | None = None
) -> None:
    """Write the encoder as a sentence-transformers folder, whole or not at all.

    Args:
        tokenizer_from: the model folder whose tokenizer the encoder was trained with.
        heads: parameters to keep beside the encoder, in ``heads.safetensors``.
    """
    with whole(folder) as partial:
        write_encoder(encoder, tokenizer_from, partial)
        if heads:
            save_tensors(partial / HEADS, heads)


def write_encoder(encoder: TextEncoder, tokenizer_from: Path | str, folder: Path) -> None:
    """Write the files of `save_encoder` into a folder that is being made."""
    quiet()
    encoder.transformer.save_pretrained(folder)  # type: ignore[operator]
    copy_tokenizer(tokenizer_from, folder)
    describe(folder, encoder.pooling, encoder.normalise, encoder.config, encoder.head)


def copy_tokenizer(source: Path | str, target: Path) -> None:
    """Copy the tokenizer's files from one model folder to another."""
    for name in TOKENIZER_FILES:
        if (Path(source) / name).is_file():
            shutil.copyfile(Path(source) / name, target / name)


def describe(folder: Path, pooling: Pooling, normalise: bool, config: Any, head: Head | None = None) -> None:
    """Write the files by which sentence-transformers knows pooling, head, normalisation and length."""
    paths = ["", "1_Pooling", *(name for name, _ in (head.parts() if head is not None else ()))]
    paths += [f"{len(paths)}_Normalize"] * normalise
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{_kind(path)}"}
        for i, path in enumerate(paths)
    ]
    if head is not None:
        head.save(folder)
    pool = {"word_embedding_dimension": config.hidden_size}
    modes = {"pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean"}
    for name, document in {
        "modules.json": modules,
        "1_Pooling/config.json": pool | modes,
        "sentence_bert_config.json": {"max_seq_length": config.max_position_embeddings, "do_lower_case": False},
        "config_sentence_transformers.json": {"similarity_fn_name": "cosine" if normalise else "dot"},
    }.items():
        write_json(folder / name, document)


def _kind(path: str) -> str:
    return path.split("_")[-1] or "Transformer"


def load_heads(folder: Path | str) -> dict[str, Tensor]:
    """What `save_encoder` kept beside the encoder; empty where there is nothing.

    Raises:
        Refusal: the file is damaged.
    """
    path = Path(folder) / HEADS
    return load_tensors(path) if path.is_file() else {}
