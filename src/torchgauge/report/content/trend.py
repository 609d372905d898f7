"""Figures over the runs of a history, and where they changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from torchgauge import units
from torchgauge.records.trend import CONFIRM, Alert, Trend, TrendChange, TrendPoint, TrendSeries
from torchgauge.report.content import document as doc
from torchgauge.report.content.comparison import relative
from torchgauge.report.content.section import SCOPES
from torchgauge.report.notebook.charts import Curve
from torchgauge.visible import one_line

COMMIT = 10
COMMIT_BESIDE_CORRECTED = 7
MAX_FIGURES = 20
SIGNS = {True: "▲", False: "▼", None: "◆"}
LASTING = {"went away": "and went away since", "return": "which is the way back"}
FIGURES = (
    doc.Column("values", "oldest → newest", "curve"),
    doc.Column("newest"),
    doc.Column("change"),
    doc.Column("runs"),
)


def title(trend: Trend) -> str:
    """Return the targets whose runs the history has."""
    return ", ".join(dict.fromkeys(series.target for series in trend.series)) or "No run"


def document(trend: Trend, options: doc.Options) -> doc.Document:
    """Return the figures of each target, branch and machine, and the alerts."""
    if not trend.series:
        return doc.Document("", blocks=[doc.Note("No run of the history has such a figure.")])
    blocks: list[doc.Block] = []
    for group in _groups(trend.series):
        models = {series.model for series in trend.series if series.target == group[0].target}
        blocks += _group(group, options.points, names_model=len(models) > 1)
    confirm = any(change.note for series in trend.series for change in series.changes)
    blocks += [doc.Note(CONFIRM, "faint")] * confirm
    alerts = enumerate(trend.alerts, start=confirm)
    blocks += [doc.Note(line(alert), "bad", tight=index > 0) for index, alert in alerts]
    return doc.Document("", blocks=blocks)


def _group(group: Sequence[TrendSeries], points: int, *, names_model: bool) -> Iterator[doc.Block]:
    listed = sorted(group, key=_lasting_shift, reverse=True)[:MAX_FIGURES]
    yield _heading(listed[0], names_model=names_model)
    yield _figures(listed)
    yield from (_changes(series) for series in listed if series.changes)
    for series in listed if points else ():
        yield from _points(series, points)
    if len(group) > len(listed):
        note = f"{len(group) - len(listed)} more moved less; --json has all."
        yield doc.Note(note, "faint", tight=True, level=1)


def line(alert: Alert) -> str:
    """Return an alert in one line."""
    machine = f"machine {alert.machine[:8]}" if alert.machine else ""
    origin = [alert.target, alert.branch, machine]
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


def _heading(series: TrendSeries, *, names_model: bool) -> doc.Heading:
    hardware = series.gpu if series.gpu and series.device.startswith("cuda") else series.cpu
    parts = [f"branch {series.branch}" if series.branch else "no branch", series.precision]
    facts = " · ".join([*parts, f"{hardware or series.device} (machine {series.machine[:8]})"])
    model = f"{series.model} · " if names_model else ""
    return doc.Heading(one_line(series.target), line=one_line(model + facts))


def _figures(group: Sequence[TrendSeries]) -> doc.Table:
    rows = []
    for series in group:
        rows.append(doc.Row(_name(series), _cells(series.values, series)))
        if series.correction is not None:
            cells = _cells(series.corrected, series)
            if series.points[-1].corrected is None:
                cells |= {"newest": "unknown", "change": ""}
            rows.append(doc.Row(f" corrected ({series.correction.how})", cells))
    return doc.Table(
        first="figure", columns=FIGURES, rows=rows, notes=_correction(group), tight=True,
        layout="cut",
    )  # fmt: skip


def _cells(values: Sequence[float], series: TrendSeries) -> dict[str, doc.Value]:
    first, newest = values[0], values[-1]
    change = relative(newest / first - 1) if first else ""
    change = "=" if newest == first else change
    return {
        "values": Curve(values, width=24, reserve=56),
        "newest": units.amount(newest, series.unit, series.metric),
        "change": change,
        "runs": str(len(values)),
    }


def _correction(group: Sequence[TrendSeries]) -> list[str]:
    """Return the noise before and after correction, and which changes are of measured values."""
    parts = [
        f"{_name(series)} by {units.percent(series.correction.after)} instead of "
        f"{units.percent(series.correction.before)}{_uncorrected(series)}"
        for series in group
        if series.correction is not None
    ]
    if not parts:
        return []
    return [
        "Corrected: at the machine's usual speed, from reference work between the calls. "
        f"Neighbouring runs then differ in {', in '.join(parts)}."
    ]


def _uncorrected(series: TrendSeries) -> str:
    if series.changes_in == "corrected":
        return ""
    missing = len(series.points) - len(series.corrected)
    return (
        f" ({missing} of {len(series.points)} runs unknown: changes refer to the measured values)"
    )


def _name(series: TrendSeries) -> str:
    if series.layer is None:
        return one_line(series.metric)
    return one_line(f"{series.layer or 'the model'} {series.metric}")


def _changes(series: TrendSeries) -> doc.Items:
    entries = [
        (SIGNS[change.worse] if change.lasting == "stays" else "·", _change(series, change))
        for change in series.changes
    ]
    heading = f"{_name(series)} changed ({_how(series)})"
    return doc.Items(heading, entries, level=1, tight=True)


def _how(series: TrendSeries) -> str:
    if series.changes_in == "corrected":
        return "estimated, at the machine's usual speed"
    return "exact" if series.how == "counted" else "estimated"


def _change(series: TrendSeries, change: TrendChange) -> doc.Detailed:
    within = ""
    if change.interval is not None:
        low, high = relative(change.interval.low), relative(change.interval.high)
        within = f" ({low.removesuffix(' %')} … {high})"
    first, last = series.points[change.first], series.points[change.last]
    lasting = "" if change.lasting == "stays" else f", {LASTING[change.lasting]}"
    software = f"; also {one_line(change.software)}" if change.software else ""
    text = f"{relative(change.size)}{within} after {_commit(first)} and up to {_commit(last)}"
    return doc.Detailed(text, f"{lasting}{software}")


def _commit(point: TrendPoint) -> str:
    # A run without a commit is named by when it was made.
    name = point.commit[:COMMIT] or f"the run of {point.created[:16].replace('T', ' ')}"
    return one_line(name) + ("+" if point.dirty else "")


def _points(series: TrendSeries, newest: int) -> Iterator[doc.Block]:
    corrected = series.correction is not None
    columns = (
        doc.Column("commit", left_aligned=True),
        doc.Column("run", left_aligned=True),
        doc.Column("value", "measured" if corrected else _name(series)),
        *([doc.Column("corrected")] if corrected else []),
        doc.Column("interval", "95 % interval", left_aligned=True),
    )
    starts = {change.likeliest for change in series.changes}
    rows = []
    for index, point in list(enumerate(series.points))[-newest:]:
        length = COMMIT_BESIDE_CORRECTED if corrected else COMMIT
        cells: dict[str, doc.Value] = {
            "commit": one_line(point.commit[:length]) + ("+" if point.dirty else ""),
            "run": point.run[:8],
            "value": units.amount(point.value, series.unit, series.metric),
            "corrected": "unknown"
            if point.corrected is None
            else units.amount(point.corrected, series.unit, series.metric),
            "interval": _within(point, series),
        }
        created = point.created[:16].replace("T", " ")
        rows.append(doc.Row(created, cells, tone="strong" if index in starts else ""))
    if corrected:
        yield doc.Heading(_name(series), tone="", level=1, tight=True)
    yield doc.Table(
        first="created", columns=columns, rows=rows, notes=_scopes(series.points[-newest:]),
        tight=True,
    )  # fmt: skip


def _scopes(points: Sequence[TrendPoint]) -> list[str]:
    """Return over which repetitions the intervals are, where the records have it."""
    counts = Counter(point.scope for point in points if point.scope is not None)
    if not counts:
        return []
    parts = [f"{count} {SCOPES[scope]}" for scope, count in counts.items()]
    return [f"Intervals: {', '.join(parts)}."]


def _within(point: TrendPoint, series: TrendSeries) -> str:
    if point.low is None or point.high is None:
        return ""
    bounds = (point.low, point.high)
    return " … ".join(units.amount(bound, series.unit, series.metric) for bound in bounds)
