"""The section of energy: joules of a call, and each counter they are the sum of."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.work.energy import Energy, EnergyCounter
from torchgauge.report.content.section import Row, Section


def energy(record: Energy) -> Section:
    """Say how many joules a call takes, by which counters, and what the idle machine takes."""
    prefix = "at least " if record.at_least else ""
    rows = [Row("a call", prefix + units.energy(record.joules), _note(record))]
    if record.joules is not None:
        for label, value in (("a sample", record.per_sample), ("a token", record.per_token)):
            if value is not None:
                rows.append(Row(label, prefix + units.energy(value)))
        above = units.energy(record.above_idle)
        rows.append(Row("above idle", prefix + above, "a call, less the idle power over its time"))
        windows = f"{record.calls:,} calls in {len(record.window_times)} windows"
        power = f"{units.significant(record.power, 4)} W" if record.power else units.UNKNOWN
        rows.append(Row("power", prefix + power, f"{windows}, {record.duration:.1f} s"))
    rows += [_counter(counter) for counter in record.counters]
    return Section("Energy", record.how, tuple(rows), headlines=("a call", "a token"))


def _note(record: Energy) -> str:
    if record.joules is None:
        return record.reason
    if record.interval is None:
        return "too few windows for an interval"
    ends = record.interval
    return f"95 %: {units.energy(ends.low)} … {units.energy(ends.high)}"


def _counter(counter: EnergyCounter) -> Row:
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
