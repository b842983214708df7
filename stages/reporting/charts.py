"""Charts as SVG that stands in the page: drawn by Vega-Lite (vl-convert) when the page is written.

Colours are the page's CSS variables, so that a chart follows light and dark; there is no script in the page. What
Vega says of a mark to screen readers becomes its tooltip. Lines differ by colour and by dash, so that who sees no
colours can tell them apart.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

WIDTH, HEIGHT = 270, 170  # of the plot; with its axis it fits a phone
COLOURS = [f"var(--c{number})" for number in range(1, 9)]
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]  # two colours that share one differ in blue or in lightness
SHADES = [f"var(--s{number})" for number in range(1, 6)]  # from much to little
INK, FAINT = "var(--ink)", "var(--line)"
FEW = 12  # steps, up to which each is a dot

AXIS = {"labelColor": INK, "titleColor": INK, "gridColor": FAINT, "domainColor": FAINT, "tickColor": FAINT}
PLACED = {"labelFlush": False, "labelPadding": 5, "titlePadding": 9}
CONFIG = {
    "background": None,
    "font": "sans-serif",
    "view": {"stroke": None},
    "padding": 12,
    "axis": AXIS | PLACED | {"titleFontWeight": "normal", "labelFontSize": 11, "titleFontSize": 11},
    "legend": {"labelColor": INK, "orient": "bottom", "title": None, "labelFontSize": 11, "columnPadding": 14},
    "header": {"labelColor": INK, "labelFontWeight": "bold", "title": None, "labelAnchor": "start"},
}
LABELLED = re.compile(r'<path ([^>]*aria-label="([^"]*)"[^>]*)/>')


@dataclass(frozen=True)
class Look:
    """How a line is told from others: a CSS colour, and lengths of dashes and gaps in pixels."""

    colour: str
    dash: list[int]


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for each of up to 32 names, no two alike; the first is a full line."""
    colours, dashes = len(COLOURS), len(DASHES)
    return {
        name: Look(COLOURS[place % colours], DASHES[(place + place // colours) % dashes])
        for place, name in enumerate(names)
    }


def lines(
    rows: list[dict[str, Any]], x: str, y: str, by: str, titles: tuple[str, str], styled: dict[str, Look]
) -> Markup:
    """A line for every value of ``by``, in the order of ``styled`` and looking so."""
    steps = {row[x] for row in rows}
    names, chosen = list(styled), list(styled.values())
    legend = {"columns": 2, "symbolType": "stroke", "symbolSize": 500} if len(names) > 1 else None
    series = {"field": by, "type": "nominal", "sort": names, "legend": legend}
    whole = {"tickMinStep": 1} if all(isinstance(step, int) for step in steps) else {}
    return svg(
        {
            "data": {"values": rows},
            "mark": {"type": "line", "point": {"size": 16} if len(steps) <= FEW else False, "strokeWidth": 2},
            "encoding": {
                "x": {
                    "field": x,
                    "type": "quantitative",
                    "title": titles[0],
                    "scale": {"zero": False, "nice": False},
                    "axis": {"tickCount": 6} | whole,
                },
                "y": {"field": y, "type": "quantitative", "title": titles[1], "scale": {"zero": False}},
                "color": series | {"scale": {"domain": names, "range": [look.colour for look in chosen]}},
                "strokeDash": series | {"scale": {"domain": names, "range": [look.dash for look in chosen]}},
            },
        }
    )


def intervals(rows: list[dict[str, Any]], measure: str) -> Markup:
    """A dot with its interval for every {row, mean, low, high}, in their order."""
    place = {"field": "row", "type": "nominal", "sort": None, "title": None, "axis": {"grid": True, "ticks": False}}
    scale = {"zero": False, "nice": False, "padding": 8}
    value = {"type": "quantitative", "title": measure, "scale": scale, "axis": {"tickCount": 6}}
    return svg(
        {
            "data": {"values": rows},
            "encoding": {"y": place},
            "layer": [
                {
                    "mark": {"type": "rule", "strokeWidth": 2, "color": COLOURS[0], "opacity": 0.6},
                    "encoding": {"x": {"field": "low"} | value, "x2": {"field": "high"}},
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 70, "color": COLOURS[0], "opacity": 1},
                    "encoding": {"x": {"field": "mean"} | value},
                },
            ],
        }
    )


def shares(rows: list[dict[str, Any]], run: str, order: list[str], bands: list[str]) -> Markup:
    """Stacked bars: what share of each round's pool stands in which band of ranks."""
    colour = {"field": "band", "type": "ordinal", "sort": bands, "legend": {"columns": 3, "symbolType": "square"}}
    return svg(
        {
            "data": {"values": rows},
            "height": 26 * len(order),
            "mark": {"type": "bar", "height": {"band": 0.75}},
            "encoding": {
                "y": {"field": "round", "type": "nominal", "sort": order, "title": None, "axis": {"ticks": False}},
                "x": {
                    "field": "share",
                    "type": "quantitative",
                    "title": f"rank by {run}",
                    "scale": {"domain": [0, 1]},
                    "axis": {"format": ".0%", "tickCount": 5},
                },
                "color": colour | {"scale": {"domain": bands, "range": SHADES}},
                "order": {"field": "place", "type": "quantitative"},
            },
        }
    )


def bars(rows: list[dict[str, Any]], x: str, y: str, titles: tuple[str, str]) -> Markup:
    """A bar for every value of ``x``; ``y`` is a share."""
    return svg(
        {
            "data": {"values": rows},
            "mark": {"type": "bar", "color": COLOURS[1]},
            "encoding": {
                "x": {"field": x, "type": "ordinal", "title": titles[0], "axis": {"labelAngle": 0}},
                "y": {"field": y, "type": "quantitative", "title": titles[1], "axis": {"format": ".0%"}},
            },
        }
    )


def svg(spec: dict[str, Any]) -> Markup:
    """A Vega-Lite specification as SVG; the same bytes for the same specification."""
    import vl_convert

    drawn = vl_convert.vegalite_to_svg({"width": WIDTH, "height": HEIGHT, "config": CONFIG} | spec, vl_version="6.4")
    return Markup(LABELLED.sub(r"<path \1><title>\2</title></path>", drawn))
