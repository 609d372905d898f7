"""Records of every kind, made by hand with names that break careless writers."""

import msgspec
from tests.support import records, sweeps
from tests.support.sweeps import cell, ended

from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.target import TargetDescription
from torchgauge.records.timeline.loop import Captured, Loop, Rank, Stretch
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.training_run import TrainingRun
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.breakdown import Kernel
from torchgauge.records.trace.ranks import Ranks, RankTime
from torchgauge.records.work.cost import Cost, CostNode, CostRow
from torchgauge.records.work.size import Count
from torchgauge.records.work.utilization import PeakUsed, Utilization

ODD = '=1+1,"quo\\te";new\nline\rtab\t|`a``b`|<img src=x onerror=y>*_~ \u202eright\u2028漢字é@x'


def target(**changes):
    known = {"spec": ODD, "kind": "python", "name": "Net", "device": "cpu", "precision": "fp32"}
    return TargetDescription(**{**known, "precision_method": "native", "batch": 2, **changes})


def tree(*, gpu=False):
    """205 ns on the host: 10 the model's own, 130 of body.0, 60 of the odd layer, 5 outside."""
    rows = [
        TreeRow(name="Net", kind="model", parent=-1, calls=1, type="Net", host=10),
        TreeRow(name="0", kind="layer", parent=0, calls=1, path="body.0", type="Conv2d", host=100),
        TreeRow(
            name="aten::conv2d", kind="operator", parent=1, calls=1,
            host=30, flops=2000, bytes=500, allocated=64, allocations=64,
        ),
        TreeRow(name="odd", kind="layer", parent=0, calls=2, path=ODD, type="Linear", host=20),
        TreeRow(
            name="aten::addmm", kind="operator", parent=3, calls=2, host=40, flops=1000, bytes=100
        ),
        TreeRow(name="outside the model", kind="bucket", parent=0, calls=0, host=5),
    ]  # fmt: skip
    if gpu:
        kernel = Kernel(durations=(700,), grid=(4, 1, 1), block=(128, 1, 1))
        rows.append(TreeRow(name=ODD, kind="kernel", parent=4, calls=1, device=700, kernel=kernel))
    return Tree(rows=tuple(rows))


def profile(*, gpu=False, **changes):
    return records.profile(**{"target": target(), "tree": tree(gpu=gpu), **changes})


def count():
    nodes = (
        CostNode(name="Net", path="", kind="Net", parent=-1, calls=1, parameters=100),
        CostNode(name="odd", path=ODD, kind="Linear", parent=0, calls=1, parameters=100),
    )
    known = {"phase": "forward", "dtype": "float32", "calls": 1}
    rows = (
        CostRow(node=1, operator="aten::addmm", matmul_flops=600, bytes=50, **known),
        CostRow(node=0, operator="aten::add", vector_flops=8, bytes=96, **known),
        CostRow(node=1, operator="my::op", **known, has_formula=False),
    )
    cost = Cost(nodes=nodes, rows=rows, backward=False, counted_on="meta")
    return Count(target=target(), cost=cost, size=records.profile().size, totals=cost.totals)


def loop():
    return Loop(
        roots=(ODD, "Second"),
        environment=records.environment(),
        captured=Captured(
            requested=2, recorded=1, budget=1000, events=10, memory=100, reason="full"
        ),
        by="optimizer",
        count=7,
        tree=tree(),
        stretches=(
            Stretch(phase="bare", durations=(0.03, 0.01, 0.02, 0.03)),
            Stretch(phase="record", durations=(0.04,)),
        ),
        communication=0.004,
        waiting=0.001,
        rank=Rank(number=1, world=2),
        warnings=(MeasurementWarning(id="fewer", message=ODD),),
    )


def training_run():
    used = Utilization(
        model_flops=6000, executed_flops=8000, seconds=0.012, mfu=0.4, hfu=0.5,
        peak=PeakUsed(
            device=ODD, dtype="float32", flops_per_second=1e6, source="measured", document=ODD
        ),
    )  # fmt: skip
    return TrainingRun(
        trainer="transformers",
        model=ODD,
        environment=records.environment(),
        program="train.py",
        rank=Rank(number=1, world=2),
        replicas=2,
        count=7,
        rated=3,
        time=0.036,
        data_wait=0.004,
        between=0.1,
        durations=(0.012, 0.013, 0.011),
        interval=Interval(low=0.011, high=0.013, scope="process"),
        micro_batches=2.0,
        samples=24,
        tokens=240,
        utilization=used,
        counted=3,
        memory_peak=10**8,
        window=loop(),
        interrupted=True,
        warnings=(MeasurementWarning(id="training-watch-failed", message=ODD),),
    )


def untold_training_run():
    return TrainingRun(
        trainer="lightning", model="Net", environment=records.environment(), unknown=ODD, count=1
    )


def ranks():
    first = RankTime(number=0, steps=5, step=0.01, work=0.008, waiting=0.002, communication=0.003)
    second = RankTime(number=1, steps=5, step=0.01, work=0.01, waiting=0.0, communication=0.003)
    return Ranks(
        world=3, ranks=(first, second), missing=(2,), straggler=1, lost=0.002, share=0.3,
        exposed=0.1,
    )  # fmt: skip


def sweep():
    cells = [cell(1, memory=None, precision="fp32"), ended("crashed", ODD, 2, precision="fp32")]
    return msgspec.structs.replace(sweeps.sweep(cells), target=target())


def every():
    """Return one record of each kind."""
    return {
        "profile": profile(gpu=True),
        "count": count(),
        "loop": loop(),
        "ranks": ranks(),
        "sweep": sweep(),
        "training run": training_run(),
    }
