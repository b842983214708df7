"""The two commands, from passages to texts."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from stages.__main__ import app
from stages.artifacts.checkpoints import load_tokenizer
from stages.artifacts.documents import read_json
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Queries, Texts
from stages.augmentation import continuations, doc2query
from stages.generating import shards
from tests.conftest import World
from tests.generating.build import model

SMALL: dict[str, Any] = {"layers": 1, "width": 32, "steps": 3, "batch": 4, "new_pieces": 6, "prompt_pieces": 20}
DRAWN = {"new_pieces": 6, "prompt_pieces": 20}
COMMANDS = ("doc2query", "continuations")


def run(command: str, world: World, out: Path, **options: Any) -> bytes:
    metrics = out.with_suffix(".json")
    if command == "doc2query":
        doc2query(world.passages, world.queries, world.qrels, world.backbone, out, metrics, **options)
    else:
        continuations(world.passages, world.backbone, out, metrics, **options)
    return out.read_bytes()


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards.write_shards, "__defaults__", (20,))


@pytest.fixture
def checkpoints(world: World, tmp_path: Path) -> dict[str, str]:
    """Folders as transformers saves them: one generator for each command."""
    folders = {}
    for command, family, mark in (
        ("doc2query", "encoder-decoder", "$A [SEP]"),
        ("continuations", "causal", "$A"),
    ):
        tokenizer = load_tokenizer(world.backbone)
        special = [("[SEP]", tokenizer.token_to_id("[SEP]"))] if "SEP" in mark else []
        tokenizer.post_processor = TemplateProcessing(single=mark, special_tokens=special)
        folder = tmp_path / f"{command}-checkpoint"
        model(family, Path(world.backbone)).save_pretrained(folder)
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="[PAD]", eos_token="[SEP]", unk_token="[UNK]"
        ).save_pretrained(folder)
        folders[command] = str(folder)
    return folders


@pytest.mark.parametrize("command", COMMANDS)
def test_every_passage_gets_texts_and_the_work_leaves_nothing(world: World, command: str, tmp_path: Path) -> None:
    run(command, world, tmp_path / "out.parquet", **SMALL)
    table = Texts.read(tmp_path / "out.parquet")
    assert table["passage_id"].to_pylist() == Passages.read(world.passages)["passage_id"].to_pylist()
    each = 3 if command == "doc2query" else 1
    assert {len(text.split("\n")) for text in table["text"].to_pylist()} == {each}
    metrics = read_json(tmp_path / "out.json")
    assert metrics["texts"] == each * table.num_rows
    assert metrics["without_text_share"] == 0
    assert set(metrics) == {"loss", "texts", "mean_pieces", "distinct_share", "without_text_share", "speed"}
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("source", ["own", "checkpoint"])
def test_a_killed_run_ends_with_the_same_bytes(
    world: World,
    command: str,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small_shards: None,
    checkpoints: dict[str, str],
) -> None:
    options = SMALL if source == "own" else {**DRAWN, "checkpoint": checkpoints[command]}
    whole = run(command, world, tmp_path / "whole.parquet", **options)
    original, begun = shards._write_shard, []

    def killed(*args: Any) -> Any:
        begun.append(args[3])
        if len(begun) == 2:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(shards, "_write_shard", killed)
    with pytest.raises(KeyboardInterrupt):
        run(command, world, tmp_path / "twice.parquet", **options)
    assert not (tmp_path / "twice.parquet").exists()
    assert run(command, world, tmp_path / "twice.parquet", **options) == whole
    assert begun == [0, 1, 1, 2]
    ours, theirs = read_json(tmp_path / "twice.json"), read_json(tmp_path / "whole.json")
    assert {**ours, "speed": 0} == {**theirs, "speed": 0}


@pytest.mark.parametrize("command", COMMANDS)
def test_another_seed_is_another_text(world: World, command: str, tmp_path: Path, checkpoints: dict[str, str]) -> None:
    one, same, other = (
        run(command, world, tmp_path / f"{name}.parquet", checkpoint=checkpoints[command], seed=seed, **DRAWN)
        for name, seed in (("one", 1), ("same", 1), ("other", 2))
    )
    assert one == same != other


def test_a_checkpoint_needs_no_training_queries(world: World, tmp_path: Path, checkpoints: dict[str, str]) -> None:
    queries = tmp_path / "queries.parquet"
    Queries.write(queries, {"query_id": ["a"], "text": ["b"], "split": ["test"]})
    out = tmp_path / "out.parquet"
    doc2query(
        world.passages, queries, world.qrels, world.backbone, out, checkpoint=checkpoints["doc2query"], count=2, **DRAWN
    )
    assert {len(text.split("\n")) for text in Texts.read(out)["text"].to_pylist()} == {2}


def refused(command: str, world: World, tmp_path: Path, **options: Any) -> str:
    with pytest.raises(Refusal) as refusal:
        run(command, world, tmp_path / "out.parquet", **options)
    assert not (tmp_path / "out.parquet").exists()
    assert not (tmp_path / "scratch").exists()
    return str(refusal.value)


def test_unfit_checkpoints_are_refused(world: World, tmp_path: Path, checkpoints: dict[str, str]) -> None:
    t5, gpt2 = checkpoints["doc2query"], checkpoints["continuations"]
    missing, bare = tmp_path / "missing", tmp_path / "bare"
    bare.mkdir()
    assert refused("doc2query", world, tmp_path, checkpoint=str(missing)) == f"checkpoint {missing}: no such folder"
    assert refused("doc2query", world, tmp_path, checkpoint=str(bare)) == f"{bare}/config.json: no such file"
    line = refused("doc2query", world, tmp_path, checkpoint=gpt2)
    assert line == f"checkpoint {gpt2}: a gpt2 model is not an encoder-decoder"
    line = refused("continuations", world, tmp_path, checkpoint=t5)
    assert line == f"checkpoint {t5}: a t5 model is not a causal language model"
    line = refused("continuations", world, tmp_path, checkpoint=gpt2, prompt_pieces=60, new_pieces=8)
    assert line == f"prompt-pieces 60 + new-pieces 8: checkpoint {gpt2} has 64 positions"


def test_other_bad_input_is_refused(world: World, tmp_path: Path) -> None:
    empty = tmp_path / "empty.parquet"
    Passages.write(empty, {name: [] for name in Passages.schema.names})
    with pytest.raises(Refusal, match=f"^{empty}: no rows$"):
        continuations(empty, world.backbone, tmp_path / "out.parquet")
    with pytest.raises(Refusal, match=f"^{tmp_path}/tokenizer.json: no such file"):
        continuations(world.passages, tmp_path, tmp_path / "out.parquet")
    line = f"doc2query {world.passages} q r {world.backbone} {tmp_path}/out.parquet --count 0"
    result = CliRunner().invoke(app, shlex.split(line))
    assert result.exit_code == 2
    assert "Invalid value for '--count'" in result.output
