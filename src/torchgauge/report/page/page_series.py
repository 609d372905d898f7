"""The page's time series: calls, bytes alive, use of the machine; whole ns and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from torchgauge import units
from torchgauge.analyze.gate.evidence import percentile_is_known
from torchgauge.analyze.work.roof_quality import description, reservations
from torchgauge.records.environment import Environment
from torchgauge.records.latency.latency import Latency, LatencyRun
from torchgauge.records.memory.memory import PARTS, Memory
from torchgauge.records.profile import Profile
from torchgauge.records.record import Interval
from torchgauge.records.system import GpuUse, System
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.cost import Cost
from torchgauge.report.content import section as time_sections
from torchgauge.report.content import sections
from torchgauge.report.content.section import Row, Section
from torchgauge.report.page.page_shorter import ns, short
from torchgauge.report.tables.tree_tables import coverage

FLOWS = {
    "disk_read": "Read from disk by the process",
    "disk_write": "Written to disk by the process",
    "io_read": "Read by the process, from caches and pipes too",
    "io_write": "Written by the process, to caches and pipes too",
    "network_sent": "Sent by the whole machine",
    "network_received": "Received by the whole machine",
}


def latency(profile: Profile) -> dict[str, Any] | None:
    """Return every timed call of every process, with the summary's rows."""
    record = profile.latency
    if record is None:
        return None
    return {
        "runs": [_run(run) for run in record.processes],
        "median": ns(record.median),
        "interval": _interval(record.interval),
        "interval_title": _interval_title(record),
        "percentiles": {
            name: ns(getattr(record, name))
            for name in ("p90", "p95", "p99")
            if percentile_is_known(record, name)
        },
        "mean": ns(record.mean),
        "steady": record.steady,
        "rows": _rows(time_sections.latency(record, stages=profile.training is None)),
        "how": record.how,
        "summary": _summary(record),
    }


def _interval_title(record: Latency) -> str:
    scope = record.interval_scope
    level = "" if scope == "process" else "95 % "
    return f"{level}interval of the median {time_sections.SCOPES[scope]}"


def _run(run: LatencyRun) -> dict[str, Any]:
    return {"samples": [ns(sample) for sample in run.samples], "warmup": run.warmup}


def _summary(record: Latency) -> str:
    """Describe the two charts in a sentence, for screen readers."""
    rows = {row.label: row for row in time_sections.latency(record).rows}
    calls = sum(len(run.samples) for run in record.processes)
    return (
        f"{calls:,} timed calls: median {rows['median'].value}, {rows['median'].note}; "
        f"99 % of steady calls took at most {rows['p99'].value}."
    )


def memory(profile: Profile) -> dict[str, Any] | None:
    """Return the bytes alive over a step, by part, and the peak; None without a timeline."""
    record = profile.memory
    if record is None or not record.timeline:
        return None
    by_part = zip(*(point.parts for point in record.timeline), strict=False)
    return {
        "time": [point.time for point in record.timeline],
        "live": [point.live for point in record.timeline],
        "peak": record.peak,
        "average": record.average,
        "parts": {name: part for name, part in record.parts.items() if part},
        "order": list(PARTS),
        "stacked": [
            [name, values] for name, values in zip(PARTS, by_part, strict=False) if any(values)
        ],
        "peak_at": _peak_at(record, profile.tree),
        "rows": _rows(sections.memory(record)),
        "method": record.method,
        "how": record.how,
    }


def _peak_at(record: Memory, tree: Tree | None) -> dict[str, Any] | None:
    """Return what ran when the peak was reached, and the layer's node; None where not known."""
    if not (record.peak_layer or record.peak_operator or record.peak_phase):
        return None
    nodes = [] if tree is None or not record.peak_layer else tree.nodes
    layer = (
        node.index
        for node in nodes
        if node.kind in ("layer", "model") and node.row.path == record.peak_layer
    )
    return {
        "layer": short(record.peak_layer),
        "node": next(layer, None),
        "operator": short(record.peak_operator),
        "phase": record.peak_phase,
    }


def system(profile: Profile) -> dict[str, Any] | None:
    """Return the samples of the process's use of the machine; None where memory is unknown."""
    record = profile.system
    if record is None or any(sample.rss is None for sample in record.samples):
        return None
    return {
        "time": [round(sample.time * 1e9) for sample in record.samples],
        "cores": [float(f"{sample.cores:.4g}") for sample in record.samples],
        "rss": [sample.rss for sample in record.samples],
        "core_count": record.core_count,
        "gpus": [*_flows(record), *(series for gpu in record.gpus for series in _gpu(gpu))],
        "rows": [
            *_rows(sections.system(record)),
            *([] if profile.energy is None else _rows(time_sections.energy(profile.energy))),
        ],
        "how": record.how,
    }


def _flows(record: System) -> Iterator[dict[str, Any]]:
    """Return bytes read, written, sent and received over time, without series of zeros."""
    times = [ns(sample.time) for sample in record.samples]
    for name, title in FLOWS.items():
        values = [getattr(sample, name) for sample in record.samples]
        if any(values):
            yield {"title": title, "unit": "bytes/s", "time": times, "values": values}


def _gpu(gpu: GpuUse) -> list[dict[str, Any]]:
    """Return the driver's readings of a GPU over time, without series that it does not report."""
    samples = gpu.samples
    readings: dict[tuple[str, str], list[Any]] = {
        ("in use", "share"): [sample.utilization for sample in samples],
        ("memory, used by all processes", "bytes"): [sample.memory for sample in samples],
        ("power", "watt"): [sample.power for sample in samples],
        ("clock", "hertz"): [sample.clock for sample in samples],
    }
    times = [ns(sample.time) for sample in samples]
    return [
        {"title": f"GPU {gpu.index} {title}", "unit": unit, "time": times, "values": values}
        for (title, unit), values in readings.items()
        if any(value is not None for value in values)
    ]


def _rows(section: Section) -> list[list[str]]:
    return rows(section.rows)


def rows(section_rows: Iterable[Row]) -> list[list[str]]:
    """Return label, figure and note of each row; a share becomes part of the note."""
    return [
        [row.label, row.value, row.note if row.share is None else units.share(row.share)]
        for row in section_rows
    ]


def _interval(interval: Interval | None) -> list[int] | None:
    return None if interval is None else [ns(interval.low), ns(interval.high)]


Rows = list[list[str]]
KINDS = (
    ["measured", "on this machine, with an interval where samples allow one"],
    ["counted", "exact, from shapes; nothing was timed for it"],
    ["estimated", "computed by a named model from measured and counted figures"],
    ["unknown", "not measured or not measurable; a sum that lacks it says 'at least'"],
)


def profile_method(profile: Profile) -> dict[str, Any]:
    """Return how each part was measured, and every figure of the summary."""
    parts: dict[str, Rows] = {"What the words mean": [*KINDS]}
    if profile.latency is not None:
        parts["Latency"] = _latency(profile.latency)
    if profile.cost is not None:
        parts["Work"] = _cost(profile.cost)
    if profile.memory is not None:
        parts["Memory"] = [["recorded by", profile.memory.method, ""]]
    if profile.roofline is not None:
        roofs = profile.roofline.roofs
        parts["Roofs"] = [
            [description(roofs), roofs.method, " ".join(reservations(roofs))],
            *([name, source, ""] for name, source in roofs.sources.items()),
        ]
    if profile.tree is not None:
        parts["Tree"] = tree_facts(profile.tree)
    parts["Passes"] = [
        [probe_pass.probe, units.time(probe_pass.duration, 3), f"in {probe_pass.process} process"]
        for probe_pass in profile.passes
    ]
    figures = [
        [section.title, section.how, rows(section.rows), list(section.notes)]
        for section in sections.sections(profile)[1:]
    ]
    return {"parts": [[title, part] for title, part in parts.items() if part], "figures": figures}


def _latency(record: Latency) -> Rows:
    warmup = sum(run.warmup for run in record.processes)
    steady = sum(len(run.steady_samples) for run in record.processes)
    return [
        ["interval", record.interval_method, ""],
        ["processes", f"{len(record.processes):,}", ""],
        ["samples", f"{steady:,}", f"after {warmup:,} warm-up calls, which no figure includes"],
        ["steady", "yes" if record.steady else "no: no end of the warm-up was found", ""],
        ["stopped", record.stop, ""],
        *([["caches", "emptied before each call", ""]] if record.cold_cache else []),
    ]


def _cost(record: Cost) -> Rows:
    unknown = [[name, f"{calls:,} calls", "no formula"] for name, calls in record.unknown.items()]
    return [
        ["counted on", f"{record.counted_on} tensors", ""],
        ["coverage", units.percent(record.coverage, 4), "of operator calls have a formula"],
        ["conventions", "1 MAC = 2 FLOP; vector work 1 FLOP per element", ""],
        ["bytes", "inputs read and outputs written once per operator", "no caches, no re-reads"],
        *unknown,
    ]


def tree_facts(tree: Tree) -> Rows:
    """Return how much of a step is in layers, what the passes cost, and how far the sum is off."""
    root, facts = tree.root, []
    if covered := coverage(root):
        facts.append(["coverage", *covered])
    for tree_pass in tree.passes:
        cost = "" if tree_pass.overhead is None else f"{tree_pass.overhead:.3f}× the bare step"
        facts.append(
            [tree_pass.name, f"{tree_pass.steps:,} step{'s' * (tree_pass.steps != 1)}", cost]
        )
    bare = next((tree_pass.bare for tree_pass in tree.passes if tree_pass.bare), None)
    if tree.residual is not None and bare:
        side = "above" if tree.residual >= 0 else "below"
        note = f"{units.percent(abs(tree.residual) / bare)} {side} the bare step's"
        facts.append(["sum of parts", units.time(root.host_time), f"{note} {units.time(bare)}"])
    if tree.headline_ratio is not None:
        note = "the tree's sum ÷ the headline latency"
        facts.append(["headline", f"{tree.headline_ratio:.2f}×", note])
    for use in tree.devices:
        share = units.percent(use.busy / (use.busy + use.idle)) if use.busy + use.idle else ""
        note = f"idle for {units.time(use.idle, 3)}"
        facts.append([f"device {use.device}", f"{share} busy", note])
    return facts


def environment(record: Profile | Loop) -> dict[str, Any]:
    """Return machine, software and settings as the record has them, and what doctor found."""
    env: Environment = record.environment
    machine, software, settings = env.machine, env.software, env.settings
    return {
        "groups": [
            ["Machine", [*_machine(env), ["fingerprint", machine.fingerprint, ""]]],
            ["Software", _plain(msgspec.structs.asdict(software))],
            ["Settings", _plain(msgspec.structs.asdict(settings))],
        ],
        "findings": [
            [finding.severity, finding.title, finding.evidence, finding.remedy]
            for finding in env.findings
        ],
        "created": env.created,
    }


def _machine(env: Environment) -> Rows:
    machine = env.machine
    cores = [
        (machine.physical_cores, "physical"),
        (machine.logical_cores, "logical"),
        (machine.usable_cores, "usable"),
        (machine.cpu_quota, "by quota"),
    ]
    gpus = [
        [f"GPU {index}", gpu.name, units.size(gpu.memory, 3)]
        for index, gpu in enumerate(machine.gpus)
    ]
    return [
        ["processor", machine.cpu, machine.architecture],
        ["cores", ", ".join(f"{n:g} {kind}" for n, kind in cores if n is not None), ""],
        ["memory", units.size(machine.memory, 3), ""],
        *gpus,
        ["system", machine.system, ""],
    ]


def _plain(values: dict[str, Any]) -> Rows:
    """Return what is set, a mapping's entries as rows of their own."""
    facts = []
    for name, value in values.items():
        if isinstance(value, dict):
            facts += [[key, str(setting), name] for key, setting in value.items()]
        elif value not in (None, ""):
            text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
            facts.append([name.replace("_", " "), text, ""])
    return facts
