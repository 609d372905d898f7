"""What a summary of a profile says, section by section, before any format decides how it looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchgauge import units
from torchgauge.analyze.roof_quality import description, shortcomings
from torchgauge.model.compilation import Compilation, CompiledKernel
from torchgauge.model.cost import OUTSIDE, Cost, known_part
from torchgauge.model.environment import Settings
from torchgauge.model.latency import Latency
from torchgauge.model.memory import Memory
from torchgauge.model.profile import Profile
from torchgauge.model.record import MeasurementWarning
from torchgauge.model.roofline import Bottleneck, Roofline
from torchgauge.model.size import Size
from torchgauge.model.system import GpuUse, System, Use
from torchgauge.model.target import TargetDescription
from torchgauge.report.section import Row, Section
from torchgauge.report.time_sections import latency, throughput, training


def sections(profile: Profile) -> list[Section]:
    """Return the sections of what was measured, in the order a reader wants them."""
    found = [target(profile)]
    if profile.size is not None:
        found.append(size(profile.size))
    if profile.cost is not None:
        impossible = any(one.id == "rate-impossible" for one in profile.warnings)
        found.append(cost(profile.cost, profile.latency, impossible=impossible))
    if profile.latency is not None:
        found.append(latency(profile.latency, stages=profile.training is None))
    if profile.bottleneck is not None:
        found.append(bounds(profile.bottleneck, profile.roofline))
    if profile.throughput is not None:
        found.append(throughput(profile.throughput))
    if profile.training is not None:
        found.append(training(profile.training))
    if profile.memory is not None:
        found.append(memory(profile.memory))
    if profile.system is not None:
        found.append(system(profile.system))
    if profile.compilation is not None:
        found.append(compilation(profile.compilation))
    return found


def target(profile: Profile) -> Section:
    """Say what was measured and on what."""
    what, machine = profile.target, profile.environment.machine
    inputs = [f"{i.name}: {i.dtype} {'×'.join(map(str, i.shape)) or 'scalar'}" for i in what.inputs]
    cores = machine.cpu_quota or machine.usable_cores
    hardware = f"{machine.cpu}, {cores:g} cores, {units.size(machine.memory, 3)}"
    if what.device.startswith("cuda"):
        index = int(what.device.partition(":")[2] or 0)
        if index < len(machine.gpus):
            gpu = machine.gpus[index]
            hardware = f"{gpu.name}, {units.size(gpu.memory, 3)}; {machine.cpu}"
    software, settings = profile.environment.software, profile.environment.settings
    versions = [f"torch {software.torch}" if software.torch else "", f"Python {software.python}"]
    versions += [f"CUDA {software.cuda}" if software.cuda else ""]
    versions += [f"{settings.threads} threads" if settings.threads else ""]
    mode = "training step" if what.training else "inference"
    precision = _precision(what, settings)
    return Section(
        what.name,
        "",
        (
            Row("target", what.spec),
            Row("weights", what.weights),
            Row("input", "; ".join(inputs) or "none"),
            Row("run as", f"{mode}, {precision}, on {what.device}"),
            Row("machine", hardware),
            Row("software", ", ".join(filter(None, versions))),
        ),
    )


def _precision(what: TargetDescription, settings: Settings) -> str:
    if what.precision_method != "native":
        return f"{what.precision} ({what.precision_method})"
    if what.device.startswith("cuda") and what.precision == "fp32":
        switches = {"products": settings.fp32_matmul, "convolutions": settings.fp32_convolution}
        rounded = [name for name, switch in switches.items() if switch == "tf32"]
        return f"fp32 (TF32 in {' and '.join(rounded)})" if rounded else "fp32"
    return what.precision


def size(found: Size) -> Section:
    """Say how big the model is."""
    least = "at least " if found.uninitialized else ""
    exact = f"{found.parameters:,}" if found.parameters >= 10_000 else ""
    frozen = f"{units.count(found.frozen)} frozen" if found.frozen else "all trainable"
    dtypes = ", ".join(f"{name} {units.size(d.bytes)}" for name, d in found.by_dtype.items())
    rows = [
        Row("parameters", least + units.count(found.parameters), _join(exact, frozen)),
        Row("buffers", least + units.count(found.buffers)),
        Row("in memory", least + units.size(found.bytes), dtypes),
        Row("on disk", units.size(found.disk_bytes), found.disk_source),
    ]
    if found.uninitialized:
        rows.append(Row("no shape yet", str(len(found.uninitialized)), found.uninitialized[0]))
    return Section("Size", found.how, tuple(rows))


def cost(found: Cost, timed: Latency | None = None, *, impossible: bool = False) -> Section:
    """Say how much work a call does; `timed` tells how fast, `impossible` that it cannot be."""

    def amount(value: int, shown: Callable[[float | None], str] = units.count) -> str:
        known = known_part(value, at_least=found.at_least)
        return at_least(shown(known), least=found.at_least and known is not None)

    rows = [Row("MACs", amount(found.macs), "multiply-accumulates of products")]
    parts = f"products {units.count(found.matmul_flops)}, vector {units.count(found.vector_flops)}"
    rows.append(Row("FLOPs", amount(found.flops), parts if found.flops else ""))
    if found.causal_matmul_flops != found.matmul_flops:
        causal = amount(found.causal_matmul_flops)
        rows.append(Row("causal", causal, "products, with attention at its exact triangle"))
    if found.executed_flops != found.flops:
        rows.append(Row("executed", amount(found.executed_flops), "with recomputation"))
    if found.integer_ops:
        rows.append(Row("integer", amount(found.integer_ops), "operations, not in the FLOPs"))
    traffic = "compulsory traffic"
    if found.intensity is not None and not found.at_least:
        traffic += f"; {units.significant(found.intensity)} FLOP/B"
    rows.append(Row("bytes", amount(found.bytes, units.size), traffic))
    if found.retained_for_backward is not None:
        rows.append(Row("retained", units.size(found.retained_for_backward), "for backward"))
    # A training step has an optimizer, which the cost has not.
    if timed is not None and not found.backward:
        known = known_part(found.executed_flops, at_least=found.at_least)
        speed = known / timed.median if known is not None and timed.median else None
        least = found.at_least and speed is not None
        achieved = at_least(units.rate(speed, "FLOP"), least=least)
        note = "FLOPs over the median latency"
        note += ": contradicts itself, see the warnings" if impossible else ""
        rows.append(Row("achieved", achieved, note))
    rows.append(Row("coverage", units.percent(found.coverage, 4), _unknown(found)))
    return Section("Cost", found.how, tuple(rows))


def at_least(text: str, *, least: bool) -> str:
    """Return what stands for an amount of which a part may not be known."""
    return f"at least {text}" if least else text


def _unknown(found: Cost) -> str:
    """Name the operators without formula, most called first."""
    if OUTSIDE in found.unknown:
        return "no operator of torch ran: what the call did is not known"
    said = "of operator calls have a formula"
    names = [f"{name} ×{calls:,}" for name, calls in found.unknown.items()]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return said + (f"; unknown: {', '.join(names[:3])}{more}" if names else "")


def bounds(found: Bottleneck, near: Roofline | None) -> Section:
    """Say what the call waits for, and how near it comes to what the machine can do."""
    rows = [Row("bound by", found.kind or units.UNKNOWN, found.confidence if found.kind else "")]
    if near is not None:
        where = f"lower bound on {near.roofs.device}, roofs: {description(near.roofs)}"
        best = at_least(units.time(near.lower_bound), least=near.at_least)
        rows.append(Row("at best", best, where))
        least = near.at_least and near.efficiency is not None
        efficiency = at_least(units.percent(near.efficiency), least=least)
        short = ", ".join(shortcomings(near.roofs))
        note = "that bound over the measured median" + f"; roofs: {short}" * bool(short)
        rows.append(Row("efficiency", efficiency, note))
    return Section("Bottleneck", found.how, tuple(rows), found.evidence)


def memory(found: Memory) -> Section:
    """Say how much memory a step needs, and what for."""
    rows = [
        Row("peak", units.size(found.peak), f"average {units.size(found.average)}"),
        *(
            Row(name, units.size(part), "", part / found.peak if found.peak else 0.0)
            for name, part in sorted(found.parts.items(), key=lambda item: -item[1])
            if part
        ),
    ]
    if found.after is not None and found.left is not None:
        more = f"{units.size(abs(found.left))} {'more' if found.left > 0 else 'less'} than before"
        change = more if found.left else "as much as before"
        rows.append(Row("after", units.size(found.after), f"once it returned: {change}"))
    if found.per_sample is not None:
        rows.append(
            Row("per sample", units.size(found.per_sample), "all but the fixed parts, by the batch")
        )
    if found.retained_for_backward is not None:
        kept = units.size(found.retained_for_backward)
        rows.append(Row("for backward", kept, "kept by the forward beyond its outputs"))
    if found.allocator_peak is not None:
        gap = units.size(found.allocator_peak - found.peak)
        note = f"its own peak, {gap} beyond; reserved {units.size(found.reserved)}"
        rows.append(Row("allocator", units.size(found.allocator_peak), note))
    if found.rss_peak is not None:
        gap = "" if found.rss_gap is None else f"{units.size(found.rss_gap)} beyond the tensors"
        rows.append(Row("process RSS", units.size(found.rss_peak), gap))
    return Section(f"Memory of a step ({found.step})", found.how, tuple(rows))


def system(found: System) -> Section:
    """Say what the machine did meanwhile."""
    busy = None if found.machine is None else found.machine.mean
    others = f"{units.percent(found.other)} by others"
    rows = [
        Row(
            "CPU",
            f"{found.cores.mean:.2f} of {found.core_count} cores",
            f"machine {units.percent(busy)} busy, {others}",
        )
    ]
    rows += [_gpu(gpu) for gpu in found.gpus]
    if found.disk_read or found.disk_write:
        read, write = units.size(found.disk_read, 3), units.size(found.disk_write, 3)
        rows.append(Row("disk", f"{read}/s read", f"{write}/s written (this process)"))
    if found.io_read or found.io_write:
        read, write = units.size(found.io_read, 3), units.size(found.io_write, 3)
        rows.append(Row("files, pipes", f"{read}/s read", f"{write}/s written (this process)"))
    if found.network_sent or found.network_received:
        received, sent = units.size(found.network_received, 3), units.size(found.network_sent, 3)
        rows.append(Row("network", f"{received}/s in", f"{sent}/s out (whole machine)"))
    every = f"every {units.time(found.interval, 2)} for {units.time(found.duration, 3)}"
    rows.append(Row("sampled", every, f"at a cost of {units.percent(found.cost)} of a core"))
    return Section("System", found.how, tuple(rows))


def compilation(found: Compilation) -> Section:
    """Say what torch.compile made of the model, and what the tree cannot tell apart for it."""
    rows = [Row("graphs", units.UNKNOWN, "compiled before the profile began")]
    if found.graphs is not None:
        rows = [
            Row("graphs", f"{found.graphs:,}", f"compiled in {units.time(found.compile_time, 3)}"),
            _reasons("graph breaks", found.graph_breaks or {}),
            _reasons("recompiled", found.recompiles or {}),
        ]
    if found.kernels:
        fused = [_kernel(kernel) for kernel in found.kernels if "_fused_" in kernel.name]
        rows.append(Row("kernels", f"{len(found.kernels):,}", _first(fused)))
    if found.layers:
        note = "layers, which the tree cannot tell apart: "
        rows.append(Row("in graphs", f"{len(found.layers):,}", note + _first(found.layers)))
    return Section("Compilation", found.how, tuple(rows))


def _reasons(label: str, counts: dict[str, int]) -> Row:
    said = [f"{reason} ×{count}" if count > 1 else reason for reason, count in counts.items()]
    return Row(label, f"{sum(counts.values()):,}", _first(said))


def _kernel(kernel: CompiledKernel) -> str:
    """Say a fused kernel, whose name has its operators, and where it belongs."""
    return kernel.name + (f" in {_first(kernel.layers, 2)}" if kernel.layers else "")


def _first(names: Sequence[str], count: int = 3) -> str:
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return "; ".join(names[:count]) + more


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


def beside_headline(ratio: float) -> str:
    """Return how the calls that a tree is of compare with the latency that stands above it."""
    return f"the tree is of calls that took {ratio:.2f}× the headline latency"
