"""Figures over runs for a terminal; 80 columns are enough, and a pipe gets no colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge import units
from torchgauge.model.trend import CONFIRM, Alert, Trend, TrendChange, TrendPoint, TrendSeries
from torchgauge.report.plain import plain
from torchgauge.report.sparkline import sparkline
from torchgauge.report.text import END, Text
from torchgauge.report.time_sections import SCOPES
from torchgauge.visible import one_line

SPARK = 24
COMMIT = 10
COMMIT_BESIDE_CORRECTED = 7
MOST = 20
SIGNS = {True: ("▲", "bold red"), False: ("▼", "bold green"), None: ("◆", "bold yellow")}


def render(trend: Trend) -> str:
    """Return the trends as plain text (see `plain`)."""
    return plain(lambda width: view(trend, width=width))


def view(trend: Trend, points: int = 0, *, width: int) -> RenderableType:
    """Return the trends as something rich prints in `width` columns; `points` newest runs each."""
    if not trend.series:
        return Text("No run of the history has such a figure.")
    blocks: list[RenderableType] = []
    for every in _groups(trend.series):
        group = sorted(every, key=_moved, reverse=True)[:MOST]
        blocks += [_head(group[0]), _figures(group, width)]
        blocks += _correction(group)
        blocks += [_changes(one) for one in group if one.changes]
        if points:
            blocks += [_points(one, points) for one in group]
        if len(every) > len(group):
            left = f"  {len(every) - len(group)} more moved less; --json has all."
            blocks.append(Text(left, style="dim"))
        blocks.append(Text(""))
    if any(change.note for one in trend.series for change in one.changes):
        blocks.append(Text(CONFIRM, style="dim"))
    return Group(*blocks, *(Text(line(alert), style="bold red") for alert in trend.alerts))


def line(alert: Alert) -> str:
    """Return an alert in one line."""
    where = [alert.target, alert.branch, f"machine {alert.machine[:8]}"]
    figure = alert.metric if alert.layer is None else f"{alert.layer or 'model'} {alert.metric}"
    place = " · ".join(filter(None, where))
    return one_line(f"ALERT {alert.rule}: {figure}: {alert.message} [{place}]")


def _groups(series: Sequence[TrendSeries]) -> list[list[TrendSeries]]:
    found: dict[tuple[str, ...], list[TrendSeries]] = {}
    for one in series:
        found.setdefault((one.target, one.branch, one.machine, one.workload), []).append(one)
    return list(found.values())


def _moved(series: TrendSeries) -> float:
    """Return by how much a layer's figure moved and stayed: what decides about the whole."""
    if series.layer is None:
        return 0.0
    lasting = [change.size for change in series.changes if change.lasting == "stays"]
    return abs(sum(lasting)) * series.points[-1].value


def _head(series: TrendSeries) -> Text:
    on = series.gpu if series.gpu and series.device.startswith("cuda") else series.cpu
    parts = [f"branch {series.branch}" if series.branch else "no branch", series.precision]
    facts = " · ".join([*parts, f"{on or series.device} (machine {series.machine[:8]})"])
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
    for one in group:
        table.add_row(Text(f"  {_name(one)}"), *_cells(one.values, one.unit, spark))
        if one.correction is not None:
            drawn, *cells = _cells(one.corrected, one.unit, spark)
            if one.points[-1].corrected is None:
                cells[:2] = "unknown", ""
            table.add_row(Text(f"   corrected ({one.correction.how})"), drawn, *cells)
    return table


def _cells(values: Sequence[float], unit: str, spark: int) -> tuple[Text, str, str, str]:
    first, newest = values[0], values[-1]
    change = f"{newest / first - 1:+.1%}".replace("%", " %") if first else ""
    change = "=" if newest == first else change
    drawn = Text(sparkline(values, spark), style="cyan")
    return drawn, units.amount(newest, unit), change, str(len(values))


def _correction(group: Sequence[TrendSeries]) -> list[RenderableType]:
    """Say what the corrections leave, and where the changes are of the measured values."""
    parts = [
        f"{_name(one)} by {units.percent(one.correction.after)} instead of "
        f"{units.percent(one.correction.before)}{_uncorrected(one)}"
        for one in group
        if one.correction is not None
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
    left = len(series.points) - len(series.corrected)
    return f" ({left} of {len(series.points)} runs unknown: changes are of the measured values)"


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
    shown = list(enumerate(series.points))[-newest:]
    starts = {change.at for change in series.changes}
    for at, point in shown:
        length = COMMIT_BESIDE_CORRECTED if has_corrected else COMMIT
        commit = one_line(point.commit[:length]) + ("+" if point.dirty else "")
        when = point.created[:16].replace("T", " ")
        values = [units.amount(point.value, series.unit)]
        if has_corrected:
            known = point.corrected
            values.append("unknown" if known is None else units.amount(known, series.unit))
        cells = (when, commit, point.run[:8], *values, _within(point, series))
        table.add_row(*cells, style="bold" if at in starts else "")
    parts: list[RenderableType] = [Text(_name(series), style="bold")] if has_corrected else []
    parts += [table, *_scopes([point for _, point in shown])]
    return Padding(Group(*parts), (0, 0, 0, 2))


def _scopes(points: Sequence[TrendPoint]) -> list[Text]:
    """Say of which repetitions the intervals are, where the records tell."""
    counts = Counter(point.scope for point in points if point.scope is not None)
    if not counts:
        return []
    parts = [f"{count} {SCOPES[scope]}" for scope, count in counts.items()]
    return [Text(f"Intervals: {', '.join(parts)}.", style="dim")]


def _within(point: TrendPoint, series: TrendSeries) -> str:
    if point.low is None or point.high is None:
        return ""
    return f"{units.amount(point.low, series.unit)} … {units.amount(point.high, series.unit)}"
