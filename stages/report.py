"""Metrics, curves and runs → one page: what the chain is worth, what it learned from, what it was made of."""

from pathlib import Path
from typing import Annotated, Any

import typer

from stages.artifacts.documents import read_json, read_yaml
from stages.artifacts.judgements import asked, judged, passage_ids
from stages.artifacts.tables import Passages
from stages.measuring.standing import BASELINE, read_rows
from stages.ranking.groups import Inputs
from stages.reporting.audit import audited
from stages.reporting.cases import Match, matched
from stages.reporting.curves import read_curves
from stages.reporting.page import chain, curves, negatives, passages_shown, write_page
from stages.reporting.ran import groups_of, speeds, versions
from stages.reporting.samples import sampled
from stages.reporting.texts import shelved

HARDEST = 5  # negatives shown of a sampled query


def report(
    params: Annotated[Path, typer.Argument(help="Parameters of the run, a YAML file.")],
    recipe: Annotated[Path, typer.Argument(help="Recipe of its pre-training, a YAML file.")],
    out: Annotated[Path, typer.Argument(help="HTML page to write.")],
    evaluations: Annotated[Path, typer.Option(help="Folder of one collection's evaluations, a JSON a row.")],
    significance: Annotated[Path, typer.Option(help="JSON that significance wrote.")],
    runs: Annotated[Path, typer.Option(help="Folder of the chain's runs, named as the rows are.")],
    passages: Annotated[Path, typer.Option(help="Passages table.")],
    tokens: Annotated[Path, typer.Option(help="Tokens table of the corpus.")],
    queries: Annotated[Path, typer.Option(help="Queries table.")],
    qrels: Annotated[Path, typer.Option(help="Qrels table.")],
    training_curves: Annotated[Path, typer.Option("--curves", help="Folder of training curves, a folder a stage.")],
    told: Annotated[list[Path] | None, typer.Option(help="Metrics that tell a stage's speed; may be repeated.")] = None,
    row: Annotated[str, typer.Option(help="The row whose wins and losses are shown.")] = "retriever",
    against: Annotated[list[str], typer.Option(help="Rows it is held against.")] = [BASELINE, "backbone"],  # noqa: B006
    cases: Annotated[int, typer.Option(min=0, help="Wins, and losses, shown of each match.")] = 5,
    samples: Annotated[int, typer.Option(min=0, help="Training queries shown with their negatives.")] = 8,
    sample: Annotated[int, typer.Option(min=1, help="Training queries whose negatives are counted.")] = 5_000,
    seed: Annotated[int, typer.Option(min=0, help="Of what is sampled.")] = 0,
) -> None:
    """Write one self-contained page about a run: no network, no script, light and dark."""
    rows, numbers = read_rows(evaluations), read_yaml(params)
    groups = groups_of(numbers, params)
    made_of = {
        "params": groups,
        "recipe": recipe.read_text("utf-8"),
        "versions": versions(),
        "speeds": speeds(told or []),
    }
    matches = _matches(row, [name for name in against if name in rows], runs, queries, qrels, tokens, rows, cases)
    found = audited(Inputs(tokens, queries, qrels, passages), runs, numbers, seed, sample)
    shown = sampled(found, samples, HARDEST, seed) if found else []
    every = [case for match in matches for case in match.won + match.lost]
    write_page(
        out,
        chain=chain(rows, read_json(significance)),
        curves=curves(read_curves(training_curves)),
        negatives=negatives(found),
        samples=shown,
        matches=matches,
        shelf=shelved(passages, passages_shown([*every, *shown])),
        ran=made_of,
        prior=(numbers.get("teacher") or {}).get("prior"),
        passages=Passages.count(passages),
        name=recipe.stem,
    )


def _matches(
    row: str, others: list[str], runs: Path, queries: Path, qrels: Path, tokens: Path, rows: dict[str, Any], count: int
) -> list[Match]:
    """The row against the others over the queries that were evaluated; none where the row is not there."""
    if row not in rows:
        return []
    asking, ids = asked(queries, [rows[row]["split"]]), passage_ids(tokens)
    positives = judged(qrels, asking, ids)
    return [matched(runs, row, other, asking, ids, positives, count) for other in others if other != row]
