"""The page: everything that was found, put into the template."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from markupsafe import Markup

from stages.artifacts.files import whole
from stages.measuring.standing import columns_of, marks_of
from stages.reporting import audit as audits
from stages.reporting import charts
from stages.reporting.audit import Audit
from stages.reporting.templates import environment

LOSSES = ("loss", "contrastive", "distillation")
ORDER = ("pretrain", "retriever1", "retriever2", "reranker", "retriever")
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
        rows = [row for row in read[stage] if row["curve"] not in UNDRAWN]
        losses = [row for row in rows if row["curve"].split()[-1] in LOSSES]
        shares = [row for row in rows if row["curve"].split()[-1] not in LOSSES]
        parts = (("loss", losses), (_shared(shares), shares))
        drawn += [{"stage": stage, "what": what, "chart": _curve(part, what)} for what, part in parts if part]
    return drawn


def _shared(rows: list[dict[str, Any]]) -> str:
    """What some curves are all about: their last word, or the one curve's name."""
    names = {row["curve"] for row in rows}
    last = {name.split()[-1] for name in names}
    return names.pop() if len(names) == 1 else last.pop() if len(last) == 1 else "share"


def _curve(rows: list[dict[str, Any]], what: str) -> Markup:
    named: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        named.setdefault(row["curve"], []).append(row)
    points = {name: [(row["step"], row["value"]) for row in part] for name, part in named.items()}
    for name in named.keys() - {"loss"}:
        if points[name] == points.get("loss"):  # the only part of a sum is the sum
            points.pop("loss")
    if "loss" in points and len(points) > 4:  # the sum of many heads would squeeze each of them
        points.pop("loss")
    kept = [row | {"curve": _short(name, what)} for name in points for row in named[name]]
    return charts.lines(kept, "step", "value", "curve", ("step", what), [_short(name, what) for name in points])


def _short(curve: str, what: str) -> str:
    """``encoder passage loss`` → ``encoder passage`` where the axis says loss."""
    return curve.removesuffix(f" {what}")


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
    return {
        "rows": audits.summary(audit),
        "runs": list(runs),
        "judge": audit.judge,
        "queries": len(audit.groups),
        "bands": drawn,
        "spread": _spread(spread, order, audit.judge) if spread else None,
        "false": charts.bars(false, "rank", "share", titles) if false else None,
    }


def _spread(rows: list[dict[str, Any]], order: list[str], judge: str) -> Markup:
    title = f"negative − best positive, {judge}'s score"
    return charts.lines(rows, "margin", "share", "round", (title, "share of the pool"), order)


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
    """A parameter as people would say it."""
    if isinstance(value, list):
        return ", ".join(said(one) for one in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def percent(value: float | None) -> str:
    """A share in percent."""
    return "–" if value is None else f"{100 * value:.1f} %"


def rank(value: int) -> str:
    """A rank; nothing found is said."""
    return f"{value:,}" if value else "not found"


def passages_shown(cases: Iterable[Any]) -> list[str]:
    """The ids of all passages that some cases or samples show."""
    return [name for case in cases for name in case.passage_ids]
