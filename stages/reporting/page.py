"""The page: everything that was found, put into the template."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from stages.artifacts.files import whole
from stages.measuring.standing import columns_of, marks_of
from stages.reporting import audit as audits
from stages.reporting import charts
from stages.reporting.audit import Audit
from stages.reporting.templates import environment

LOSSES = ("loss", "contrastive", "distillation")
ORDER = ("pretrain", "retriever1", "retriever2", "reranker", "retriever")
SUM = "weighted sum"
REMOVED = {
    "removed_positive": "known answers",
    "removed_same_text": "the text of one",
    "removed_margin": "too near to one",
}
UNDRAWN = ("filled", "masked", "negatives")  # counts that hardly move: the tables have them


def write_page(out: Path, **found: Any) -> None:
    """Write the page, whole or not at all."""
    templates = environment(Path(__file__).parent, escaped=True)
    templates.filters |= {"number": number, "percent": percent, "rank": rank, "said": said}
    text = templates.get_template("page.html").render(**found)
    with whole(out) as partial:
        partial.write_text(text, encoding="utf-8")


def chain(rows: dict[str, Any], tests: dict[str, Any]) -> dict[str, Any]:
    """The chain's table: its measures, and every row's means, intervals and marks; and its charts."""
    measures = columns_of(next(iter(rows.values())))
    marks, lines = marks_of(rows, tests), []
    for name, row in rows.items():
        cells = [row[measure] | {"marks": marks[name].of(measure)} for measure in measures]
        lines.append({"name": name, "cells": cells, "depth": row["depth"]})
    drawn = [_intervals(rows, measure) for measure in measures[:2]]
    one = next(iter(rows.values()))
    return {"measures": measures, "rows": lines, "charts": drawn, "queries": one["queries"], "split": one["split"]}


def _intervals(rows: dict[str, Any], measure: str) -> Markup:
    return charts.intervals([{"row": name} | row[measure] for name, row in rows.items()], measure)


def curves(read: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """{stage, what, chart} in the chain's order: the losses of a stage together, then its shares together."""
    drawn = []
    for stage in sorted(read, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name)):
        rows = _without_sums([row for row in read[stage] if row["curve"] not in UNDRAWN])
        losses = [row for row in rows if row["curve"].split()[-1] in LOSSES]
        shares = [row for row in rows if row["curve"].split()[-1] not in LOSSES]
        parts = [(what, _named(part, what)) for what, part in (("loss", losses), (_shared(shares), shares)) if part]
        looks = charts.looks(sorted({row["curve"] for _, part in parts for row in part}, key=_place))
        drawn += [{"stage": stage, "what": what, "chart": _curve(part, what, looks)} for what, part in parts]
    return drawn


def _shared(rows: list[dict[str, Any]]) -> str:
    """What some curves are all about: their last word, or the one curve's name."""
    names = {row["curve"] for row in rows}
    last = {name.split()[-1] for name in names}
    return names.pop() if len(names) == 1 else last.pop() if len(last) == 1 else "share"


def _without_sums(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Curves of a stage without the sum of its losses where that says nothing."""
    points: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row["curve"].split()[-1] in LOSSES:
            points.setdefault(row["curve"], []).append((row["step"], row["value"]))
    whole = points.pop("loss", [])
    alone = whole in points.values()  # the only part of a sum is the sum
    crowded = len(points) > 3  # the sum of many heads would squeeze each of them
    return [row for row in rows if row["curve"] != "loss" or not (alone or crowded)]


def _named(rows: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    """Rows by the names that a legend has: ``encoder passage loss`` → ``encoder passage`` where the axis says loss."""
    return [row | {"curve": SUM if row["curve"] == "loss" else row["curve"].removesuffix(f" {what}")} for row in rows]


def _place(name: str) -> tuple[bool, bool, str]:
    """Where a curve stands in a legend: the sum, then the encoder's, then the decoders'."""
    return name != SUM, not name.startswith("encoder"), name


def _curve(rows: list[dict[str, Any]], what: str, looks: dict[str, charts.Look]) -> Markup:
    there = {row["curve"] for row in rows}
    shown = {name: look for name, look in looks.items() if name in there}
    return charts.lines(
        rows, "step", "value", "curve", ("step", what), shown if len(shown) > 1 else charts.looks(there)
    )


def negatives(audit: Audit | None) -> dict[str, Any] | None:
    """The audit's rows and charts."""
    if audit is None:
        return None
    rows, order = audits.bands(audit), [one.name for one in audit.rounds]
    bands = list(dict.fromkeys(row["band"] for row in rows))
    runs = dict.fromkeys(row["run"] for row in rows)
    drawn = [charts.shares([r for r in rows if r["run"] == run], run, order, bands) for run in runs]
    spread, false = audits.difficulty(audit), audits.false_by_rank(audit)
    titles = f"rank by {audit.judge}", "above the positive"
    summed = audits.summary(audit)
    removed = {said: [row["counts"].get(rule, 0) for row in summed] for rule, said in REMOVED.items()}
    return {
        "rows": summed,
        "removed": {said: counts for said, counts in removed.items() if any(counts)},
        "runs": list(runs),
        "judge": audit.judge,
        "queries": len(audit.groups),
        "bands": drawn,
        "spread": _spread(spread, order, audit.judge) if spread else None,
        "false": charts.bars(false, "rank", "share", titles) if false else None,
    }


def _spread(rows: list[dict[str, Any]], order: list[str], judge: str) -> Markup:
    title = f"negative − best positive, {judge}'s score"
    return charts.lines(rows, "margin", "share", "round", (title, "share of the pool"), charts.looks(order))


def number(value: Any) -> str:
    """A number as people write it: thousands apart, few digits behind the point."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "–" if value is None else str(value)
    if value == float("inf"):
        return "> depth"
    if isinstance(value, int) or abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def said(value: Any) -> str:
    """A parameter as people would say it; a line may break behind a comma."""
    if isinstance(value, list):
        return Markup(", ").join(said(one) for one in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else escape(str(value)).replace(",", Markup(",<wbr>"))


def percent(value: float | None) -> str:
    """A share in percent."""
    return "–" if value is None else f"{100 * value:.1f} %"


def rank(value: int) -> str:
    """A rank; nothing found is said."""
    return f"{value:,}" if value else "not found"


def passages_shown(cases: Iterable[Any]) -> list[str]:
    """The ids of all passages that some cases or samples show."""
    return [name for case in cases for name in case.passage_ids]
