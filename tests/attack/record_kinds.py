"""A whole record of every kind, with all of its parts somewhere, and every way to show one."""

import functools
import json

from msgspec.structs import replace

from torchgauge.errors import TorchgaugeError
from torchgauge.records import codec
from torchgauge.records.generation.generation import Generation
from torchgauge.records.profile import Profile
from torchgauge.records.serving.serving import Serving
from torchgauge.records.sweep import Sweep
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.trace.ranks import Ranks
from torchgauge.records.work.size import Count


def builtins(*records):
    return [json.loads(codec.encode(one)) for one in records]


@functools.cache
def profile():
    from tests.support import exported_records as made
    from tests.support import records

    return builtins(made.profile(gpu=True), records.profile(), with_everything())


def with_everything():
    """A profile with every part that the others lack."""
    from tests.support import pages, records

    from torchgauge.records.latency.latency import Stage, TrainingPhase, TrainingTime, Yardstick
    from torchgauge.records.memory.memory import AliveTensor, Fragmentation
    from torchgauge.records.record import Interval
    from torchgauge.records.timeline.compilation import Compilation, CompiledKernel
    from torchgauge.records.timeline.tree import LineTime
    from torchgauge.records.work.roofline import Bottleneck, LayerRoofline, Roofline

    interval = Interval(low=0.009, high=0.011)
    latency, memory = records.latency(), records.memory()
    run = latency.processes[0]
    run = replace(
        run, device_samples=run.samples, stage_samples={"model": run.samples},
        layer_times={"fc": 0.001}, yardstick={"matmul": 1e-4},
    )  # fmt: skip
    phases = ("zero_grad", "forward", "loss", "backward", "optimizer")
    line = LineTime(file="net.py", line=3, layer="fc", time=0.001, share=0.1, samples=5)
    layer = LayerRoofline(
        node=1, intensity=2.0, lower_bound=0.001, bound="compute", time=0.002,
        flops_per_second=1e9, bytes_per_second=1e9, efficiency=0.5,
    )  # fmt: skip
    return pages.with_tree(
        cost=pages.cost(),
        tree=replace(pages.tree(), lines=(line,)),
        latency=replace(
            latency, processes=(run, run, run), device_time=0.001,
            stages=(Stage(name="model", median=0.01, interval=interval),),
            yardstick=Yardstick(
                times={"matmul": 1e-4}, speed=0.9, speed_interval=interval, runs=5
            ),
        ),
        memory=replace(
            memory,
            tensors=(AliveTensor(part="parameters", name="fc", size=1000, shape=(10, 25)),),
            before=10, after=20,
            fragmentation=Fragmentation(
                internal=1, external=2, reserved_unused=3, largest_free=4, total_free=5
            ),
        ),
        training=TrainingTime(
            step=0.01, clock="host", optimizer="SGD",
            phases=tuple(TrainingPhase(name=one, seconds=0.002, share=0.2) for one in phases),
        ),
        system=pages.system_with_gpu(),
        roofline=Roofline(
            roofs=pages.roofs(), intensity=2.0, lower_bound=0.001, time=0.002,
            flops_per_second=1e9, bytes_per_second=1e9, efficiency=0.5, at_least=False,
            layers=(layer,), datasheet=pages.roofs(),
        ),
        bottleneck=Bottleneck(
            kind="compute", confidence="clear", evidence=("it is so",), compute_time=0.001,
            memory_time=0.001, unexplained=0.001,
        ),
        compilation=Compilation(
            graphs=1, graph_breaks={"x": 1}, recompiles={}, compile_time=1.0,
            kernels=(CompiledKernel(name="k", operators=("aten::mm",), layers=("fc",)),),
            layers=("fc",),
        ),
    )  # fmt: skip


@functools.cache
def count():
    from tests.support import exported_records as made
    from tests.support.counts import EVERYTHING

    return builtins(made.count(), EVERYTHING)


@functools.cache
def loop():
    from tests.support import exported_records as made

    return builtins(made.loop())


@functools.cache
def ranks():
    from tests.support import exported_records as made

    return builtins(made.ranks())


@functools.cache
def sweep():
    from tests.support import exported_records as made
    from tests.support import sweeps

    return builtins(made.sweep(), sweeps.sweep())


@functools.cache
def generation():
    from tests.support import generations as made

    return builtins(made.grid(), made.assisted(), made.by_cache(), made.without_times())


@functools.cache
def serving():
    from tests.support import servings as made

    return builtins(
        made.capacity_found(30), made.streamed(12), made.with_errors(), made.single_stream(20),
        made.without_levels(),
    )  # fmt: skip


@functools.cache
def comparison():
    return builtins(*(one.comparison for one in verdicts() if one.comparison is not None))


@functools.cache
def verdicts():
    from tests.support import verdicts as made

    found = made.every()
    return list(found.values()) if isinstance(found, dict) else list(found)


@functools.cache
def verdict():
    return builtins(*verdicts())


@functools.cache
def trace():
    from tests.support import evidence

    return builtins(evidence.trace(), job())


def job():
    import tempfile
    from pathlib import Path

    from tests.support import evidence

    with tempfile.TemporaryDirectory() as folder:
        return evidence.job(Path(folder))


@functools.cache
def trace_diff():
    from tests.support import evidence

    return builtins(evidence.diff())


@functools.cache
def snapshot():
    from tests.support import evidence

    return builtins(evidence.snapshot())


@functools.cache
def growth():
    from tests.support import evidence

    return builtins(evidence.growth())


@functools.cache
def advice():
    from tests.support import advices

    return builtins(advices.advice(), advices.NOTHING)


@functools.cache
def trend():
    from tests.support import alert_series, trends

    return builtins(trends.trend(), alert_series.trend())


@functools.cache
def diagnosis():
    from tests.support import records

    from torchgauge.records.doctor import Check, Diagnosis, Noise, NoiseRun
    from torchgauge.records.finding import Finding

    finding = Finding(id="load", severity="serious", title="Busy", evidence="3 of 4", remedy="Wait")
    run = NoiseRun(
        created="2026-01-01T00:00:00+00:00", workload="w", torch="2.13", threads=1,
        differences=(0.01, -0.01), medians=(1e-3,) * 8, other=0.1,
    )  # fmt: skip
    noise = Noise(deviation=0.01, deviation_high=0.02, blocks=2, resolvable=0.03, run=run)
    return builtins(
        Diagnosis(
            environment=records.environment(),
            fingerprint="f",
            checks=(
                Check.from_findings("load", "Load", findings=(finding,)),
                Check.from_findings("cpu", "CPU", "fine"),
            ),
            noise=noise,
        )
    )


@functools.cache
def parallel():
    from tests.support import parallels

    return builtins(parallels.parallel())


@functools.cache
def training():
    from tests.support import exported_records as made

    return builtins(made.training_run(), made.untold_training_run())


# Each is a function that returns records as plain values.
KINDS = {
    "profile": profile, "count": count, "loop": loop, "ranks": ranks, "sweep": sweep,
    "comparison": comparison, "verdict": verdict, "trace": trace, "trace_diff": trace_diff,
    "snapshot": snapshot, "growth": growth, "advice": advice, "trend": trend,
    "diagnosis": diagnosis, "generation": generation, "serving": serving, "parallel": parallel,
    "training": training,
}  # fmt: skip
# What a record may lack for a form: these errors are answers.
_LACKING = {"no-tree", "format-unfit", "figure-absent", "format-absent", "table-unknown"}


def show(record):
    """Show a record in every way that there is; what it lacks for one is an answer."""
    from torchgauge.cli import formats

    assert str(record)
    for form in formats.FORMATS:
        try:
            assert formats.text(record, form) is not None
        except TorchgaugeError as error:
            if error.id not in _LACKING:
                raise
    assert codec.decode(codec.encode(record)) == record
    if isinstance(record, Profile | Count | Generation | Loop | Ranks | Serving | Sweep):
        record.summary()
