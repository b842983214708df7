"""BEIR folders: real ones, and every way of being wrong."""

import json
import re
from pathlib import Path

import pytest

from stages.artifacts.refusal import Refusal
from stages.sources.beir import Beir
from stages.sources.collection import Judgement, Passage, Query

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the real collections are not beside the project")

BOOLQ_PASSAGES = [
    (("AA_wiki_01_15-0", "AA_wiki_01_15", 0, "Alaska"), "Alaska (; ; ; ) is a", 1),
    (("AA_wiki_01_15-8", "AA_wiki_01_15", 8, "Alaska"), "The most populous re", 9),
    (("KC_wiki_03_14-1", "KC_wiki_03_14", 1, "Veteran identification card"), "To qualify for the V", 47242),
]
BOOLQ_QUERIES = [
    ("bq0", "is alaska still part", 1),
    ("bq8", "is there work done i", 9),
    ("bq3770", "can i use my veteran", 2977),
]
BOOLQ_JUDGEMENTS = [
    ("train", "bq0", "AA_wiki_01_15-0", 1, 2),
    ("train", "bq6", "AA_wiki_03_1-12", 1, 10),
    ("dev", "bq3770", "KC_wiki_03_14-0", 1, 404),
]


@needs_data
def test_boolq_wiki_first_ninth_and_last_rows():
    source = Beir(DATA / "boolq-wiki")
    passages, queries, judgements = list(source.passages()), list(source.queries()), list(source.judgements())
    assert (len(passages), len(queries), len(judgements)) == (47242, 2977, 3295)
    assert source.count() == 47242
    assert [(p[:4], p.text[:20], p.row) for p in (passages[0], passages[8], passages[-1])] == BOOLQ_PASSAGES
    assert [(q.query_id, q.text[:20], q.row) for q in (queries[0], queries[8], queries[-1])] == BOOLQ_QUERIES
    assert [(*j[:4], j.row) for j in (judgements[0], judgements[8], judgements[-1])] == BOOLQ_JUDGEMENTS


@needs_data
@pytest.mark.parametrize(("name", "passages", "queries"), [("cranfield", 1398, 225), ("npl", 11429, 93)])
def test_collections_without_documents_are_their_own(name, passages, queries):
    source = Beir(DATA / name)
    found = list(source.passages())
    assert (len(found), len(list(source.queries()))) == (passages, queries)
    assert all(passage.document_id == passage.passage_id and passage.position == 0 for passage in found)
    assert {line.split for line in source.judgements()} == {"test"}


def folder(path, corpus=None, queries=None, qrels=None):
    (path / "qrels").mkdir()
    corpus = [{"_id": "p", "title": "T", "text": "x"}] if corpus is None else corpus
    queries = [{"_id": "q", "text": "y"}] if queries is None else queries
    for name, lines in (("corpus.jsonl", corpus), ("queries.jsonl", queries)):
        text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        (path / name).write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    lines = ["query-id\tcorpus-id\tscore", "q\tp\t1"] if qrels is None else qrels
    (path / "qrels" / "train.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return Beir(path)


def test_rows_say_where_they_come_from(tmp_path):
    corpus = ['{"_id": "p", "text": "x", "doc_id": "d", "position": 4}', "", '{"_id": "r", "text": "", "title": "T"}']
    source = folder(tmp_path, corpus)
    name = str(tmp_path / "corpus.jsonl")
    assert list(source.passages()) == [Passage("p", "d", 4, "", "x", name, 1), Passage("r", "r", 0, "T", "", name, 3)]
    assert list(source.queries()) == [Query("q", "y", str(tmp_path / "queries.jsonl"), 1)]
    assert list(source.judgements()) == [Judgement("train", "q", "p", 1, str(tmp_path / "qrels" / "train.tsv"), 2)]


def test_windows_files_are_read_too(tmp_path):
    source = folder(tmp_path)
    for path in tmp_path.rglob("*.*"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert [line[:4] for line in source.judgements()] == [("train", "q", "p", 1)]
    assert [query.text for query in source.queries()] == ["y"]


@pytest.mark.parametrize(
    ("corpus", "complaint"),
    [
        ([], "empty file"),
        (["\n"], "empty file"),
        ([{"_id": "p", "text": "x"}, "{"], "row 2: not JSON: "),
        (["[1]"], "row 1: not a JSON object"),
        ([{"text": "x"}], "row 1: column _id is missing"),
        ([{"_id": 1, "text": "x"}], "row 1: column _id is not a string"),
        ([{"_id": "p", "title": "x"}], "row 1: column text is missing"),
        ([{"_id": "p", "text": None}], "row 1: column text is not a string"),
        ([{"_id": "p", "text": "x", "title": 3}], "row 1: column title is not a string"),
        ([{"_id": "p", "text": "\ud800"}], "row 1: column text holds half a character (a lone surrogate)"),
        ([{"_id": "p", "text": "x", "doc_id": "d"}], "row 1: column position is None, not a count"),
        ([{"_id": "p", "text": "x", "doc_id": "d", "position": True}], "row 1: column position is True, not a count"),
        ([{"_id": "p", "text": "x", "doc_id": "d", "position": -1}], "row 1: column position is -1, not a count"),
        ([{"_id": "p", "text": "x", "doc_id": 7, "position": 1}], "row 1: column doc_id is not a string"),
    ],
)
def test_a_wrong_corpus_is_refused(tmp_path, corpus, complaint):
    source = folder(tmp_path, corpus=corpus)
    with pytest.raises(Refusal, match=re.escape(f"{tmp_path / 'corpus.jsonl'}: {complaint}")):
        list(source.passages())


@pytest.mark.parametrize(
    ("qrels", "complaint"),
    [
        ([], "empty file"),
        (["q\tp\t1"], "row 1: the header is not query-id corpus-id score, separated by tabs"),
        (["query-id\tcorpus-id\tscore", "q\tp"], "row 2: 2 columns, expected 3"),
        (["query-id\tcorpus-id\tscore", "q\t0\tp\t1"], "row 2: 4 columns, expected 3"),
        (["query-id\tcorpus-id\tscore", "", "q\tp\t1.5"], "row 3: column score is not an integer: '1.5'"),
        (["query-id\tcorpus-id\tscore", "q\tp\t128"], "row 2: column score is 128, outside -128…127"),
    ],
)
def test_wrong_qrels_are_refused(tmp_path, qrels, complaint):
    source = folder(tmp_path, qrels=qrels)
    with pytest.raises(Refusal, match=re.escape(f"{tmp_path / 'qrels' / 'train.tsv'}: {complaint}")):
        list(source.judgements())


def test_missing_and_undecodable_files_are_refused(tmp_path):
    complaint = f"{tmp_path / 'qrels'}: none of train.tsv, dev.tsv and test.tsv is there"
    with pytest.raises(Refusal, match=re.escape(complaint)):
        Beir(tmp_path)
    source = folder(tmp_path)
    (tmp_path / "queries.jsonl").write_bytes(b'{"_id": "q", "text": "y"}\n{"_id": "r", "text": "\xff"}\n')
    with pytest.raises(Refusal, match=re.escape(f"{tmp_path / 'queries.jsonl'}: row 2: not UTF-8")):
        list(source.queries())
    (tmp_path / "corpus.jsonl").unlink()
    with pytest.raises(Refusal, match=re.escape(f"{tmp_path / 'corpus.jsonl'}: No such file or directory")):
        list(source.passages())
