"""The sections of a profile's summary, shared by all formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgauge import units
from torchgauge.analyze.work.roof_quality import description, of_each_call, shortcomings
from torchgauge.records.environment import Settings
from torchgauge.records.latency.latency import Latency
from torchgauge.records.memory.memory import Memory
from torchgauge.records.profile import Profile
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.system import GpuUse, System, Use
from torchgauge.records.target import TargetDescription
from torchgauge.records.timeline.compilation import Compilation, CompiledKernel
from torchgauge.records.work.cost import OUTSIDE, Cost, known_part
from torchgauge.records.work.roofline import Bottleneck, Roofline
from torchgauge.records.work.size import Size
from torchgauge.report.content import section as time_sections
from torchgauge.report.content.section import Row, Section
from torchgauge.report.tables.compilation_tables import forward_speed_up
from torchgauge.report.tables.target_facts import graph, hardware, software


def sections(profile: Profile) -> list[Section]:
    """Return the sections of what was measured, in the order a reader wants them."""
    summary = [target(profile)]
    if profile.size is not None:
        summary.append(size(profile.size))
    if profile.graph is not None:
        summary.append(graph(profile.graph))
    if profile.cost is not None:
        impossible = any(warning.id == "rate-impossible" for warning in profile.warnings)
        timed = profile.latency if of_each_call(profile.cost, profile.tree) else None
        summary.append(cost(profile.cost, timed, impossible=impossible))
    if profile.latency is not None:
        summary.append(time_sections.latency(profile.latency, stages=profile.training is None))
    if profile.bottleneck is not None:
        summary.append(bounds(profile.bottleneck, profile.roofline))
    parts: tuple[tuple[Any, Callable[[Any], Section]], ...] = (
        (profile.throughput, time_sections.throughput),
        (profile.training, time_sections.training),
        (profile.utilization, time_sections.utilization),
        (profile.memory, memory),
        (profile.system, system),
        (profile.energy, time_sections.energy),
        (profile.compilation, compilation),
    )
    return summary + [section(part) for part, section in parts if part is not None]


def target(profile: Profile) -> Section:
    """Say what was measured and on what."""
    target_info, machine = profile.target, profile.environment.machine
    inputs = [
        f"{i.name}: {i.dtype} {'×'.join(map(str, i.shape)) or 'scalar'}" for i in target_info.inputs
    ]
    gpus = machine.gpus[:0]
    if target_info.device.startswith("cuda"):
        index = int(target_info.device.partition(":")[2] or 0)
        gpus = machine.gpus[index : index + 1]
    settings = profile.environment.settings
    threads = f", {settings.threads} threads" if settings.threads else ""
    step = target_info.step
    return Section(
        target_info.name,
        "",
        (
            Row("target", target_info.spec),
            Row("weights", target_info.weights),
            Row("input", "; ".join(inputs) or "none"),
            Row("run as", f"{step}, {_precision(target_info, settings)}, on {target_info.device}"),
            *([Row("runtime", target_info.runtime)] if target_info.runtime else []),
            Row("machine", hardware(machine, gpus)),
            Row("software", software(profile.environment, target_info.runtime) + threads),
        ),
    )


def _precision(target_info: TargetDescription, settings: Settings) -> str:
    if target_info.precision_method != "native":
        return f"{target_info.precision} ({target_info.precision_method})"
    if target_info.device.startswith("cuda") and target_info.precision == "fp32":
        switches = {"products": settings.fp32_matmul, "convolutions": settings.fp32_convolution}
        rounded = [name for name, switch in switches.items() if switch == "tf32"]
        return f"fp32 (TF32 in {' and '.join(rounded)})" if rounded else "fp32"
    return target_info.precision


def size(record: Size) -> Section:
    """Say how big the model is."""
    prefix = "at least " if record.uninitialized else ""
    exact = f"{record.parameters:,}" if record.parameters >= 10_000 else ""
    frozen = f"{units.elements(record.frozen)} frozen" if record.frozen else "all trainable"
    trainable = frozen if record.trainable else "none trainable" if record.parameters else ""
    dtypes = ", ".join(f"{name} {units.size(d.bytes)}" for name, d in record.by_dtype.items())
    rows = [
        Row("parameters", prefix + units.elements(record.parameters), _join(exact, trainable)),
        Row("buffers", prefix + units.elements(record.buffers)),
        Row("in memory", prefix + units.size(record.bytes), dtypes),
        Row("on disk", units.size(record.disk_bytes), record.disk_source),
    ]
    if record.uninitialized:
        rows.append(Row("no shape yet", str(len(record.uninitialized)), record.uninitialized[0]))
    return Section("Size", record.how, tuple(rows), headlines=("parameters", "on disk"))


def cost(record: Cost, timed: Latency | None = None, *, impossible: bool = False) -> Section:
    """Say how much work a call does; `timed` tells how fast, `impossible` that it cannot be."""

    def amount(value: int, form: Callable[[float | None], str] = units.count) -> str:
        known_amount = known_part(value, at_least=record.at_least)
        return at_least(form(known_amount), incomplete=record.at_least and known_amount is not None)

    rows = [Row("MACs", amount(record.macs), "multiply-accumulates of products")]
    products, vector = units.count(record.matmul_flops), units.count(record.vector_flops)
    parts = f"products {products}, vector {vector}"
    if record.flops_range is not None:
        parts = "one call; others " + " to ".join(map(units.count, record.flops_range))
    rows.append(Row("FLOPs", amount(record.flops), parts if record.flops else ""))
    if record.causal_matmul_flops != record.matmul_flops:
        causal = amount(record.causal_matmul_flops)
        rows.append(Row("causal", causal, "products, with attention at its exact triangle"))
    if record.executed_flops != record.flops:
        rows.append(Row("executed", amount(record.executed_flops), "with recomputation"))
    if record.integer_ops:
        rows.append(Row("integer", amount(record.integer_ops), "operations, not in the FLOPs"))
    traffic = "compulsory traffic"
    if record.intensity is not None and record.exact_flops is not None:
        traffic += f"; {units.significant(record.intensity)} FLOP/B"
    rows.append(Row("bytes", amount(record.bytes, units.size), traffic))
    if record.retained_for_backward is not None:
        rows.append(Row("retained", units.size(record.retained_for_backward), "for backward"))
    if record.kernels:
        kernels = ", ".join(f"{calls:,} × {name}" for name, calls in record.kernels.items())
        rows.append(Row("kernels", kernels, "assumed of a GPU"))
    # A training step has an optimizer, which the cost has not.
    if timed is not None and not record.backward:
        known_flops = known_part(record.executed_flops, at_least=record.at_least)
        speed = known_flops / timed.median if known_flops is not None and timed.median else None
        incomplete = record.at_least and speed is not None
        achieved = at_least(units.rate(speed, "FLOP"), incomplete=incomplete)
        note = "FLOPs over the median latency"
        note += ": contradicts itself, see the warnings" if impossible else ""
        rows.append(Row("achieved", achieved, note))
    rows.append(Row("coverage", units.percent(record.coverage, 4), _unknown(record)))
    headlines = ("FLOPs", "executed", "bytes", "coverage")
    return Section("Cost", record.how, tuple(rows), headlines=headlines)


def at_least(text: str, *, incomplete: bool) -> str:
    """Mark an amount as a lower bound where it is incomplete."""
    return f"at least {text}" if incomplete else text


def _unknown(record: Cost) -> str:
    """Name the operators without formula, most called first."""
    if OUTSIDE in record.unknown:
        return "no torch operator ran: the call's work is not known"
    text = "of operator calls have a formula"
    names = [f"{name} ×{calls:,}" for name, calls in record.unknown.items()]
    suffix = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return text + (f"; unknown: {', '.join(names[:3])}{suffix}" if names else "")


def bounds(bottleneck: Bottleneck, roofline: Roofline | None) -> Section:
    """Say what the call waits for, and how near it comes to what the machine can do."""
    rows = [
        Row(
            "bound by",
            bottleneck.kind or units.UNKNOWN,
            bottleneck.confidence if bottleneck.kind else "",
        )
    ]
    if roofline is not None:
        roofs_note = f"lower bound on {roofline.roofs.device}, roofs: {description(roofline.roofs)}"
        best = at_least(units.time(roofline.lower_bound), incomplete=roofline.at_least)
        rows.append(Row("at best", best, roofs_note))
        incomplete = roofline.at_least and roofline.efficiency is not None
        efficiency = at_least(units.percent(roofline.efficiency), incomplete=incomplete)
        short = ", ".join(shortcomings(roofline.roofs))
        note = "that bound over the measured median" + f"; roofs: {short}" * bool(short)
        rows.append(Row("efficiency", efficiency, note))
    headlines = ("bound by", "efficiency")
    return Section("Bottleneck", bottleneck.how, tuple(rows), bottleneck.evidence, headlines)


def peak_place(record: Memory) -> str:
    """Return where in the step the peak is reached: "in layer4 (aten::conv2d)"; "" if unknown."""
    operator = record.peak_operator.removeprefix("autograd::engine::evaluate_function: ")
    phase = record.peak_phase if record.step == "training" else ""
    place = record.peak_layer or phase
    if not place:
        return ""
    phase_note = f", {phase}" if record.peak_layer and phase else ""
    return f"in {place}" + f" ({operator})" * bool(operator) + phase_note


def _peak_note(record: Memory) -> str:
    average = f"average {units.size(record.average)}"
    return "; ".join(filter(None, (peak_place(record), average)))


def memory(record: Memory) -> Section:
    """Say how much memory a step needs, and what for."""
    rows = [
        Row("peak", units.size(record.peak), _peak_note(record)),
        *(
            Row(name, units.size(part), "", part / record.peak if record.peak else 0.0)
            for name, part in sorted(record.parts.items(), key=lambda item: -item[1])
            if part
        ),
    ]
    if record.after is not None and record.growth is not None:
        direction = "more" if record.growth > 0 else "less"
        difference = f"{units.size(abs(record.growth))} {direction} than before"
        change = difference if record.growth else "as much as before"
        rows.append(Row("after", units.size(record.after), f"once it returned: {change}"))
    if record.per_sample is not None:
        rows.append(
            Row(
                "per sample", units.size(record.per_sample), "all but the fixed parts, by the batch"
            )
        )
    if record.retained_for_backward is not None:
        retained = units.size(record.retained_for_backward)
        rows.append(Row("for backward", retained, "kept by the forward beyond its outputs"))
    if record.allocator_peak is not None:
        gap = units.size(record.allocator_peak - record.peak)
        note = f"its own peak, {gap} beyond; reserved {units.size(record.reserved)}"
        rows.append(Row("allocator", units.size(record.allocator_peak), note))
    if record.rss_peak is not None:
        gap = "" if record.rss_gap is None else f"{units.size(record.rss_gap)} beyond the tensors"
        rows.append(Row("process RSS", units.size(record.rss_peak), gap))
    title, headlines = f"Memory of a step ({record.step})", ("peak", "after", "for backward")
    return Section(title, record.how, tuple(rows), headlines=headlines)


def system(record: System) -> Section:
    """Say what the machine did meanwhile."""
    busy = None if record.machine is None else record.machine.mean
    other_load = f"{units.percent(record.other)} by others"
    rows = [
        Row(
            "CPU",
            f"{record.cores.mean:.2f} of {record.core_count} cores",
            f"machine {units.percent(busy)} busy, {other_load}",
        )
    ]
    rows += [_gpu(gpu) for gpu in record.gpus]
    if record.disk_read or record.disk_write:
        read, write = units.size(record.disk_read, 3), units.size(record.disk_write, 3)
        rows.append(Row("disk", f"{read}/s read", f"{write}/s written (this process)"))
    if record.io_read or record.io_write:
        read, write = units.size(record.io_read, 3), units.size(record.io_write, 3)
        rows.append(Row("files, pipes", f"{read}/s read", f"{write}/s written (this process)"))
    if record.network_sent or record.network_received:
        received, sent = units.size(record.network_received, 3), units.size(record.network_sent, 3)
        rows.append(Row("network", f"{received}/s in", f"{sent}/s out (whole machine)"))
    schedule = f"every {units.time(record.interval, 2)} for {units.time(record.duration, 3)}"
    rows.append(Row("sampled", schedule, f"at a cost of {units.percent(record.cost)} of a core"))
    headlines = ("CPU", *(f"GPU {gpu.index}" for gpu in record.gpus))
    return Section("System", record.how, tuple(rows), headlines=headlines)


def compilation(record: Compilation) -> Section:
    """Say what torch.compile made of the model, and what the tree cannot tell apart for it."""
    rows = [Row("graphs", units.UNKNOWN, "compiled before the profile began")]
    if record.graphs is not None:
        rows = [
            Row(
                "graphs", f"{record.graphs:,}", f"compiled in {units.time(record.compile_time, 3)}"
            ),
            _reasons("graph breaks", record.graph_breaks or {}),
            _reasons("recompiled", record.recompiles or {}),
        ]
    if record.kernels:
        fused = [_kernel(kernel) for kernel in record.kernels if "_fused_" in kernel.name]
        rows.append(Row("kernels", f"{len(record.kernels):,}", _first(fused)))
    if record.layers:
        note = "layers, which the tree cannot tell apart: "
        rows.append(Row("in graphs", f"{len(record.layers):,}", note + _first(record.layers)))
    if record.beside_eager is not None:
        rows.append(forward_speed_up(record.beside_eager))
    headlines = ("graphs", "graph breaks", "recompiled", "speed-up")
    return Section("Compilation", record.how, tuple(rows), headlines=headlines)


def _reasons(label: str, counts: dict[str, int]) -> Row:
    reasons = [f"{reason} ×{count}" if count > 1 else reason for reason, count in counts.items()]
    return Row(label, f"{sum(counts.values()):,}", _first(reasons))


def _kernel(kernel: CompiledKernel) -> str:
    """Name a fused kernel, whose name has its operators, and its layers."""
    return kernel.name + (f" in {_first(kernel.layers, 2)}" if kernel.layers else "")


def _first(names: Sequence[str], count: int = 3) -> str:
    suffix = f" and {len(names) - count} more" if len(names) > count else ""
    return "; ".join(names[:count]) + suffix


def _gpu(gpu: GpuUse) -> Row:
    def part(use: Use | None, text: str) -> str:
        return text if use is not None else ""

    busy = units.percent(gpu.utilization.mean) if gpu.utilization else units.UNKNOWN
    note = _join(
        part(gpu.memory, units.size(gpu.memory.max if gpu.memory else None, 3)),
        part(gpu.power, f"{gpu.power.mean:.0f} W" if gpu.power else ""),
        part(gpu.temperature, f"{gpu.temperature.max:.0f} °C" if gpu.temperature else ""),
        part(gpu.clock, f"{gpu.clock.mean / 1e6:.0f} MHz" if gpu.clock else ""),
        f"throttled: {', '.join(gpu.throttled)}" if gpu.throttled else "",
    )
    return Row(f"GPU {gpu.index}", f"{busy} busy", note)


def warnings(profile: Profile) -> list[MeasurementWarning]:
    """Return the warnings to list: the machine's first, then the probes'.

    Of a percentile without interval its own row tells.
    """
    machine = [
        MeasurementWarning(
            id=f.id, message=f"{f.title}: {f.evidence.rstrip('.')}.", remedy=f.remedy
        )
        for f in profile.environment.findings
        if f.severity != "info"
    ]
    return machine + [w for w in profile.all_warnings if not w.id.endswith("-n-too-small")]


def warning_text(warning: MeasurementWarning) -> str:
    """Return a warning as one paragraph: what, why and what to do."""
    parts = [warning.message, warning.cause, warning.remedy]
    return " ".join(part for part in parts if part)


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def tree_latency_note(ratio: float) -> str:
    """Return how the calls of a tree compare with the headline latency."""
    return f"the tree's calls took {ratio:.2f}× the headline latency"
