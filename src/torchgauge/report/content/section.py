"""One row and one titled section of a summary, shared by all formats."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from torchgauge import units
from torchgauge.records.latency.latency import (
    Latency,
    Throughput,
    TrainingTime,
    Undisturbed,
    Yardstick,
)
from torchgauge.records.record import Interval, IntervalScope
from torchgauge.records.work.energy import Energy, EnergyCounter
from torchgauge.records.work.utilization import FieldFormula, PeakUsed, Utilization

SMALLEST_SHARE = 0.0005


@dataclasses.dataclass(frozen=True)
class Row:
    """One line: what it is, the figure, what to know about it; `share` (0…1) draws a bar.

    `how` overrides the section's for a figure that is known in another way.
    """

    label: str
    value: str
    note: str = ""
    share: float | None = None
    how: str = ""


@dataclasses.dataclass(frozen=True)
class Section:
    """A titled group of rows; `how` is measured, counted, estimated or empty.

    `notes` are sentences below the rows. `headlines` are the labels of the rows that a short form
    shows, without notes; empty: all.
    """

    title: str
    how: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    headlines: tuple[str, ...] = ()

    @property
    def short(self) -> Section:
        """The section with its headlines alone, if it has any."""
        if not self.headlines:
            return self
        rows = tuple(row for row in self.rows if row.label in self.headlines)
        return dataclasses.replace(self, rows=rows, notes=())


SCOPES: dict[IntervalScope, str] = {
    "process": "within this process",
    "runs": "across processes of one run",
    "calibrated": "across runs on this host",
}


def latency(record: Latency, *, stages: bool = True) -> Section:
    """Say how long one call takes, and how sure that is; stages where no section has them."""
    samples = sum(len(run.steady_samples) for run in record.processes)
    warmup = sum(run.warmup for run in record.processes)
    processes = len(record.processes)
    in_processes = f" in {processes} processes" if processes > 1 else ""
    rows = [
        Row("median", units.time(record.median), _interval(record, record.interval, record.median)),
        *(
            Row(name, units.time(getattr(record, name)), _percentile(record, name))
            for name in ("p90", "p95", "p99")
        ),
        Row("mean", units.time(record.mean), f"standard deviation {units.time(record.std)}"),
    ]
    if record.device_time is not None:
        rows.append(Row("GPU time", units.time(record.device_time), "per call, by its own events"))
    rows += [
        Row(stage.name, units.time(stage.median), _interval(record, stage.interval, stage.median))
        for stage in record.stages
        if stages
    ]
    rows += [
        Row("first call", units.time(record.first_call)),
        Row(
            "samples",
            f"{samples:,}{in_processes}",
            f"after {warmup} of warm-up; stopped: {record.stop}",
        ),
    ]
    if record.undisturbed is not None:
        rows.append(_undisturbed(record.undisturbed))
    if record.yardstick is not None and record.yardstick.unusual:
        rows.append(_machine(record.yardstick))
    if processes > 1:
        medians = sorted(record.process_medians)
        rows.append(Row("between", units.times(medians[0], medians[-1]), "process medians"))
    headlines = ("median", "p90", "p99", "GPU time", "undisturbed", "machine")
    return Section("Latency", record.how, tuple(rows), headlines=headlines)


def _undisturbed(estimate: Undisturbed) -> Row:
    """Say what a call takes without the other processes, and how much slower they made it."""
    low, high = estimate.interval.low, estimate.interval.high
    note = f"without other processes, {estimate.how}: 95 % in {units.times(low, high)}"
    slowed = f"the machine was at {units.significant(estimate.speed, 2)} of its speed"
    return Row("undisturbed", units.time(estimate.value), f"{note}; {slowed}", how=estimate.how)


def _machine(yardstick: Yardstick) -> Row:
    """Say that the machine ran at another speed than usual; the yardstick has it."""
    speed, interval = yardstick.speed, yardstick.speed_interval
    assert speed is not None  # noqa: S101 - it is unusual
    assert interval is not None  # noqa: S101
    reach = f"95 % in {interval.low:.2f} … {interval.high:.2f}"
    usual = f"of its usual speed in {yardstick.runs} earlier runs, {yardstick.how}; {reach}"
    return Row("machine", f"×{speed:.2f}", usual, how=yardstick.how)


def _interval(record: Latency, interval: Interval | None, median: float) -> str:
    if interval is None:
        return "no interval: " + _missing_interval_reason(record)
    share = f"±{units.percent(interval.half_width / median, smallest=1e-5)}" if median else ""
    short = ", wider than asked" if interval.short else ""
    between = units.times(interval.low, interval.high)
    if interval.scope == "process":
        return f"{share or between} within this process{short}; between runs unknown"
    reach = f", {SCOPES[interval.scope]}" if interval.scope is not None else ""
    inside = f"{interval.confidence:.0%} in {between}".replace("%", " %", 1)
    return f"{inside}{share and f' ({share})'}{reach}{short}"


def _missing_interval_reason(record: Latency) -> str:
    several = len(record.processes) > 1
    return "processes are too few to tell" if several else "too few samples"


def _percentile(record: Latency, name: str) -> str:
    interval = record.percentile_intervals.get(name)
    if interval is None and len(record.processes) > 1:
        return "of all processes together, n too small for an interval"
    if interval is None:
        return "n too small for an interval"
    return f"{units.times(interval.low, interval.high)}"


def throughput(record: Throughput) -> Section:
    """Say how much work is done per second."""
    rates = [(record.images, "images"), (record.tokens, "tokens"), (record.samples, "samples")]
    if record.images == record.samples:
        rates.pop()
    rows = [Row(name, units.rate(value, name)) for value, name in rates if value is not None]
    if not rows:
        rows = [Row("calls", units.rate(record.calls, "calls"), "the batch size is not known")]
    return Section("Throughput", record.how, tuple(rows))


def training(record: TrainingTime) -> Section:
    """Say how a training step's time is divided."""
    parts = [Row(p.name, units.time(p.seconds), "", p.share) for p in record.phases]
    scaled = ", scaled gradients" if record.scaled else ""
    mixed = f", {record.autocast} autocast{scaled}" if record.autocast else ""
    outside = f"{units.percent(max(record.outside, 0.0))} of it outside the phases"
    return Section(
        "Training step",
        record.how,
        (
            *(part for part in parts if part.share is None or part.share >= SMALLEST_SHARE),
            Row("step", units.time(record.step), outside),
            Row("with", record.optimizer, f"by the {record.clock}'s clock{mixed}"),
        ),
        headlines=("forward", "backward", "optimizer"),
    )


def utilization(record: Utilization, *, rates: bool = False) -> Section:
    """Say what share of a device's peak a step uses; with `rates` also what it does a second."""
    prefix = "at least " * record.at_least
    rows = [_share("MFU", record.mfu, record.mfu_interval, prefix, _peak(record))]
    if record.executed_flops != record.model_flops:
        note = "with what is computed again"
        rows.append(_share("HFU", record.hfu, record.hfu_interval, prefix, note))
    flops = f"{prefix}{units.count(record.model_flops)}"
    work = "products, attention whole"
    if record.flops_range is not None:
        lowest, highest = map(units.count, record.flops_range)
        work = f"the middle one of recorded steps, {lowest} to {highest}; {work}"
    rows.append(Row("model FLOPs", flops, work, how="counted"))
    notes = [f"{record.reason}."] * bool(record.reason)
    if record.formula is not None:
        share = "" if record.formula.mfu is None else f"MFU {units.percent(record.formula.mfu, 4)}"
        rows.append(Row("by formula", units.count(record.formula.flops), share))
        notes += _formula_notes(record.formula, record.model_flops)
    if rates:
        rows.append(
            Row("a step", units.time(record.seconds), f"{record.average}, all rates are of it")
        )
        per_second = {"tokens": record.tokens_per_second, "samples": record.samples_per_second}
        rows += [
            Row(name, units.rate(rate, name), how="measured")
            for name, rate in per_second.items()
            if rate is not None
        ]
    headlines = ("MFU", "HFU", "tokens", "samples")
    return Section("Utilization", record.how, tuple(rows), tuple(notes), headlines)


def _share(
    label: str, value: float | None, interval: Interval | None, prefix: str, note: str
) -> Row:
    text = units.percent(value, 4)
    if interval is not None:
        low, high = units.percent(interval.low, 3), units.percent(interval.high, 3)
        note = f"95 % in {low.removesuffix(' %')} … {high}; {note}"
    return Row(label, f"{prefix}{text}" if value is not None else text, note)


def _peak(record: Utilization) -> str:
    peak = record.peak
    if peak is None:
        return "no peak is known"
    several = f"{record.devices} × " if record.devices > 1 else ""
    speed = units.rate(peak.flops_per_second, "FLOP", 3)
    return f"of {several}{speed}, {_peak_source(peak)}"


def _peak_source(peak: PeakUsed) -> str:
    source = "measured here" if peak.source == "measured" else "datasheet, dense"
    part = "" if peak.share > 0.9995 else f", in which {units.percent(peak.share)} of products run"
    return f"{peak.dtype} of {peak.device} ({source}){part}"


def _formula_notes(formula: FieldFormula, counted: int) -> Iterator[str]:
    letters = {"L": formula.layers, "h": formula.width, "s": formula.sequence}
    sizes = [f"N {units.elements(formula.parameters)}"]
    if "L" in formula.name:
        sizes += [f"{name} {size:,}" for name, size in letters.items() if size is not None]
    ratio = formula.flops / counted
    yield (
        f"The field's formula, {formula.name} a token with {', '.join(sizes)}, "
        f"is ×{ratio:.4f} of what was counted."
    )
    for part in formula.parts:
        if part.reason:
            direction = "more" if part.difference > 0 else "less"
            amount = units.count(abs(part.difference))
            yield f"Its {part.name} are {amount} {direction}: {part.reason}.".replace(
                "attention are", "attention is"
            )


def energy(record: Energy) -> Section:
    """Say how many joules a call takes, by which counters, and what the idle machine takes."""
    prefix = "at least " if record.at_least else ""
    rows = [Row("a call", prefix + units.energy(record.joules), _energy_note(record))]
    if record.joules is not None:
        for label, value in (("a sample", record.per_sample), ("a token", record.per_token)):
            if value is not None:
                share = value / record.joules if record.joules else 0.0
                rows.append(Row(label, prefix + units.energy(value), _energy_note(record, share)))
        above = units.energy(record.above_idle)
        rows.append(Row("above idle", prefix + above, "a call, less the idle power over its time"))
        windows = f"{record.calls:,} calls in {len(record.window_times)} windows"
        power = f"{units.significant(record.power, 4)} W" if record.power else units.UNKNOWN
        rows.append(Row("power", prefix + power, f"{windows}, {record.duration:.1f} s"))
    rows += map(counter_row, record.counters)
    parts = {counter.part for counter in record.counters if counter.joules is not None}
    if record.joules is not None and "package" in parts and "dram" not in parts:
        rows.append(Row("memory", units.UNKNOWN, "It has no counter here, and is not in the sum."))
    how = "unknown" if record.joules is None else record.how
    return Section("Energy", how, tuple(rows), headlines=("a call", "a token"))


def _energy_note(record: Energy, share: float = 1.0) -> str:
    """Return the interval of a share of a call's joules, or why there is none."""
    if record.joules is None:
        return record.reason
    if record.interval is None:
        return "too few windows for an interval"
    ends = record.interval
    return f"95 %: {units.energy(ends.low * share)} … {units.energy(ends.high * share)}"


def counter_row(counter: EnergyCounter) -> Row:
    """Return a counter's joules, with its steps and the power of the idle machine."""
    if counter.joules is None:
        return Row(counter.name, units.UNKNOWN, counter.reason)
    notes = []
    if counter.idle_power is not None:
        notes.append(f"idle {units.significant(counter.idle_power, 3)} W")
    if counter.resolution is not None and counter.period is not None:
        step = f"{units.energy(counter.resolution, 2)} every {units.time(counter.period, 2)}"
        notes.append(f"steps of {step}")
    if counter.wraps:
        notes.append(f"wrapped around {counter.wraps} times")
    return Row(counter.name, units.energy(counter.joules), ", ".join(notes))
