"""Chunks of documents: no word lost, none too long, and back to documents by MaxP."""

from pathlib import Path

import pytest

from stages.artifacts.checkpoints import load_tokenizer
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Tokens
from stages.chunks import chunks
from stages.sources.msmarco_documents import MsMarcoDocuments
from stages.tokens import tokens
from tests.conftest import World


@pytest.mark.parametrize(("pieces", "most"), [(8, 100), (13, 100), (13, 2), (512, 4)])
def test_every_word_is_in_one_chunk(world: World, tmp_path: Path, pieces: int, most: int) -> None:
    chunks(world.passages, world.backbone, tmp_path / "chunks", pieces=pieces, most=most)
    whole = {row["passage_id"]: row for row in Passages.read(world.passages).to_pylist()}
    parts: dict[str, list[str]] = {name: [] for name in whole}
    for row in Passages.read(tmp_path / "chunks").to_pylist():
        of = parts[row["document_id"]]
        assert row["passage_id"] == f"{row['document_id']}#{row['position']}"
        assert row["position"] == len(of) < most
        assert row["title"] == ("" if of else whole[row["document_id"]]["title"])
        of.append(row["text"])
    tokenizer = load_tokenizer(world.backbone)
    for name, texts in parts.items():
        words = whole[name]["text"].split()
        assert " ".join(texts).split() == words[: len(" ".join(texts).split())]
        if most == 100:
            assert len(" ".join(texts).split()) == len(words)
        assert all(texts[1:])
        for text, title in zip(texts, [whole[name]["title"], *[""] * len(texts)], strict=False):
            length = len(tokenizer.encode(f"{title} {text}".strip(), add_special_tokens=False).ids)
            assert length <= max(pieces - 2, len(tokenizer.encode(title, add_special_tokens=False).ids))
    tokens(tmp_path / "chunks", world.backbone, tmp_path / "tokens", longest=pieces - 2)
    assert Tokens.count(tmp_path / "tokens") == sum(map(len, parts.values()))


def test_a_word_longer_than_a_chunk_is_cut(world: World, tmp_path: Path) -> None:
    long = "ba" * 40
    row = {"passage_id": ["d"], "document_id": ["d"], "position": [0], "title": ["ba ke li mo nu ra se ti"]}
    Passages.write(tmp_path / "in", {**row, "text": [f"ke {long} li"]})
    chunks(tmp_path / "in", world.backbone, tmp_path / "out", pieces=8, most=100)
    texts = Passages.read(tmp_path / "out")["text"].to_pylist()
    assert texts[0] == ""  # the title has taken all of it
    assert "".join(texts).replace(" ", "") == f"ke{long}li"
    Passages.write(tmp_path / "none", Passages.schema.empty_table())
    with pytest.raises(Refusal, match=r"none: no rows$"):
        chunks(tmp_path / "none", world.backbone, tmp_path / "out")


def test_ms_marco_documents(tmp_path: Path) -> None:
    (tmp_path / "msmarco-docs.tsv").write_text("D1\thttp://x\tTitle\tBody one\nD2\thttp://y\t\tBody\n")
    (tmp_path / "msmarco-docdev-queries.tsv").write_text("7\twhat\n")
    (tmp_path / "msmarco-docdev-qrels.tsv").write_text("7 0 D2 1\n")
    source = MsMarcoDocuments(tmp_path)
    assert [row[:5] for row in source.passages()] == [
        ("D1", "D1", 0, "http://x Title", "Body one"),
        ("D2", "D2", 0, "http://y", "Body"),
    ]
    assert [query[:2] for query in source.queries()] == [("7", "what")]
    assert [line[:4] for line in source.judgements()] == [("dev", "7", "D2", 1)]
    assert source.count() == 2
    with pytest.raises(Refusal, match=r"neither msmarco-doctrain-qrels.tsv nor msmarco-docdev-qrels.tsv is there$"):
        MsMarcoDocuments(tmp_path / "elsewhere")
    (tmp_path / "msmarco-docs.tsv").write_text("D1\thttp://x\tTitle\n")
    with pytest.raises(Refusal, match=r"msmarco-docs.tsv: row 1: 3 columns, expected 4$"):
        list(source.passages())
