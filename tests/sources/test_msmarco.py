"""MS MARCO folders: a real head of the collection, the forms of qrels that are about, and every way of being wrong."""

import re
from pathlib import Path

import pytest

from stages.artifacts.refusal import Refusal
from stages.sources.msmarco import MsMarco

FIXTURES = Path(__file__).parents[3] / "shared" / "data" / "fixtures"
needs_data = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the real collections are not beside the project")


def folder(path, **files):
    usual = {"collection.tsv": "1\tone\n2\ttwo\n", "queries.train.tsv": "7\tseven\n", "qrels.train.tsv": "7\t0\t1\t1\n"}
    for name, text in {**usual, **files}.items():
        if text is not None:
            (path / name).write_text(text, encoding="utf-8")
    return path


@needs_data
def test_the_real_head_first_ninth_and_last_rows(tmp_path):
    real = {
        "collection.tsv": "msmarco/collection.head.tsv",
        "queries.dev.small.tsv": "msmarco/queries.dev.small.tsv",
        "qrels.dev.small.tsv": "msmarco/qrels.dev.small.tsv",
        "queries.test.tsv": "trec-dl/topics.dl20.txt",
        "qrels.test.tsv": "trec-dl/qrels.dl20-passage.txt",
    }
    for name, original in real.items():
        (tmp_path / name).symlink_to((FIXTURES / original).resolve())
    source = MsMarco(tmp_path)
    passages, queries, judgements = list(source.passages()), list(source.queries()), list(source.judgements())
    assert (len(passages), len(queries), len(judgements)) == (101, 6980 + 200, 7437 + 11386)
    assert source.count() == 101
    assert [(p[:4], p.row) for p in (passages[0], passages[8], passages[-1])] == [
        (("0", "0", 0, ""), 1),
        (("8", "8", 0, ""), 9),
        (("100", "100", 0, ""), 101),
    ]
    assert passages[1].text.startswith("The Manhattan Project and its atomic bomb")
    assert [(q.query_id, q.text[:18]) for q in (queries[0], queries[1], queries[6980])] == [
        ("1048585", "what is paula deen"),
        ("2", " Androgen receptor"),
        ("1030303", "who is aziz hashim"),
    ]
    assert queries[6980].text == "who is aziz hashim"
    assert [line[:4] for line in (judgements[0], judgements[8], judgements[7437])] == [
        ("dev", "300674", "7067032", 1),
        ("dev", "201376", "7068066", 1),
        ("test", "23849", "1020327", 2),
    ]


def test_every_form_of_qrels(tmp_path):
    for lines in ("7\t0\t1\t1\n", "7 Q0 1 1\n", "7\t1\t1\n", "7\t1\n", "7 0 1 1\r\n"):
        source = MsMarco(folder(tmp_path, **{"qrels.train.tsv": lines}))
        assert [line[:4] for line in source.judgements()] == [("train", "7", "1", 1)]


def test_the_small_development_set_is_taken(tmp_path):
    files = {"qrels.dev.tsv": "8\t1\n", "qrels.dev.small.tsv": "9\t1\n", "queries.dev.small.tsv": "9\tnine\n"}
    source = MsMarco(folder(tmp_path, **files))
    assert [(line.split, line.query_id) for line in source.judgements()] == [("train", "7"), ("dev", "9")]
    assert [query.query_id for query in source.queries()] == ["7", "9"]


def test_titles_may_leave_passages_out_but_not_change_their_order(tmp_path):
    collection = {"collection.tsv": "1\tone\n2\ttwo\n3\tthree\n4\tfour\n"}
    titled = folder(tmp_path, **collection, **{"para.title.txt": "2\tTwo\n3\t-\n4\tFour\n"})
    assert [passage.title for passage in MsMarco(titled).passages()] == ["", "Two", "", "Four"]
    swapped = folder(tmp_path, **collection, **{"para.title.txt": "3\tThree\n2\tTwo\n"})
    complaint = f"{tmp_path / 'para.title.txt'}: row 2: passage id 2 is unknown, or not in the collection's order"
    with pytest.raises(Refusal, match=re.escape(complaint)):
        list(MsMarco(swapped).passages())


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("collection.tsv", "", "empty file"),
        ("collection.tsv", None, "No such file or directory"),
        ("collection.tsv", "1\tone\n2 two\n", "row 2: 1 columns, expected 2"),
        ("collection.tsv", "1\tone\tmore\n", "row 1: 3 columns, expected 2"),
        ("queries.train.tsv", None, "No such file or directory"),
        ("queries.train.tsv", "7\n", "row 1: 1 columns, expected 2"),
        ("qrels.train.tsv", "7\n", "row 1: 1 columns, expected 2 to 4"),
        ("qrels.train.tsv", "7\t0\t1\t1\t1\n", "row 1: 5 columns, expected 2 to 4"),
        ("qrels.train.tsv", "7\t0\t1\tyes\n", "row 1: column relevance is not an integer: 'yes'"),
        ("para.title.txt", "1\n", "row 1: 1 columns, expected 2"),
        ("qrels.eval.tsv", "7\t1\n", "the name says neither of train, dev, test, nor one of them and small"),
    ],
)
def test_wrong_files_are_refused(tmp_path, name, text, complaint):
    folder(tmp_path, **{name: text})
    with pytest.raises(Refusal, match=re.escape(f"{tmp_path / name}: {complaint}")):
        read_all(MsMarco(tmp_path))


def read_all(source):
    return list(source.passages()), list(source.queries()), list(source.judgements())


def test_a_folder_without_qrels_is_refused(tmp_path):
    with pytest.raises(Refusal, match=re.escape(f"{tmp_path}: no qrels.*.tsv is there")):
        MsMarco(tmp_path)
