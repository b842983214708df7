"""Charts as SVG that stands in the page: drawn by Vega-Lite (vl-convert) when the page is written.

Colours are the page's CSS variables, so that a chart follows light and dark; there is no script in the page. What
Vega says of a mark to screen readers becomes its tooltip.
"""

import re
from typing import Any

from markupsafe import Markup

WIDTH, HEIGHT = 270, 170  # of the plot; with its axis it fits a phone
COLOURS = [f"var(--c{number})" for number in range(1, 8)]
SHADES = [f"var(--s{number})" for number in range(1, 6)]  # from much to little
INK, FAINT = "var(--ink)", "var(--line)"

AXIS = {"labelColor": INK, "titleColor": INK, "gridColor": FAINT, "domainColor": FAINT, "tickColor": FAINT}
CONFIG = {
    "background": None,
    "font": "sans-serif",
    "view": {"stroke": None},
    "padding": 12,
    "axis": AXIS | {"titleFontWeight": "normal", "titlePadding": 9, "labelFontSize": 11, "titleFontSize": 11},
    "legend": {"labelColor": INK, "titleColor": INK, "orient": "bottom", "title": None, "labelFontSize": 11},
    "header": {"labelColor": INK, "labelFontWeight": "bold", "title": None, "labelAnchor": "start"},
}
LABELLED = re.compile(r'<path ([^>]*aria-label="([^"]*)"[^>]*)/>')


def lines(rows: list[dict[str, Any]], x: str, y: str, by: str, titles: tuple[str, str], order: list[str]) -> Markup:
    """A line for every value of ``by``, in the colours of ``order``."""
    steps = {row[x] for row in rows}
    colour = {"field": by, "type": "nominal", "sort": order, "scale": {"domain": order, "range": _colours(order)}}
    legend = {"columns": 2, "symbolType": "stroke"} if len(order) > 1 else None
    return svg(
        {
            "data": {"values": rows},
            "mark": {"type": "line", "point": {"size": 14} if len(steps) <= 40 else False, "strokeWidth": 2},
            "encoding": {
                "x": {"field": x, "type": "quantitative", "title": titles[0], "scale": {"zero": False, "nice": False}},
                "y": {"field": y, "type": "quantitative", "title": titles[1], "scale": {"zero": False}},
                "color": colour | {"legend": legend},
            },
        }
    )


def intervals(rows: list[dict[str, Any]], measure: str) -> Markup:
    """A dot with its interval for every {row, mean, low, high}, in their order."""
    place = {"field": "row", "type": "nominal", "sort": None, "title": None, "axis": {"grid": True, "ticks": False}}
    value = {"type": "quantitative", "title": measure, "scale": {"zero": False}}
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


def _colours(names: list[str]) -> list[str]:
    return [COLOURS[place % len(COLOURS)] for place in range(len(names))]
