"""Effectiveness of rankings by the names of ir-measures (MacAvaney et al. 2022): ``RR@10``, ``P(rel=2)@10``."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Qrels

DEFAULTS = ("RR@10", "nDCG@10", "R@50", "R@100", "R@1000")
QUERIES = 256  # handed to the measures at once, so that memory does not grow with the run

Judgements = Mapping[str, Mapping[str, int]]

# not ir-measures' default list: asking all its providers whether they are installed imports pandas and more
PROVIDERS = ir_measures.providers.FallbackProvider([ir_measures.pytrec_eval, ir_measures.msmarco, ir_measures.judged])


def parse(names: Iterable[str]) -> list[Any]:
    """ir-measures' measures of these names, each once.

    Raises:
        Refusal: a name is unknown, badly written, or given twice.
    """
    measures = [_parse(name) for name in names]
    for place, measure in enumerate(measures):
        if measure in measures[:place]:
            raise Refusal(f"measures: {measure} is given twice")
    return measures


def judged(path: Path | str, query_ids: Iterable[str]) -> dict[str, dict[str, int]]:
    """The judgements {query_id: {passage_id: relevance}} of those queries that have a relevant passage.

    In the order of ``query_ids``; relevance 1 and more is relevant.

    Raises:
        Refusal: not a Qrels table, or a passage is judged twice for one query.
    """
    judgements: dict[str, dict[str, int]] = {query_id: {} for query_id in query_ids}
    wanted, start = pa.array(judgements, pa.string()), 0
    for batch in Qrels.stream(path):
        rows = np.flatnonzero(pc.is_in(batch["query_id"], wanted).to_numpy(zero_copy_only=False))
        for row, judgement in zip(rows, batch.take(pa.array(rows)).to_pylist(), strict=True):
            of_query, passage_id = judgements[judgement["query_id"]], judgement["passage_id"]
            if passage_id in of_query:
                raise Refusal(f"{path}: row {start + row}: passage {passage_id} is judged twice for its query")
            of_query[passage_id] = judgement["relevance"]
        start += batch.num_rows
    return {name: grades for name, grades in judgements.items() if max(grades.values(), default=0) > 0}


def per_query(
    rankings: Iterable[tuple[str, Sequence[str], Any]], judgements: Judgements, measures: Sequence[Any]
) -> np.ndarray:
    """[queries, measures] float64: what each ranking is worth, the queries in the order of ``judgements``.

    A ranking is (query_id, passage_ids best first, anything); rankings of other queries are passed over, and a
    judged query without a ranking is worth 0. The providers behind ir-measures break ties in different
    directions; they are given minus the rank as score, so that there is no tie to break.
    """
    rows = {query_id: row for row, query_id in enumerate(judgements)}
    columns = {measure: column for column, measure in enumerate(measures)}
    values = np.zeros((len(rows), len(columns)))
    theirs = (ranking for ranking in rankings if ranking[0] in rows)
    while part := list(islice(theirs, QUERIES)):
        run = {name: {passage: -float(rank) for rank, passage in enumerate(found)} for name, found, _ in part}
        evaluator = PROVIDERS.evaluator(list(columns), {name: dict(judgements[name]) for name in run})
        for metric in evaluator.iter_calc(run):
            values[rows[metric.query_id], columns[metric.measure]] = metric.value
    return values


def _parse(name: str) -> Any:
    try:
        with warnings.catch_warnings():  # its parser uses names that Python 3.12 deprecates
            warnings.simplefilter("ignore", DeprecationWarning)
            measure = ir_measures.parse_measure(name)
        supported = PROVIDERS.supports(measure) and cutoff(measure) != 0
    except (NameError, ValueError, TypeError, KeyError, AssertionError) as error:
        raise Refusal(f"measures: {name!r} is not a measure: {error}") from error
    if not supported:
        raise Refusal(f"measures: {name!r} cannot be computed here")
    return measure


def cutoff(measure: Any) -> int | None:
    """The rank behind the ``@``, if there is one."""
    depth = measure.params.get("cutoff")
    return depth if isinstance(depth, int) else None
