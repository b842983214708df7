"""Lines that can be told apart, in the order that a reader expects."""

import re
from typing import Any

from stages.reporting import charts
from stages.reporting.page import curves, number, said


def series(stage: dict[str, list[float]]) -> list[dict[str, Any]]:
    return [
        {"step": step, "value": value, "curve": name}
        for name, values in stage.items()
        for step, value in enumerate(values, 1)
    ]


def legend(svg: str) -> list[str]:
    """What an SVG's legend says, row by row."""
    return re.findall(r">([^<]+)</text>", svg[svg.index("role-legend") :])


def strokes(svg: str) -> list[tuple[str, str]]:
    """(colour, dash) of every line."""
    found = re.findall(r'aria-roledescription="line mark"[^>]*', svg)
    return [(_of("stroke", line), _of("stroke-dasharray", line)) for line in found]


def _of(name: str, tag: str) -> str:
    found = re.search(rf'{name}="([^"]*)"', tag)
    return found[1] if found else ""


def test_no_two_of_32_lines_look_alike() -> None:
    looks = charts.looks(f"line {place}" for place in range(32))
    assert len({(look.colour, tuple(look.dash)) for look in looks.values()}) == 32
    assert looks["line 0"].dash == [1, 0]


def test_the_chart_draws_every_line_in_its_own_look() -> None:
    names = [f"line {place}" for place in range(11)]
    rows = series({name: [1.0, float(place)] for place, name in enumerate(names)})
    svg = charts.lines(rows, "step", "value", "curve", ("step", "loss"), charts.looks(names))
    assert legend(svg) == names
    assert len(set(strokes(svg))) == 11


def test_a_curve_looks_alike_in_both_charts_of_a_stage() -> None:
    heads = {"keywords": [3.0, 2.0], "bag": [2.0, 1.0], "encoder passage": [9.0, 7.0], "queries": [4.0, 4.0]}
    losses = {f"{name} loss": values for name, values in heads.items()}
    right = {f"{name} accuracy": values for name, values in heads.items() if name != "bag"}
    drawn = curves({"pretrain": series(losses | right | {"loss": [18.0, 14.0]})})
    assert [chart["what"] for chart in drawn] == ["loss", "accuracy"]
    loss, accuracy = (dict(zip(legend(one["chart"]), strokes(one["chart"]), strict=True)) for one in drawn)
    assert list(loss) == ["encoder passage", "bag", "keywords", "queries"]  # no sum: it would squeeze them
    assert accuracy == {name: look for name, look in loss.items() if name != "bag"}


def test_the_sum_of_losses_is_named_and_first_or_left_out() -> None:
    parts = {"contrastive": [5.0, 3.0], "distillation": [0.5, 0.25]}
    (drawn,) = curves({"retriever": series(parts | {"loss": [1.5, 0.85]})})
    assert legend(drawn["chart"]) == ["weighted sum", "contrastive", "distillation"]
    (drawn,) = curves({"retriever1": series({"contrastive": [5.0, 3.0], "loss": [5.0, 3.0]})})
    assert strokes(drawn["chart"]) == [("var(--c1)", strokes(drawn["chart"])[0][1])]


def test_numbers_and_parameters_read_as_people_write_them() -> None:
    assert [number(value) for value in (None, 1234, 0.12345, float("inf"))] == ["–", "1,234", "0.123", "> depth"]
    assert said(["a<b", True, None]) == "a&lt;b, yes, none"
    assert said("one,two") == "one,<wbr>two"
