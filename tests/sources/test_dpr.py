"""DPR's files: real excerpts, the retriever's data in its own form, and what is refused."""

import json
import re
from pathlib import Path

import pytest

from stages.artifacts.refusal import Refusal
from stages.sources import lines
from stages.sources.dpr import Dpr
from stages.sources.splits import read_labels

FIXTURES = Path(__file__).parents[3] / "shared" / "data" / "fixtures"
needs_data = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the real collections are not beside the project")

BLOCKS = 'id\ttext\ttitle\n1\t"one ""two"""\tA\n2\ttwo\tA\n3\tthree\t"B ""b"""\n4\tfour\tA\n'
TRAIN = [
    {"question": "q one", "answers": ["x"], "positive_ctxs": [{"passage_id": "2"}, {"passage_id": "3"}]},
    {"question": "q two", "answers": ["y"], "positive_ctxs": []},
    {"question": "q three", "answers": ["z", "Z"], "positive_ctxs": [{"psg_id": 4}]},
]
TEST = 'q four\t[\'four\', "it\'s"]\nq five\t"[\'fünf\', ""5 \'s""]"\n'


def folder(path: Path, **files: str) -> Dpr:
    usual = {"psgs_w100.tsv": BLOCKS, "nq-train.json": json.dumps(TRAIN, indent=4), "nq-test.qas.csv": TEST}
    for name, text in {**usual, **files}.items():
        if text:
            (path / name).write_text(text, encoding="utf-8")
    return Dpr(path)


def read_all(path: Path, files: dict[str, str]) -> list[object]:
    source = folder(path, **files)
    return [*source.passages(), *source.answers()]


def test_everything_of_a_small_folder(tmp_path: Path) -> None:
    source = folder(tmp_path)
    assert [passage[:5] for passage in source.passages()] == [
        ("1", "1", 0, "A", 'one "two"'),
        ("2", "1", 1, "A", "two"),
        ("3", "3", 0, 'B "b"', "three"),
        ("4", "4", 0, "A", "four"),
    ]
    assert [(query.query_id, query.text) for query in source.queries()] == [
        ("train-1", "q one"),
        ("train-3", "q three"),
        ("test-1", "q four"),
        ("test-2", "q five"),
    ]
    assert [line[:4] for line in source.judgements()] == [("train", "train-1", "2", 1), ("train", "train-3", "4", 1)]
    labels = read_labels(source, 0.0, False)
    assert labels.splits == {"train-1": "train", "train-3": "train", "test-1": "test", "test-2": "test"}
    assert labels.answers == {
        "train-1": ["x"],
        "train-3": ["z", "Z"],
        "test-1": ["four", "it's"],
        "test-2": ["fünf", "5 's"],
    }


@pytest.mark.parametrize("characters", [1, 7, 64])
def test_an_array_is_read_in_parts_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, characters: int
) -> None:
    monkeypatch.setattr(lines, "CHARACTERS", characters)
    path = tmp_path / "array.json"
    for indent in (None, 4):
        path.write_text("\n" + json.dumps(TRAIN, indent=indent) + "\n", encoding="utf-8")
        assert list(lines.json_array(path)) == list(enumerate(TRAIN, start=1))


@needs_data
def test_the_real_excerpts(tmp_path: Path) -> None:
    for name, original in (
        ("psgs_w100.tsv", "dpr/psgs_w100.sample.tsv"),
        ("nq-test.qas.tsv", "dpr/nq-test.qas.tsv"),
        ("NQ-open.dev.jsonl", "nq-open/NQ-open.dev.jsonl"),
    ):
        (tmp_path / name).symlink_to((FIXTURES / original).resolve())
    source = Dpr(tmp_path)
    passages, queries, answers = list(source.passages()), list(source.queries()), list(source.answers())
    assert (len(passages), len(queries), list(source.judgements())) == (1000, 7220, [])
    assert [(passage.passage_id, passage.text[:20]) for passage in (passages[0], passages[-1])] == [
        ("1", "The first Nobel Priz"),
        ("1000", "Since the creation o"),
    ]
    assert passages[-1].title == "FA Cup"
    assert queries[0].text == "when was the last time anyone was on the moon"
    assert [answer.text for answer in answers if answer.query_id == "test-37"] == [
        "Solange Knowles",
        "Destiny 's Child",
    ]
    # the same questions in two files, known again by their text, are tested on and not developed on
    labels = read_labels(source, 0.0, False)
    assert labels.shared["dev_test"] > 3500
    assert list(labels.splits.values()).count("test") == 3610


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({"psgs_w100.tsv": "id\ttext\n1\tx\n"}, "psgs_w100.tsv: row 1: 2 columns, expected 3"),
        ({"psgs_w100.tsv": "a\tb\tc\n"}, "psgs_w100.tsv: row 1: the header is not id text title, separated by tabs"),
        ({"nq-test.qas.csv": "q\n"}, "nq-test.qas.csv: row 1: 1 columns, expected 2"),
        ({"nq-test.qas.csv": "q\t[1]\n"}, "nq-test.qas.csv: row 1: column answers is no list of strings"),
        ({"nq-test.qas.csv": "q\tf(1)\n"}, "nq-test.qas.csv: row 1: column answers is no list: 'f(1)'"),
        ({"nq-train.json": "{}"}, "nq-train.json: row 1: not a JSON array of objects"),
        ({"nq-train.json": "[3]"}, "nq-train.json: row 1: not a JSON object"),
        ({"nq-train.json": '[{"question": "q"'}, "nq-train.json: row 1: not a JSON array of objects"),
        ({"nq-train.json": '[{"question": 1}]'}, "nq-train.json: row 1: column positive_ctxs is no list of objects"),
        (
            {"nq-train.json": '[{"question": "q", "answers": [], "positive_ctxs": [{"id": 1}]}]'},
            "nq-train.json: row 1: column positive_ctxs: neither passage_id nor psg_id is there",
        ),
        ({"trivia-train.json": "[]"}, "trivia-train.json: there is another file of split train: nq-train.json"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, files: dict[str, str], line: str) -> None:
    with pytest.raises(Refusal, match=f"^{re.escape(f'{tmp_path}/{line}')}$"):
        read_all(tmp_path, files)
