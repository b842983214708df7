"""A run's data in other programs' forms, and its model as a folder with a card, here or on a Hub."""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import typer

from stages.artifacts.files import whole
from stages.artifacts.names import HEADS
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Queries
from stages.exporting.card import card as written
from stages.exporting.collections import FORMS, Tables
from stages.exporting.groups import tevatron
from stages.ranking.groups import Inputs, Rules
from stages.ranking.runs import by_query, write_trec

README = "README.md"

ModelPath = Annotated[Path, typer.Option(help="Model folder of the retriever.")]
ParamsPath = Annotated[Path, typer.Option(help="Parameters of the run.")]
RecipePath = Annotated[Path | None, typer.Option(help="Recipe; by default the one that the parameters name.")]
Evaluations = Annotated[Path, typer.Option(help="Folder of one collection's evaluations.")]
Significance = Annotated[Path, typer.Option(help="JSON that significance wrote.")]
CorpusPath = Annotated[Path, typer.Option(help="Metrics of the corpus.")]
Licence = Annotated[str | None, typer.Option(help="Licence of the model, as the Hub names it.")]

MODEL, PARAMS, EVALUATIONS = Path("models/retriever"), Path("params.yaml"), Path("metrics/evaluation/corpus")
SIGNIFICANCE, CORPUS = Path("metrics/significance.json"), Path("metrics/corpus.json")
RECIPES = Path("stages/recipes")


def export(
    form: Annotated[Literal["beir", "msmarco", "trec", "tevatron"], typer.Argument(help="What to write.")],
    out: Annotated[Path, typer.Argument(help="Folder (beir, msmarco) or file (trec, tevatron) to write.")],
    passages: Annotated[Path, typer.Option(help="Passages table.")] = Path("data/passages.parquet"),
    queries: Annotated[Path, typer.Option(help="Queries table.")] = Path("data/queries.parquet"),
    qrels: Annotated[Path, typer.Option(help="Qrels table.")] = Path("data/qrels.parquet"),
    tokens: Annotated[Path, typer.Option(help="Tokens table; tevatron.")] = Path("data/tokens.parquet"),
    run: Annotated[Path, typer.Option(help="Run that is written (trec) or proposes the negatives (tevatron).")] = Path(
        "data/runs/retriever2.parquet"
    ),
    splits: Annotated[list[str] | None, typer.Option(help="Splits of a run; all by default; trec.")] = None,
    negatives: Annotated[int, typer.Option(min=0, help="Negatives of a query, at most; tevatron.")] = 30,
    first: Annotated[int, typer.Option(min=1, help="First rank that gives negatives; tevatron.")] = 1,
    depth: Annotated[int, typer.Option(min=1, help="Deepest rank that gives negatives; tevatron.")] = 200,
) -> None:
    """Write the corpus, queries and qrels (beir, msmarco), a run (trec) or training groups (tevatron)."""
    if form in FORMS:
        with whole(out) as partial:
            FORMS[form](Tables(passages, queries, qrels), partial)
    elif form == "trec":
        wanted = _of_splits(queries, splits)
        write_trec((ranking for ranking in by_query(run) if ranking[0] in wanted), out, run.stem)
    else:
        tevatron(Inputs(tokens, queries, qrels, passages, run), Rules(first, depth), negatives, out)
    print(f"export: {out}", file=sys.stderr)


def _of_splits(queries: Path, splits: list[str] | None) -> set[str]:
    table = Queries.read(queries, ["query_id", "split"])
    if splits:
        table = table.filter(pc.is_in(table["split"], pa.array(splits, pa.string())))
    if not len(table):
        raise Refusal(f"{queries}: no query of splits {', '.join(splits or [])}")
    return set(table["query_id"].to_pylist())


def card(
    out: Annotated[Path, typer.Argument(help="Markdown file to write.")] = Path("metrics/card.md"),
    params: ParamsPath = PARAMS,
    recipe: RecipePath = None,
    evaluations: Evaluations = EVALUATIONS,
    significance: Significance = SIGNIFICANCE,
    corpus: CorpusPath = CORPUS,
    licence: Licence = None,
) -> None:
    """Write a model card from what ran: recipe, corpus, measures with intervals, licence, how to use it."""
    text = written(params, recipe or _recipe(params), evaluations, significance, corpus, licence, "retriever")
    with whole(out) as partial:
        partial.write_text(text, encoding="utf-8")


def push(
    repository: Annotated[str, typer.Argument(help="Name on the Hub: OWNER/NAME.")],
    model: ModelPath = MODEL,
    private: Annotated[bool, typer.Option(help="Make a new repository private.")] = True,
    params: ParamsPath = PARAMS,
    recipe: RecipePath = None,
    evaluations: Evaluations = EVALUATIONS,
    significance: Significance = SIGNIFICANCE,
    corpus: CorpusPath = CORPUS,
    licence: Licence = None,
) -> None:
    """Upload the model and its card to a Hub, as the user whom `hf auth login` made known."""
    from huggingface_hub import HfApi

    if not (model / "modules.json").is_file():
        raise Refusal(f"{model}: no sentence-transformers folder")
    text = written(params, recipe or _recipe(params), evaluations, significance, corpus, licence, "retriever")
    with TemporaryDirectory(prefix="isthmus-push-") as folder:
        ready = Path(folder) / "model"
        shutil.copytree(model, ready, ignore=shutil.ignore_patterns(HEADS))
        (ready / README).write_text(text, encoding="utf-8")
        api: Any = HfApi()
        api.create_repo(repository, private=private, exist_ok=True)
        typer.echo(api.upload_folder(repo_id=repository, folder_path=ready, commit_message="A retriever by Isthmus"))


def _recipe(params: Path) -> Path:
    from stages.artifacts.documents import read_yaml

    name = str(read_yaml(params)["recipe"])
    path = RECIPES / f"{name}.yaml"
    if not path.is_file():
        raise Refusal(f"{params}: recipe {name}: no file {path}")
    return path
