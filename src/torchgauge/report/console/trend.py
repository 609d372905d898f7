"""Figures over runs for a terminal; 80 columns are enough, and a pipe gets no colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge import units
from torchgauge.records.trend import CONFIRM, Alert, Trend, TrendChange, TrendPoint, TrendSeries
from torchgauge.report.console.plain import plain
from torchgauge.report.console.sparkline import sparkline
from torchgauge.report.console.text import END, Text
from torchgauge.report.content.time_sections import SCOPES
from torchgauge.visible import one_line

SPARK = 24
COMMIT = 10
COMMIT_BESIDE_CORRECTED = 7
MAX_FIGURES = 20
SIGNS = {True: ("▲", "bold red"), False: ("▼", "bold green"), None: ("◆", "bold yellow")}


def render(trend: Trend) -> str:
    """Return the trends as plain text (see `plain`)."""
    return plain(lambda width: view(trend, width=width))


def view(trend: Trend, points: int = 0, *, width: int) -> RenderableType:
    """Return the trends as something rich prints in `width` columns; `points` newest runs each."""
    if not trend.series:
        return Text("No run of the history has such a figure.")
    blocks: list[RenderableType] = []
    for group in _groups(trend.series):
        listed = sorted(group, key=_lasting_shift, reverse=True)[:MAX_FIGURES]
        blocks += [_head(listed[0]), _figures(listed, width)]
        blocks += _correction(listed)
        blocks += [_changes(series) for series in listed if series.changes]
        if points:
            blocks += [_points(series, points) for series in listed]
        if len(group) > len(listed):
            note = f"  {len(group) - len(listed)} more moved less; --json has all."
            blocks.append(Text(note, style="dim"))
        blocks.append(Text(""))
    if any(change.note for series in trend.series for change in series.changes):
        blocks.append(Text(CONFIRM, style="dim"))
    return Group(*blocks, *(Text(line(alert), style="bold red") for alert in trend.alerts))


def line(alert: Alert) -> str:
    """Return an alert in one line."""
    origin = [alert.target, alert.branch, f"machine {alert.machine[:8]}"]
    figure = alert.metric if alert.layer is None else f"{alert.layer or 'model'} {alert.metric}"
    location = " · ".join(filter(None, origin))
    return one_line(f"ALERT {alert.rule}: {figure}: {alert.message} [{location}]")


def _groups(all_series: Sequence[TrendSeries]) -> list[list[TrendSeries]]:
    groups: dict[tuple[str, ...], list[TrendSeries]] = {}
    for series in all_series:
        key = (series.target, series.branch, series.machine, series.workload)
        groups.setdefault(key, []).append(series)
    return list(groups.values())


def _lasting_shift(series: TrendSeries) -> float:
    """Return by how much a layer's figure changed for good; figures are ordered by it."""
    if series.layer is None:
        return 0.0
    lasting = [change.size for change in series.changes if change.lasting == "stays"]
    return abs(sum(lasting)) * series.points[-1].value


def _head(series: TrendSeries) -> Text:
    hardware = series.gpu if series.gpu and series.device.startswith("cuda") else series.cpu
    parts = [f"branch {series.branch}" if series.branch else "no branch", series.precision]
    facts = " · ".join([*parts, f"{hardware or series.device} (machine {series.machine[:8]})"])
    return Text.assemble(
        (one_line(series.target), "bold cyan"), END, (f"  {one_line(facts)}", "dim")
    )


def _figures(group: Sequence[TrendSeries], width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(Text("  figure"), overflow="ellipsis", no_wrap=True)
    table.add_column("oldest → newest", no_wrap=True)
    for title in ("newest", "change", "runs"):
        table.add_column(title, justify="right", no_wrap=True)
    spark = max(min(SPARK, width - 56), 8)
    for series in group:
        table.add_row(Text(f"  {_name(series)}"), *_cells(series.values, series.unit, spark))
        if series.correction is not None:
            drawn, *cells = _cells(series.corrected, series.unit, spark)
            if series.points[-1].corrected is None:
                cells[:2] = "unknown", ""
            table.add_row(Text(f"   corrected ({series.correction.how})"), drawn, *cells)
    return table


def _cells(values: Sequence[float], unit: str, spark: int) -> tuple[Text, str, str, str]:
    first, newest = values[0], values[-1]
    change = f"{newest / first - 1:+.1%}".replace("%", " %") if first else ""
    change = "=" if newest == first else change
    drawn = Text(sparkline(values, spark), style="cyan")
    return drawn, units.amount(newest, unit), change, str(len(values))


def _correction(group: Sequence[TrendSeries]) -> list[RenderableType]:
    """Return the noise before and after correction, and which changes are of measured values."""
    parts = [
        f"{_name(series)} by {units.percent(series.correction.after)} instead of "
        f"{units.percent(series.correction.before)}{_uncorrected(series)}"
        for series in group
        if series.correction is not None
    ]
    if not parts:
        return []
    text = (
        "Corrected: at the machine's usual speed, from reference work between the calls. "
        f"Neighbouring runs then differ in {', in '.join(parts)}."
    )
    return [Padding(Text(text, style="dim"), (0, 0, 0, 2))]


def _uncorrected(series: TrendSeries) -> str:
    if series.changes_in == "corrected":
        return ""
    missing = len(series.points) - len(series.corrected)
    return f" ({missing} of {len(series.points)} runs unknown: changes are of the measured values)"


def _name(series: TrendSeries) -> str:
    if series.layer is None:
        return one_line(series.metric)
    return one_line(f"{series.layer or 'the model'} {series.metric}")


def _changes(series: TrendSeries) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=5, justify="right")
    table.add_column(overflow="fold")
    for change in series.changes:
        sign = SIGNS[change.worse] if change.lasting == "stays" else ("·", "dim")
        table.add_row(Text(*sign), _change(series, change))
    title = Text(f"  {_name(series)} changed ({_how(series)})", style="bold")
    return Group(title, table)


def _how(series: TrendSeries) -> str:
    if series.changes_in == "corrected":
        return "estimated, at the machine's usual speed"
    return "exact" if series.how == "counted" else "estimated"


def _change(series: TrendSeries, change: TrendChange) -> Text:
    within = ""
    if change.interval is not None:
        low, high = (100 * end for end in (change.interval.low, change.interval.high))
        within = f" ({low:+.1f} … {high:+.1f} %)"
    first, last = series.points[change.first], series.points[change.last]
    lasting = "" if change.lasting == "stays" else f", {_LASTING[change.lasting]}"
    software = f"; also {one_line(change.software)}" if change.software else ""
    return Text.assemble(
        (f"{100 * change.size:+.1f} %", "bold"),
        within,
        f" after {_commit(first)} and up to {_commit(last)}",
        (f"{lasting}{software}", "dim"),
    )


_LASTING = {"went away": "and went away since", "return": "which is the way back"}


def _commit(point: TrendPoint) -> str:
    # A run without a commit is named by when it was made.
    name = point.commit[:COMMIT] or f"the run of {point.created[:16].replace('T', ' ')}"
    return one_line(name) + ("+" if point.dirty else "")


def _points(series: TrendSeries, newest: int) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    has_corrected = series.correction is not None
    for title in ("created", "commit", "run"):
        table.add_column(title, no_wrap=True)
    table.add_column("measured" if has_corrected else _name(series), justify="right", no_wrap=True)
    if has_corrected:
        table.add_column("corrected", justify="right", no_wrap=True)
    table.add_column("95 % interval", no_wrap=True)
    rows = list(enumerate(series.points))[-newest:]
    starts = {change.likeliest for change in series.changes}
    for index, point in rows:
        length = COMMIT_BESIDE_CORRECTED if has_corrected else COMMIT
        commit = one_line(point.commit[:length]) + ("+" if point.dirty else "")
        created = point.created[:16].replace("T", " ")
        values = [units.amount(point.value, series.unit)]
        if has_corrected:
            corrected = point.corrected
            values.append("unknown" if corrected is None else units.amount(corrected, series.unit))
        cells = (created, commit, point.run[:8], *values, _within(point, series))
        table.add_row(*cells, style="bold" if index in starts else "")
    parts: list[RenderableType] = [Text(_name(series), style="bold")] if has_corrected else []
    parts += [table, *_scopes([point for _, point in rows])]
    return Padding(Group(*parts), (0, 0, 0, 2))


def _scopes(points: Sequence[TrendPoint]) -> list[Text]:
    """Return over which repetitions the intervals are, where the records have it."""
    counts = Counter(point.scope for point in points if point.scope is not None)
    if not counts:
        return []
    parts = [f"{count} {SCOPES[scope]}" for scope, count in counts.items()]
    return [Text(f"Intervals: {', '.join(parts)}.", style="dim")]


def _within(point: TrendPoint, series: TrendSeries) -> str:
    if point.low is None or point.high is None:
        return ""
    return f"{units.amount(point.low, series.unit)} … {units.amount(point.high, series.unit)}"
