"""Small drawings in a notebook: bars and charts as SVG, in the colour of the text around them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torchgauge.report.notebook.charts import Chart, Curve
from torchgauge.report.page.markup import escaped

WIDTH, HEIGHT = 320, 72
BAR_WIDTH, BAR_HEIGHT = 80, 10
CURVE_WIDTH, CURVE_HEIGHT = 160, 20
GAP = 0.15  # between bars, as a share of each
MAX_LABELS = 8
MAX_SHADE = 5  # shades of a map, as many as the style has
MAX_PARTS = 8  # as many shades as the style has


def bar(share: float) -> str:
    """Return a share (0…1) as a bar."""
    width = BAR_WIDTH * min(max(share, 0.0), 1.0)
    return (
        f'<svg class="bar" width="{BAR_WIDTH}" height="{BAR_HEIGHT}" aria-hidden="true">'
        f'<rect class="track" width="{BAR_WIDTH}" height="{BAR_HEIGHT}"></rect>'
        f'<rect width="{width:.1f}" height="{BAR_HEIGHT}"></rect></svg>'
    )


def curve(drawn: Curve) -> str:
    """Return a cell's curve between its lowest and highest value."""
    if drawn.column is None:
        values = [float(value) for value in drawn.values]
        places = _even(len(values))
    else:
        values = [float(point[drawn.column] or 0) for point in drawn.values]
        end = drawn.values[-1][0] or 1.0 if values else 1.0
        places = [min(max((point[0] or 0) / end, 0.0), 1.0) for point in drawn.values]
    low, span = min(values, default=0.0), max(values, default=0.0) - min(values, default=0.0)
    heights = [(value - low) / span if span else 0.5 for value in values]
    line = _points(places, heights, CURVE_WIDTH, CURVE_HEIGHT)
    return (
        f'<svg width="{CURVE_WIDTH}" height="{CURVE_HEIGHT}" aria-hidden="true">'
        f'<polyline points="{line}"></polyline></svg>'
    )


def drawing(chart: Chart) -> str:
    """Return a chart with its title, its largest value and what its ends are."""
    caption = f"<b>{escaped(chart.title)}</b> <i>{escaped(chart.top)}</i>"
    note = f"<span>{escaped(chart.note)}</span>" if chart.note else ""
    if chart.kind == "parts":
        return f"<figure><figcaption>{caption}</figcaption>{_parts(chart)}</figure>"
    if chart.kind == "map":
        return f"<figure><figcaption>{caption}</figcaption>{_map(chart)}</figure>"
    top = max(chart.values, default=0.0)
    heights = [value / top if top else 0.0 for value in chart.values]
    shapes = {"bars": _bars, "line": _line, "area": _area}[chart.kind](chart, heights)
    picture = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{escaped(chart.title)}">{shapes}'
        f'<line class="axis" x1="0" y1="{HEIGHT}" x2="{WIDTH}" y2="{HEIGHT}"></line></svg>'
    )
    step = -(-len(chart.labels) // MAX_LABELS)
    labels = "".join(f"<span>{escaped(label)}</span>" for label in chart.labels[:: step or 1])
    axis = f'<div class="axis">{labels}</div>'
    return f"<figure><figcaption>{caption}</figcaption>{picture}{axis}{note}</figure>"


def _even(count: int) -> list[float]:
    return [index / max(count - 1, 1) for index in range(count)]


def _points(places: Sequence[float], heights: Sequence[float], width: int, height: int) -> str:
    return " ".join(
        f"{place * (width - 4) + 2:.1f},{(1 - share) * (height - 4) + 2:.1f}"
        for place, share in zip(places, heights, strict=True)
    )


def _bars(_: Chart, heights: Sequence[float]) -> str:
    step = WIDTH / max(len(heights), 1)
    return "".join(
        f'<rect x="{index * step:.1f}" y="{HEIGHT * (1 - share):.1f}" '
        f'width="{step * (1 - GAP):.1f}" height="{HEIGHT * share:.1f}"></rect>'
        for index, share in enumerate(heights)
    )


def _line(_: Chart, heights: Sequence[float]) -> str:
    places = _even(len(heights))
    dots = "".join(
        f'<circle cx="{point.split(",")[0]}" cy="{point.split(",")[1]}" r="2.5"></circle>'
        for point in _points(places, heights, WIDTH, HEIGHT).split()
    )
    return f'<polyline points="{_points(places, heights, WIDTH, HEIGHT)}"></polyline>{dots}'


def _area(chart: Chart, heights: Sequence[float]) -> str:
    """Return steps: each value holds until the next begins."""
    corners = [f"0,{HEIGHT}"]
    ends = [*chart.positions[1:], 1.0]
    for begin, end, share in zip(chart.positions, ends, heights, strict=True):
        y = HEIGHT * (1 - share)
        corners += [f"{begin * WIDTH:.1f},{y:.1f}", f"{end * WIDTH:.1f},{y:.1f}"]
    return f'<polygon points="{" ".join([*corners, f"{WIDTH},{HEIGHT}"])}"></polygon>'


def _map(chart: Chart) -> str:
    """Return a table whose cells are the darker the larger their values are."""
    largest, columns = max(chart.values, default=0.0) or 1.0, len(chart.labels)
    head = "".join(f"<th>{escaped(label)}</th>" for label in ("", *chart.labels))
    lines = []
    for number, label in enumerate(chart.rows):
        cells = range(number * columns, (number + 1) * columns)
        shades = "".join(
            f'<td class="shade{round(MAX_SHADE * chart.values[cell] / largest)}">'
            f"{escaped(chart.texts[cell])}</td>"
            for cell in cells
        )
        lines.append(f"<tr><th>{escaped(label)}</th>{shades}</tr>")
    return f'<table class="map"><tr>{head}</tr>{"".join(lines)}</table>'


def _parts(chart: Chart) -> str:
    """Return one bar divided, and what its parts are; the smallest have one shade together."""
    total = sum(chart.values)
    ends = list(itertools.accumulate(chart.values, initial=0.0))
    shades = [f"part{min(index, MAX_PARTS - 1)}" for index in range(len(chart.values))]
    shapes = "".join(
        f'<rect class="{shade}" x="{WIDTH * begin / total:.1f}" '
        f'width="{max(WIDTH * value / total - 1, 0.5):.1f}" height="16"></rect>'
        for shade, begin, value in zip(shades, ends, chart.values, strict=False)
    )
    legend = "".join(
        f'<span><svg width="9" height="9"><rect class="{shade}" width="9" height="9"></rect></svg> '
        f"{escaped(label)}</span>"
        for shade, label in zip(shades, chart.labels, strict=True)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} 16" width="{WIDTH}" height="16" role="img" '
        f'aria-label="{escaped(chart.title)}">{shapes}</svg><div class="legend">{legend}</div>'
    )
