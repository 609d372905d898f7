"""Advice made by hand: one trial of every outcome, with names that break careless writers."""

import msgspec
from tests.support import records
from tests.support.exported_records import ODD, target

from torchgauge.records.advice import (
    Advice,
    Assumed,
    Best,
    Combination,
    CpuSpeedUp,
    LayerGain,
    OutputCheck,
    SpeedUp,
    Trial,
)
from torchgauge.records.record import Interval, MeasurementWarning

DIFFERENCES = (-0.25, -0.27, -0.26, -0.24, -0.26, -0.28)


def speed_up(value=1.3, low=1.27, high=1.33):
    return SpeedUp(
        value=value, interval=Interval(low=low, high=high), differences=DIFFERENCES,
        before=0.010, after=0.010 / value,
    )  # fmt: skip


OUTPUT = OutputCheck(
    passed=True, bound=1e-3, max_absolute=2.5e-6, mean_absolute=1e-7, max_relative=2e-6,
    mean_relative=1e-6, cosine=1.0, argmax_agreement=0.995, metric_before=0.912,
    metric_after=0.911,
)  # fmt: skip
ACCEPTED = Trial(
    id="compile", title="torch.compile", outcome="accepted", how="measured",
    reason="1.30 times as fast [1.27, 1.33]: surely by 27 %.", code="model = torch.compile(model)",
    screening=speed_up(1.35), confirmation=speed_up(), p=1e-6, output=OUTPUT,
    memory_before=40_000_000, memory_after=30_000_000, one_off=12.0, break_even=5200,
    layers=(LayerGain(path=ODD, change=-0.4, interval=Interval(low=-0.5, high=-0.3),
                      seconds=-0.002),),
)  # fmt: skip
SHELL = Trial(
    id="malloc-keep", title="malloc that keeps freed memory", outcome="accepted", how="measured",
    reason="1.10 times as fast", code="export MALLOC_MMAP_MAX_=0\nexport MALLOC_TOP_PAD_=67108864",
    language="shell", confirmation=speed_up(1.1, 1.06, 1.14), p=1e-4, output=OUTPUT,
    memory_before=40_000_000, memory_after=40_000_000,
)  # fmt: skip
REJECTED = Trial(
    id="int8-dynamic", title="dynamic int8", outcome="rejected", how="measured",
    reason=f"Its output differs by more than is allowed. {ODD}", code="pass",
    output=OutputCheck(passed=False, bound=0.1, max_relative=0.4, max_absolute=1.0),
)  # fmt: skip
UNDECIDED = Trial(
    id="channels-last", title="channels last", outcome="undecided", how="measured",
    reason="1.90 times as fast [1.60, 2.20], 1.16 [1.10, 1.22] by CPU time: they contradict.",
    code="pass", confirmation=msgspec.structs.replace(
        speed_up(1.9, 1.6, 2.2),
        cpu=CpuSpeedUp(value=1.16, interval=Interval(low=1.1, high=1.22), core_share=0.6)),
    p=1e-3, output=OUTPUT,
)  # fmt: skip
FAILED = Trial(
    id="bf16-cast", title="bf16 weights", outcome="failed", how="measured",
    reason="A measuring process was killed by SIGABRT.", code="pass",
)  # fmt: skip
UNTRIED = Trial(
    id="fsdp", title="fully sharded data parallel", outcome="untried", how="estimated",
    reason="Several devices are needed.", code="pass", goal="memory",
    assumed=(Assumed(name="memory of each of 2", value=2e9, unit="B", by="weights ÷ devices"),),
)  # fmt: skip


def advice(**changes):
    known = {
        "target": target(), "environment": records.environment(),
        "trials": (ACCEPTED, SHELL, UNDECIDED, REJECTED, FAILED, UNTRIED),
        "combinations": (
            Combination(candidates=("compile", "malloc-keep"), against=("compile",),
                        outcome="accepted", reason="1.06 times as fast on top of compile.",
                        speed_up=speed_up(1.06, 1.03, 1.09), output=OUTPUT),
        ),
        "best": Best(candidates=("compile", "malloc-keep"), code=ACCEPTED.code,
                     environment="export MALLOC_MMAP_MAX_=0", speed_up=speed_up(1.38, 1.3, 1.4)),
        "minimum_gain": 0.01, "alpha": 0.025, "latency": 0.01, "memory": 40_000_000,
        "metric": "eval.py:accuracy", "duration": 300.0,
        "warnings": (MeasurementWarning(id="odd", message=ODD, probe="advice"),),
    }  # fmt: skip
    return Advice(**{**known, **changes})


NOTHING = advice(trials=(REJECTED,), combinations=(), best=None, warnings=(), interrupted=True)
