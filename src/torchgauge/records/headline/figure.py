"""One headline figure, with its unit and how it is known."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.generation.generation import Generation
from torchgauge.records.parallel.parallel import Parallel, RankKind
from torchgauge.records.record import How, Interval
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import Capacity, Estimate
from torchgauge.records.serving.serving import Serving
from torchgauge.records.timeline.training_run import TrainingRun
from torchgauge.records.work.energy import Energy

Unit = Literal["", "s", "B", "1/s", "B/s", "ratio", "W", "J", "Hz"]


class Figure(NamedTuple):
    """One figure in SI units; `value` None is unknown, `text` describes it.

    `bounded` figures have an `interval` where it could be told. `rank` is whose figure it is. With
    `at_least` a part of it is not known, and it is more than so much. `labels` tell the shapes of a
    generation and the levels of load apart.
    """

    name: str
    unit: Unit
    how: How
    text: str
    value: float | int | None
    bounded: bool = False
    interval: Interval | None = None
    rank: int | None = None
    at_least: bool = False
    labels: tuple[tuple[str, int | str], ...] = ()


Named = Mapping[str, tuple[Unit, str]]


def by_name(figures_of_parts: Iterable[Iterable[Figure]]) -> Iterator[Figure]:
    """Yield one figure of all parts after the other: OpenMetrics wants them together."""
    for same_figure in zip(*figures_of_parts, strict=True):
        yield from same_figure


def training_figures(run: TrainingRun) -> Iterator[Figure]:
    """Yield the steps of one process, their mean time, rates and memory."""
    yield Figure("training_steps", "", "counted", "Steps of the optimizer", run.count)
    yield Figure(
        "training_step", "s", "measured", "Mean step, waits for data with it",
        run.step, True, run.interval,
    )  # fmt: skip
    for name, unit, text, value in (
        ("data_wait", "ratio", "Share of the steps that waited for batches", run.data_wait_share),
        ("tokens", "1/s", "Tokens per second of this process", run.tokens_per_second),
        ("samples", "1/s", "Samples per second of this process", run.samples_per_second),
        ("memory_peak", "B", "Most memory that was in use", run.memory_peak),
    ):
        yield Figure(f"training_{name}", unit, "measured", text, value)  # type: ignore[arg-type]


ENERGY: Named = {
    "energy": ("J", "Energy of a call"),
    "energy_per_sample": ("J", "Energy of a sample"),
    "energy_per_token": ("J", "Energy of a token"),
    "energy_above_idle": ("J", "Energy of a call less that of the idle machine"),
    "energy_power": ("W", "Power during the calls"),
}


def energy_figures(energy: Energy | None) -> Iterator[Figure]:
    """Yield the figures; all unknown where no energy was measured."""
    at_least = energy is not None and energy.at_least
    for name, (unit, text) in ENERGY.items():
        field = "joules" if name == "energy" else name.removeprefix("energy_")
        value = getattr(energy, field, None)
        bounded = name in ("energy", "energy_per_sample", "energy_per_token")
        interval = None
        if bounded and value and energy is not None and energy.interval and energy.joules:
            share, ends = value / energy.joules, energy.interval
            interval = msgspec.structs.replace(ends, low=ends.low * share, high=ends.high * share)
        yield Figure(name, unit, "measured", text, value, bounded, interval, at_least=at_least)


GENERATION: Named = {
    "ttft": ("s", "Time to the first token"),
    "tpot": ("s", "Time per token after the first"),
    "tokens": ("1/s", "New tokens of all prompts per second"),
    "prefill": ("s", "Forwards before the first token"),
    "step": ("s", "Forward of a decode step"),
    "between": ("s", "Time between two forwards"),
    "cache_held": ("B", "Memory of the cache at the end of a call"),
    "cache_used": ("B", "Memory of the cache's positions that hold tokens"),
}


def generation_figures(cell: GenerationCell | None) -> Iterator[Figure]:
    """Yield the figures of one shape; all unknown of a profile that is not of one."""
    cache = None if cell is None else cell.cache
    for name, (unit, text) in GENERATION.items():
        value, interval = getattr(cache, name.removeprefix("cache_"), None), None
        if not name.startswith("cache"):
            time = getattr(cell, "tokens_per_second" if name == "tokens" else name, None)
            value, interval = getattr(time, "value", None), getattr(time, "interval", None)
        bounded = unit != "B"
        yield Figure(f"generation_{name}", unit, "measured", text, value, bounded, interval)


def all_generation_figures(generation: Generation) -> Iterator[Figure]:
    """Yield how many shapes there are, and the figures of those that were measured."""
    text = "Shapes, requested or seen"
    yield Figure("generation_cells", "", "counted", text, len(generation.cells))
    by_cell = [
        [figure._replace(labels=tuple(cell.shape.items())) for figure in generation_figures(cell)]
        for cell in generation.done
    ]
    yield from by_name(by_cell)


Labels = tuple[tuple[str, int | str], ...]


def parallel_figures(record: Parallel) -> Iterator[Figure]:
    """Yield the figures of the job, then each figure of all kinds of rank, and of all devices."""
    yield Figure("parallel_ranks", "", "counted", "Ranks of the job", record.world_size)
    text = "Elements of the whole model's parameters"
    yield Figure("parallel_parameters", "", "counted", text, record.parameters)
    several = len(record.kinds) > 1
    labels = [(("kind", kind.name),) if several else () for kind in record.kinds]
    yield from by_name(map(_kind_figures, record.kinds, labels))
    devices = sorted({fit.device for kind in record.kinds for fit in kind.fits})
    yield from by_name(
        _device_figures(kind, device, (*kind_labels, ("on", device)))
        for kind, kind_labels in zip(record.kinds, labels, strict=True)
        for device in devices
    )


def _kind_figures(kind: RankKind, labels: Labels) -> Iterator[Figure]:
    memory = kind.memory
    for name, unit, how, text, value, at_least in (
        ("peak", "B", memory.how, "Most memory of tensors of a rank", memory.peak, False),
        ("reserved", "B", memory.reserved_how, "Reserved by a rank", memory.reserved, False),
        ("flops", "", "counted", "FLOPs of a rank's step", kind.flops, kind.at_least),
        ("executed_flops", "", "counted", "The same with recomputation", kind.executed_flops,
         kind.at_least),
        ("sent", "B", "counted", "Sent by a rank in a step at least", kind.sent, False),
    ):  # fmt: skip
        yield Figure(
            f"parallel_{name}", unit, how, text, value, at_least=at_least, labels=labels  # type: ignore[arg-type]
        )  # fmt: skip


def _device_figures(kind: RankKind, device: str, labels: Labels) -> Iterator[Figure]:
    margins = [fit.margin for fit in kind.fits if fit.device == device]
    bounds = [bound for bound in kind.bounds if bound.device == device]
    text = "Memory of the device less what a rank reserves"
    margin = margins[0] if margins else None
    yield Figure("parallel_margin", "B", "estimated", text, margin, labels=labels)
    yield Figure(
        "parallel_step", "s", "estimated", "Time of a step at its lower bound",
        bounds[0].seconds if bounds else None, at_least=True, labels=labels,
    )  # fmt: skip


RATES: Named = {
    "completed": ("1/s", "Requests answered per second"),
    "goodput": ("1/s", "Requests per second within all goals"),
    "tokens": ("1/s", "Tokens of answers per second"),
}
TIMES: dict[Literal["latency", "service", "wait", "ttft", "itl", "tpot"], str] = {
    "latency": "Time of a request from when it was due",
    "service": "Time of a request from when it was sent",
    "wait": "Time from when a request was due to when it was sent",
    "ttft": "Time to the first token from when the request was due",
    "itl": "Gap between two contents of a stream",
    "tpot": "Time per token after the first",
}
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
CAPACITY = "serving_capacity"


def level_estimate(level: Level, name: str) -> Estimate | None:
    """Return a rate ("goodput") or a percentile ("ttft_p99") of a level; None where unknown."""
    if name in RATES:
        estimate: Estimate | None = getattr(level, name)
        return estimate
    time, _, percentile = name.rpartition("_")
    distribution = getattr(level, time)
    return None if distribution is None else distribution.percentile(PERCENTILES[percentile])


def level_figures(level: Level) -> Iterator[Figure]:
    """Yield the figures of a level; those that it does not have are unknown."""
    offered = level.offered
    yield Figure("serving_offered", "1/s", "counted", "Requests due per second", offered)
    for name, (unit, text) in RATES.items():
        yield _bounded(f"serving_{name}", unit, text, level_estimate(level, name))
    for time, text in TIMES.items():
        for percentile in PERCENTILES:
            share = f"{text}: {percentile.removeprefix('p')} % took at most"
            name = f"{time}_{percentile}"
            yield _bounded(f"serving_{name}", "s", share, level_estimate(level, name))
    mean = None if level.latency is None else level.latency.mean
    yield _bounded("serving_latency_mean", "s", f"{TIMES['latency']}, on average", mean)
    text = "Share of requests without a whole answer"
    yield _bounded("serving_errors", "ratio", text, level.errors)
    lateness = None if level.client is None else level.client.lateness_p99
    text = "Lateness of the client, which 99 % of its requests did not exceed"
    yield Figure("serving_lateness_p99", "s", "measured", text, lateness)
    yield from _judgements(level)


def _judgements(level: Level) -> Iterator[Figure]:
    """Yield what limits the level: the growth of its backlog, the server's use, MLPerf's rule."""
    saturated = None if level.saturation is None else level.saturation.saturated
    text = "Whether the backlog grew (1) or did not (0)"
    value = None if saturated is None else int(saturated)
    yield Figure("serving_saturated", "", "measured", text, value)
    cpu = () if level.server is None else level.server.cpu
    text = "Cores that the server's processes used on average"
    value_of_cpu = statistics.fmean(cpu) if cpu else None
    yield Figure("serving_server_cores", "", "measured", text, value_of_cpu)
    memory = () if level.server is None else level.server.memory
    text = "Memory of the server's processes at its highest"
    yield Figure("serving_server_memory", "B", "measured", text, max(memory, default=None))
    stopping = level.early_stopping
    text = "Percentile by MLPerf's early stopping, of independent requests only"
    labels = () if stopping is None else (("fraction", f"{stopping.fraction:g}"),)
    estimate = None if stopping is None else stopping.estimate
    yield Figure("serving_mlperf_estimate", "s", "estimated", text, estimate, labels=labels)


def _bounded(name: str, unit: Unit, text: str, estimate: Estimate | None) -> Figure:
    if estimate is None:
        return Figure(name, unit, "measured", text, None, bounded=True)
    return Figure(name, unit, estimate.how, text, estimate.value, True, estimate.interval)


def capacity_figure(capacity: Capacity | None) -> Figure:
    """Return the capacity; a rate without an interval is "at least"."""
    text = "Highest rate of requests within all goals"
    if capacity is None:
        return Figure(CAPACITY, "1/s", "measured", text, None, bounded=True)
    return Figure(
        CAPACITY, "1/s", "measured", text, capacity.rate, True, capacity.interval,
        at_least=capacity.rate is not None and capacity.interval is None,
    )  # fmt: skip


def serving_figures(serving: Serving) -> Iterator[Figure]:
    """Yield the capacity, how many levels there are, and the figures of each."""
    yield capacity_figure(serving.capacity)
    text = "Levels of load"
    yield Figure("serving_levels", "", "counted", text, len(serving.levels))
    loads: list[dict[str, str]] = []
    figures_of_levels = []
    for level in serving.levels:
        repetition = {"again": str(loads.count(level.load))} if level.load in loads else {}
        loads.append(level.load)
        labels = tuple({**level.load, **repetition}.items())
        figures_of_levels.append(
            [f._replace(labels=(*labels, *f.labels)) for f in level_figures(level)]
        )
    yield from by_name(figures_of_levels)
