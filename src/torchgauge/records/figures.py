"""The headline figures of a record by name, with the unit and text of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from torchgauge.records.generation.generation import Generation
from torchgauge.records.headline.figure import (
    Figure,
    Named,
    Unit,
    all_generation_figures,
    by_name,
    capacity_figure,
    energy_figures,
    generation_figures,
    level_figures,
    parallel_figures,
    serving_figures,
    training_figures,
)
from torchgauge.records.latency.latency import Latency
from torchgauge.records.parallel.parallel import Parallel
from torchgauge.records.profile import Profile
from torchgauge.records.record import How
from torchgauge.records.serving.serving import Serving
from torchgauge.records.sweep import Sweep
from torchgauge.records.system import System, Use
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.training_run import TrainingRun
from torchgauge.records.trace.ranks import Ranks
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import Roofline
from torchgauge.records.work.size import Count, Size
from torchgauge.records.work.utilization import Utilization

SIZE: Named = {
    "parameters": ("", "Elements of parameters"),
    "trainable_parameters": ("", "Elements of parameters that are trained"),
    "model": ("B", "Parameters and buffers in memory"),
    "disk": ("B", "Size on disk"),
}
COST: Named = {
    "macs": ("", "Multiply-accumulates of products in a call"),
    "flops": ("", "Floating-point operations of a call"),
    "executed_flops": ("", "Floating-point operations with recomputation"),
    "integer_ops": ("", "Operations on integers, not in the FLOPs"),
    "traffic": ("B", "Compulsory traffic of a call"),
    "unknown_calls": ("", "Operator calls without formula; if above 0, the work is a lower bound"),
}
LATENCY: Named = {
    "median": ("s", "Median time of a call"),
    "mean": ("s", "Mean time of a call"),
    "std": ("s", "Standard deviation of the time of a call"),
    "min": ("s", "Shortest call"),
    "max": ("s", "Longest call"),
    "p50": ("s", "Time that 50 % of the calls took at most"),
    "p90": ("s", "Time that 90 % of the calls took at most"),
    "p95": ("s", "Time that 95 % of the calls took at most"),
    "p99": ("s", "Time that 99 % of the calls took at most"),
    "first_call": ("s", "Time of the first call"),
    "device_time": ("s", "GPU time of a call, by its own events"),
}
THROUGHPUT: Named = {
    "calls": ("1/s", "Calls per second"),
    "samples": ("1/s", "Samples per second"),
    "tokens": ("1/s", "Tokens per second"),
    "images": ("1/s", "Images per second"),
}
MEMORY: Named = {
    "peak": ("B", "Most memory of tensors during a step"),
    "average": ("B", "Memory of tensors during a step, weighted by time"),
    "after": ("B", "Memory of tensors after a step, while its outputs are held"),
    "parameters": ("B", "Parameters at the peak"),
    "buffers": ("B", "Buffers at the peak"),
    "inputs": ("B", "Inputs at the peak"),
    "outputs": ("B", "Outputs at the peak"),
    "activations": ("B", "Activations at the peak"),
    "gradients": ("B", "Gradients at the peak"),
    "optimizer": ("B", "State of the optimizer at the peak"),
    "workspace": ("B", "Everything else that the allocator held at the peak"),
    "retained_for_backward": ("B", "Kept by the forward pass for the backward pass"),
    "per_sample": ("B", "Upper bound of the memory of one more sample"),
    "rss_peak": ("B", "Resident set of the process at its highest"),
    "allocator_peak": ("B", "Peak that the allocator itself reports"),
    "reserved": ("B", "Reserved by the allocator at its highest"),
}
SYSTEM: Named = {
    "cpu_cores_used": ("", "Cores in use by the process"),
    "machine_busy": ("ratio", "Share of all cores that was busy"),
    "disk_read": ("B/s", "Read from disk by the process"),
    "disk_write": ("B/s", "Written to disk by the process"),
    "io_read": ("B/s", "Read by the process, from caches and pipes too"),
    "io_write": ("B/s", "Written by the process, to caches and pipes too"),
    "network_sent": ("B/s", "Sent by the machine"),
    "network_received": ("B/s", "Received by the machine"),
}
GPU: Named = {
    "utilization": ("ratio", "Share of time in which the GPU ran"),
    "memory": ("B", "Memory of the GPU in use by all processes"),
    "power": ("W", "Power of the GPU"),
    "clock": ("Hz", "Clock of the GPU"),
}
UTILIZATION = {
    "mfu": "Model FLOPs of products a second over the device's peak",
    "hfu": "The same with what checkpointing computes again",
}
RANK: Named = {
    "step": ("s", "Typical step of a rank"),
    "work": ("s", "Time of a step in which a rank did something itself"),
    "waiting": ("s", "Time of a step in which a rank only waited for communication"),
    "communication": ("s", "Time of a step in which communication was under way"),
}


def worse_when_higher(name: str, unit: str) -> bool | None:
    """Return whether more of a figure is worse: of time, memory and work it is, of rates it is not.

    None where it is neither, as with the number of samples or the use of the machine.
    """
    if unit in ("s", "B", "J") or name in SIZE or name in COST:
        return True
    is_share = name in ("roofline_efficiency", "machine_speed") or name.endswith(("mfu", "hfu"))
    return False if unit == "1/s" or is_share else None


def figures(
    record: Profile | Count | Generation | Loop | Parallel | Ranks | Serving | Sweep | TrainingRun,
) -> list[Figure]:
    """Return the record's figures; those of parts that were not measured are there, unknown.

    Only profiles of a level of load have its figures.
    """
    if isinstance(record, Profile):
        return list(_profile(record))
    if isinstance(record, Count):
        return list(_count(record))
    if isinstance(record, Sweep):
        return list(_sweep(record))
    if isinstance(record, Generation):
        return [*_size(record.size), *all_generation_figures(record)]
    if isinstance(record, Serving):
        return list(serving_figures(record))
    if isinstance(record, Parallel):
        return list(parallel_figures(record))
    if isinstance(record, TrainingRun):
        return [*training_figures(record), *_utilization(record.utilization, "training_")]
    return list(_loop(record) if isinstance(record, Loop) else _ranks(record))


def _profile(profile: Profile) -> Iterator[Figure]:
    yield from _size(profile.size)
    yield from _cost(profile.cost)
    yield from _latency(profile.latency)
    yield from _throughput(profile)
    yield from _memory(profile)
    training = profile.training
    for name in ("forward", "backward", "optimizer"):
        seconds = None if training is None else training.phase(name)
        yield Figure(f"training_{name}", "s", "measured", f"{name} of a training step", seconds)
    yield from _utilization(profile.utilization)
    yield from generation_figures(profile.generation)
    if profile.serving is not None:
        yield from level_figures(profile.serving)
    if profile.capacity is not None:
        yield capacity_figure(profile.capacity)
    yield from _system(profile.system)
    yield from energy_figures(profile.energy)
    yield from _roofline(profile.roofline)


def _sweep(sweep: Sweep) -> Iterator[Figure]:
    done = [cell for cell in sweep.cells if cell.done]
    times = [cell.latency.median for cell in done if cell.latency is not None]
    rates = [rate for cell in done if (rate := cell.per_second) is not None]
    peaks = [cell.memory.peak for cell in done if cell.memory is not None]
    yield Figure("sweep_cells", "", "counted", "Cells of the grid", len(sweep.cells))
    yield Figure("sweep_done", "", "counted", "Cells that were measured", len(done))
    for name, unit, text, value in (
        ("latency", "s", "Least median time of a call", min(times, default=None)),
        ("throughput", "1/s", "Most samples per second", max(rates, default=None)),
        ("memory", "B", "Least peak of memory", min(peaks, default=None)),
    ):
        yield Figure(f"sweep_{name}", unit, "measured", text, value)  # type: ignore[arg-type]


def _count(count: Count) -> Iterator[Figure]:
    yield from _size(count.size)
    yield from _cost(count.cost)
    step = None if count.training is None else count.training.assumed
    yield Figure(
        "training_memory_least", "B", "estimated", "Memory of a training step at least",
        None if step is None else step.lower_bound,
    )  # fmt: skip
    yield Figure(
        "training_memory", "B", "estimated", "Memory of a training step at its peak",
        None if step is None else step.total,
    )  # fmt: skip


def _size(size: Size | None) -> Iterator[Figure]:
    values = {"trainable_parameters": "trainable", "model": "bytes", "disk": "disk_bytes"}
    is_lower_bound = size is not None and bool(size.uninitialized)
    for figure in _part_figures(size, SIZE, "", "counted", values):
        yield figure._replace(at_least=is_lower_bound)


def _cost(cost: Cost | None) -> Iterator[Figure]:
    totals: dict[str, Any] = {} if cost is None or cost.flops_range else cost.totals
    for name, (unit, text) in COST.items():
        value = totals.get("bytes" if name == "traffic" else name)
        is_lower_bound = cost is not None and cost.at_least and name != "unknown_calls"
        yield Figure(name, unit, "counted", text, value, at_least=is_lower_bound)


def _latency(latency: Latency | None) -> Iterator[Figure]:
    intervals = {} if latency is None else {**latency.percentile_intervals}
    if latency is not None:
        intervals["median"] = latency.interval
    for figure, name in zip(_part_figures(latency, LATENCY, "latency_"), LATENCY, strict=True):
        bounded = name in ("median", "p90", "p95", "p99")
        yield figure._replace(bounded=bounded, interval=intervals.get(name) if bounded else None)
    samples = None if latency is None else len(latency.samples)
    yield Figure("latency_samples", "", "counted", "Calls that were timed", samples)
    yardstick = None if latency is None else latency.yardstick
    yield Figure(
        "machine_speed",
        "ratio",
        "estimated",
        "Speed of the machine over its usual one",
        None if yardstick is None else yardstick.speed,
        bounded=True,
        interval=None if yardstick is None else yardstick.speed_interval,
    )


def _throughput(profile: Profile) -> Iterator[Figure]:
    rates, target = profile.throughput, profile.target
    per_call = {
        "calls": 1,
        "samples": target.batch,
        "tokens": target.tokens,
        "images": target.images,
    }
    for figure, name in zip(
        _part_figures(rates, THROUGHPUT, "throughput_"), THROUGHPUT, strict=True
    ):
        calls, times = None if rates is None else rates.interval, per_call[name]
        scaled = None
        if calls is not None and times is not None and figure.value is not None:
            low, high = calls.low * times, calls.high * times
            scaled = msgspec.structs.replace(calls, low=low, high=high)
        yield figure._replace(bounded=True, interval=scaled)


def _memory(profile: Profile) -> Iterator[Figure]:
    for figure in _part_figures(profile.memory, MEMORY, "memory_"):
        is_of_model = figure.name.removeprefix("memory_") in ("parameters", "buffers")
        # The parameters of a plain callable are unknown.
        yield figure._replace(value=None) if is_of_model and profile.size is None else figure


def _system(system: System | None) -> Iterator[Figure]:
    gpu = system.gpus[0] if system is not None and system.gpus else None
    fields = {"cpu_cores_used": "cores", "machine_busy": "machine"}
    for part, prefix, named in ((system, "", SYSTEM), (gpu, "gpu_", GPU)):
        for name, (unit, text) in named.items():
            value = getattr(part, fields.get(name, name), None)
            mean = value.mean if isinstance(value, Use) else value
            yield Figure(prefix + name, unit, "measured", text, mean)


def _roofline(roofline: Roofline | None) -> Iterator[Figure]:
    how: How = "estimated"
    bound = None if roofline is None else roofline.lower_bound
    share = None if roofline is None else roofline.efficiency
    is_lower_bound = roofline is not None and roofline.at_least
    text = "Time at the device's roofs at least"
    yield Figure("roofline_lower_bound", "s", how, text, bound, at_least=is_lower_bound)
    text = "That bound over the measured time"
    yield Figure("roofline_efficiency", "ratio", how, text, share, at_least=is_lower_bound)


def _utilization(used: Utilization | None, prefix: str = "") -> Iterator[Figure]:
    for name, text in UTILIZATION.items():
        value, interval = getattr(used, name, None), getattr(used, f"{name}_interval", None)
        is_lower_bound = used is not None and used.at_least and value is not None
        yield Figure(
            prefix + name, "ratio", "estimated", text, value, True, interval,
            at_least=is_lower_bound,
        )  # fmt: skip


def _loop(loop: Loop) -> Iterator[Figure]:
    recorded = loop.median("record")
    yield Figure("loop_steps", "", "counted", "Steps of the loop", loop.count)
    yield Figure("loop_step", "s", "measured", "Median step, without a profiler", loop.bare)
    yield Figure("loop_recorded_step", "s", "measured", "Median step under recording", recorded)
    for name in ("waiting", "communication"):
        yield Figure(f"loop_{name}", *_measured(RANK[name]), getattr(loop, name))
    yield from _utilization(loop.utilization, "loop_")


def _ranks(ranks: Ranks) -> Iterator[Figure]:
    yield Figure("ranks_world", "", "counted", "Processes of the job", ranks.world)
    yield Figure("ranks_lost", "s", "measured", "Step's time lost to the straggler", ranks.lost)
    text = "Share of a step in which communication was under way"
    yield Figure("ranks_communication", "ratio", "measured", text, ranks.share)
    text = "Share of a step in which ranks only waited for communication"
    yield Figure("ranks_exposed", "ratio", "measured", text, ranks.exposed)
    yield from by_name(
        [
            Figure(
                f"rank_{name}",
                *_measured(unit_and_text),
                getattr(process, name),
                rank=process.number,
            )
            for name, unit_and_text in RANK.items()
        ]
        for process in ranks.ranks
    )


def _measured(unit_and_text: tuple[Unit, str]) -> tuple[Unit, How, str]:
    unit, text = unit_and_text
    return unit, "measured", text


def _part_figures(
    part: Any,
    named: Named,
    prefix: str,
    how: How = "measured",
    fields: Mapping[str, str] | None = None,
) -> Iterator[Figure]:
    for name, (unit, text) in named.items():
        value = None if part is None else getattr(part, (fields or {}).get(name, name))
        yield Figure(prefix + name, unit, how if part is None else part.how, text, value)
