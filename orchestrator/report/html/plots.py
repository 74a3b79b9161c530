"""Charts as SVG, drawn by pygal; the page's own style gives them their colours, light, dark and printed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from xml.etree import ElementTree as ET

import pygal
from pygal.style import Style

from orchestrator.report.document import Chart, Series
from orchestrator.text import plain

_WIDTH, _HEIGHT = 480, 280
_FONT = 12
Scale = Callable[[float], float]
# What grows so much stands on a logarithmic axis: lengths, and what is measured of them.
_WIDE = 8
_HIGH = 50
_LARGEST = 1e15
_MOST_TICKS = 10
_MOST_WORDS = 5
_MOST_DOTS = 40
_LONGEST_NAME = 34
_STYLE = Style(label_font_size=_FONT, major_label_font_size=_FONT, legend_font_size=_FONT, title_font_size=_FONT)
# Of pygal's picture: its own style and script, what these move, and what it says of itself.
_NOT_OURS = {"defs", "desc", "title", ""}
_OVERLAYS = ("text-overlay", "tooltip-overlay")
_KEPT = {"class", "cx", "cy", "d", "height", "r", "rx", "ry", "transform", "viewBox", "width", "x", "y"}


def svg(chart: Chart) -> ET.Element:
    """The chart as an element of a page, with its title as its name."""
    chart = replace(chart, series=tuple(map(_drawable, chart.series)))
    found = _stack(chart) if chart.kind == "stack" else _lines(chart)
    found.set("role", "img")
    found.set("aria-label", plain(chart.title))
    return found


def _drawable(series: Series) -> Series:
    """Without what no picture can show: it stands in the table."""
    points = [(x, y if y is not None and abs(y) < _LARGEST else None) for x, y in series.points if abs(x) < _LARGEST]
    drawable = len(points) == len(series.points) and all(
        -_LARGEST < low <= high < _LARGEST for low, high in series.spread
    )
    return replace(series, points=tuple(points), spread=series.spread if drawable else ())


def _lines(chart: Chart) -> ET.Element:
    xs = sorted({x for series in chart.series for x, _ in series.points})
    scale: Callable[[float], float] = (
        math.log2 if not chart.labels and xs and xs[0] > 0 and xs[-1] / xs[0] >= _WIDE else float
    )
    plot = pygal.XY(**_options(chart), allow_interruptions=True)
    ys = [y for series in chart.series for _, y in series.points if y is not None]
    ys += [end for series in chart.series for ends in series.spread for end in ends]
    rise: Scale = math.log10 if ys and min(ys) > 0 and _HIGH <= max(ys) / min(ys) < _LARGEST else float
    ticks = _thinned(chart.labels) or (tuple((x, f"{x:g}") for x in xs) if len(xs) <= _MOST_TICKS else ())
    plot.x_labels = [{"label": plain(label, 20), "value": scale(x)} for x, label in ticks] or None
    if rise is math.log10:
        decades = range(math.floor(rise(min(ys))), math.ceil(rise(max(ys))) + 1)
        plot.y_labels = [{"label": f"{10.0**n:g}", "value": n} for n in decades]
    dots = len(xs) <= _MOST_DOTS or chart.kind == "points"
    for series in chart.series:
        points = [None if y is None else (scale(x), rise(y)) for x, y in series.points]
        plot.add(plain(series.name, _LONGEST_NAME), points, show_dots=dots, stroke=chart.kind == "lines")
    for series in chart.series:
        plot.add(None, list(_whiskers(series, scale, rise)), show_dots=False)
    for x, _ in chart.marks if ys else ():
        plot.add(None, [(scale(x), rise(min(ys))), (scale(x), rise(max(ys)))], show_dots=False)
    return _cleaned(plot, chart)


def _thinned(labels: Sequence[tuple[float, str]]) -> Sequence[tuple[float, str]]:
    """As many words as have room beside each other."""
    return labels[:: max(1, -(-len(labels) // _MOST_WORDS))]


def _whiskers(series: Series, scale: Scale, rise: Scale) -> Iterator[tuple[float, float] | None]:
    """A vertical line at each point."""
    for (x, _), (low, high) in zip(series.points, series.spread, strict=False):
        yield from ((scale(x), rise(low)), (scale(x), rise(high)), None)


def _stack(chart: Chart) -> ET.Element:
    xs = sorted({x for series in chart.series for x, _ in series.points})
    plot = pygal.StackedBar(**_options(chart))
    plot.x_labels = [f"{x:g}" for x in xs]
    for series in chart.series:
        values = dict(series.points)
        plot.add(plain(series.name, _LONGEST_NAME), [values.get(x) for x in xs])
    return _cleaned(plot, chart)


def _options(chart: Chart) -> dict[str, object]:
    longest = max((len(series.name) for series in chart.series), default=0)
    columns = max(1, min(len(chart.series), 3 * _FONT // max(longest, _FONT)))
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "style": _STYLE,
        "js": (),
        "disable_xml_declaration": True,
        "x_title": plain(chart.x, 60),
        "y_title": plain(chart.y, 60),
        "legend_at_bottom": True,
        "legend_at_bottom_columns": columns,
        "truncate_legend": -1,
        "dots_size": 3,
        "margin": 8,
        "margin_right": 24,
        "margin_bottom": _FONT + (2 * _FONT if len(chart.series) % columns else 0),  # pygal counts full rows only
        "show_legend": len(chart.series) > 1,
    }


def _cleaned(plot: pygal.Graph, chart: Chart) -> ET.Element:
    """The picture without scripts, styles and identities."""
    root = ET.fromstring(plot.render())
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {name: text for name, text in element.attrib.items() if name in _KEPT and text}
        for child in list(element):
            tag = child.tag.rpartition("}")[2]
            if tag in _NOT_OURS or any(name in child.get("class", "") for name in _OVERLAYS):
                element.remove(child)
    for group in root.iter("g"):
        _ours(group, chart)
    return root


def _ours(group: ET.Element, chart: Chart) -> None:
    """What spreads has the colour of its series, marks have one of their own, a dot says what it stands for."""
    number = next((int(w[6:]) for w in group.get("class", "").split() if w.startswith("serie-")), None)
    if number is None:
        return
    series, words = chart.series, dict(chart.labels)
    if number < len(series):
        shapes = [shape for shape in group.iter() if shape.tag in ("circle", "rect")]
        points = [(x, y) for x, y in series[number].points if y is not None]
        for shape, (x, y) in zip(shapes, points, strict=False):
            ET.SubElement(shape, "title").text = f"{plain(series[number].name)} at {words.get(x, f'{x:g}')}: {y:.6g}"
        group.set("class", f"series color-{number}")
    else:
        of = number - len(series)
        group.set("class", f"series spread color-{of}" if of < len(series) else "series mark")


def captions(chart: Chart) -> Iterable[str]:
    """What the picture does not say in words."""
    ends = (end for series in chart.series for end in series.spread)
    if chart.kind != "stack" and any(low < high for low, high in ends):
        yield f"Bars: {chart.spread}."
    if chart.marks:
        yield f"Vertical lines: {_places(chart.marks)}."


def _places(marks: Sequence[tuple[float, str]]) -> str:
    return ", ".join(plain(name, 80) for _, name in marks)
