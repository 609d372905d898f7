"""What a summary says of times: latency with its interval, throughput, a training step."""

from __future__ import annotations

from torchgauge import units
from torchgauge.model.latency import Latency, Throughput
from torchgauge.model.record import Interval, IntervalScope
from torchgauge.model.training import TrainingTime
from torchgauge.model.yardstick import Yardstick
from torchgauge.report.section import SMALLEST_SHARE, Row, Section

SCOPES: dict[IntervalScope, str] = {
    "process": "within this process",
    "runs": "of processes seconds apart",
    "calibrated": "of runs on this host",
}


def latency(found: Latency, *, stages: bool = True) -> Section:
    """Say how long one call takes, and how sure that is; stages where no section has them."""
    samples = sum(len(run.steady_samples) for run in found.processes)
    warmup = sum(run.warmup for run in found.processes)
    processes = len(found.processes)
    in_processes = f" in {processes} processes" if processes > 1 else ""
    rows = [
        Row("median", units.time(found.median), _interval(found, found.interval, found.median)),
        *(
            Row(name, units.time(getattr(found, name)), _percentile(found, name))
            for name in ("p90", "p95", "p99")
        ),
        Row("mean", units.time(found.mean), f"standard deviation {units.time(found.std)}"),
    ]
    if found.device_time is not None:
        rows.append(Row("GPU time", units.time(found.device_time), "per call, by its own events"))
    rows += [
        Row(stage.name, units.time(stage.median), _interval(found, stage.interval, stage.median))
        for stage in found.stages
        if stages
    ]
    rows += [
        Row("first call", units.time(found.first_call)),
        Row(
            "samples",
            f"{samples:,}{in_processes}",
            f"after {warmup} of warm-up; stopped: {found.stop}",
        ),
    ]
    if found.yardstick is not None and found.yardstick.unusual:
        rows.append(_machine(found.yardstick))
    if processes > 1:
        medians = sorted(found.process_medians)
        rows.append(Row("between", units.times(medians[0], medians[-1]), "process medians"))
    return Section("Latency", found.how, tuple(rows))


def _machine(yardstick: Yardstick) -> Row:
    """Say that the machine ran at another speed than usual; the yardstick has it."""
    speed, interval = yardstick.speed, yardstick.speed_interval
    assert speed is not None  # noqa: S101 - it is unusual
    assert interval is not None  # noqa: S101
    reach = f"95 % in {interval.low:.2f} … {interval.high:.2f}"
    usual = f"of its usual speed in {yardstick.runs} earlier runs, {yardstick.how}; {reach}"
    return Row("machine", f"×{speed:.2f}", usual, how=yardstick.how)


def _interval(found: Latency, interval: Interval | None, of: float) -> str:
    if interval is None:
        return "no interval: " + _why_none(found)
    share = f"±{units.percent(interval.half_width / of, least=1e-5)}" if of else ""
    short = ", wider than asked" if interval.short else ""
    between = units.times(interval.low, interval.high)
    if interval.scope == "process":
        return f"{share or between} within this process{short}; between runs unknown"
    reach = f", {SCOPES[interval.scope]}" if interval.scope is not None else ""
    inside = f"{interval.confidence:.0%} in {between}".replace("%", " %", 1)
    return f"{inside}{share and f' ({share})'}{reach}{short}"


def _why_none(found: Latency) -> str:
    several = len(found.processes) > 1
    return "processes are too few to tell" if several else "too few samples"


def _percentile(found: Latency, name: str) -> str:
    interval = found.percentile_intervals.get(name)
    if interval is None and len(found.processes) > 1:
        return "of all processes together, n too small for an interval"
    if interval is None:
        return "n too small for an interval"
    return f"{units.times(interval.low, interval.high)}"


def throughput(found: Throughput) -> Section:
    """Say how much work is done per second."""
    shown = [(found.images, "images"), (found.tokens, "tokens"), (found.samples, "samples")]
    if found.images == found.samples:
        shown.pop()
    rows = [Row(name, units.rate(value, name)) for value, name in shown if value is not None]
    if not rows:
        rows = [Row("calls", units.rate(found.calls, "calls"), "the batch size is not known")]
    return Section("Throughput", found.how, tuple(rows))


def training(found: TrainingTime) -> Section:
    """Say how a training step's time is divided."""
    parts = [Row(p.name, units.time(p.seconds), "", p.share) for p in found.phases]
    scaled = ", scaled gradients" if found.scaled else ""
    mixed = f", {found.autocast} autocast{scaled}" if found.autocast else ""
    outside = f"{units.percent(max(found.outside, 0.0))} of it outside the phases"
    return Section(
        "Training step",
        found.how,
        (
            *(part for part in parts if part.share is None or part.share >= SMALLEST_SHARE),
            Row("step", units.time(found.step), outside),
            Row("with", found.optimizer, f"by the {found.clock}'s clock{mixed}"),
        ),
    )
