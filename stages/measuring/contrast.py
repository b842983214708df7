"""Two systems, the same queries: how much better one is, whether chance would do it, and which queries say so."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts.refusal import Refusal
from stages.measuring.significance import holm, mean_interval, paired_p


@dataclass(frozen=True)
class Paired:
    """One row of both systems.

    Attributes:
        queries: [n] ids that both have.
        before, after: [n, measures] what the queries are worth.
    """

    queries: list[str]
    before: np.ndarray
    after: np.ndarray

    @property
    def differences(self) -> np.ndarray:
        """[n, measures]."""
        change: np.ndarray = self.after - self.before
        return change


def pair(name: str, before: pa.Table, after: pa.Table, measures: list[str]) -> Paired:
    """The queries that two Values tables share, by all measures.

    Raises:
        Refusal: they share none, or one lacks a measure.
    """
    ids = before.filter(pc.equal(before["measure"], measures[0]))["query_id"]
    others = after.filter(pc.equal(after["measure"], measures[0]))["query_id"]
    shared = pc.unique(ids.filter(pc.is_in(ids, others.combine_chunks())))
    if not len(shared):
        raise Refusal(f"{name}: no query has a value of {measures[0]} on both sides")
    return Paired(shared.to_pylist(), *(_columns(name, table, shared, measures) for table in (before, after)))


def shared_measures(tables: list[pa.Table]) -> list[str]:
    """The measures that every table has, in the order of the first. Raises `Refusal`: there are none."""
    found = [pc.unique(table["measure"]).to_pylist() for table in tables]
    shared = [name for name in found[0] if all(name in names for names in found)]
    if not shared:
        raise Refusal("the two sides have no measure in common")
    return shared


def contrasts(rows: dict[str, Paired], measures: list[str], draws: int, seed: int) -> dict[str, dict[str, Any]]:
    """{measure: {row: {"before", "after", "difference", "low", "high", "p", "holm"}}}.

    p is of the paired randomisation test, the interval a 95 % bootstrap's, and Holm counts the rows of a measure as one
    family.
    """
    report: dict[str, dict[str, Any]] = {measure: {} for measure in measures}
    for name, row in rows.items():
        mean, low, high = mean_interval(row.differences, min(draws, 10_000), seed)
        p = paired_p(row.differences, draws, seed)
        for column, measure in enumerate(measures):
            cells = {"difference": mean, "low": low, "high": high, "p": p}
            cells |= {"before": row.before.mean(axis=0), "after": row.after.mean(axis=0)}
            report[measure][name] = {key: float(values[column]) for key, values in cells.items()}
    for found in report.values():
        adjusted = holm(np.array([cell["p"] for cell in found.values()]))
        for cell, value in zip(found.values(), adjusted, strict=True):
            cell["holm"] = float(value)
    return report


def extremes(row: Paired, column: int, count: int) -> dict[str, list[tuple[str, float, float]]]:
    """{"won": …, "lost": …}: (query, before, after) of those that changed most, by one measure; ties by id."""
    change = row.differences[:, column]
    order = sorted(range(len(change)), key=lambda place: (-change[place], row.queries[place]))
    won = [place for place in order[:count] if change[place] > 0]
    lost = [place for place in reversed(order[-count:]) if change[place] < 0]
    values = row.before[:, column].tolist(), row.after[:, column].tolist()
    cells = {"won": won, "lost": lost}
    return {name: [(row.queries[i], values[0][i], values[1][i]) for i in places] for name, places in cells.items()}


def _columns(name: str, table: pa.Table, queries: pa.Array, measures: list[str]) -> np.ndarray:
    out = np.empty((len(queries), len(measures)))
    for column, measure in enumerate(measures):
        part = table.filter(pc.equal(table["measure"], measure))
        places = pc.index_in(queries, part["query_id"].combine_chunks())
        if places.null_count:
            raise Refusal(f"{name}: query {queries.filter(pc.is_null(places))[0]} has no value of {measure}")
        out[:, column] = part["value"].take(places).to_numpy()
    return out
