"""Records made by hand for tests of the page, their sums known."""

import msgspec
from tests.support import operator_costs as costs
from tests.support import records

from torchgauge.records.profile import Profile
from torchgauge.records.system import GpuSample, GpuUse, SystemSample, Use
from torchgauge.records.timeline.loop import Captured, Loop, Stretch
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.breakdown import Kernel
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import BandwidthPoint, Roofs

MS = 1_000_000


def row(name, kind, parent, **figures):
    path = figures.pop("path", name if kind == "layer" else "")
    return TreeRow(name=name, kind=kind, parent=parent, calls=1, path=path, **figures)


def tree() -> Tree:
    """10 ms: the model's own 1, block 5 (conv 3 of them, relu 1.5), head 2.5, outside 1.5."""
    return Tree(
        rows=(
            row("Net", "model", -1, host=1 * MS, type="Net"),
            row("block", "layer", 0, host=MS // 2, type="Block"),
            row("conv", "layer", 1, path="block.conv", host=0, type="Conv2d", parameters=90),
            row("aten::conv2d", "operator", 2, host=3 * MS, flops=6_000_000, bytes=1_000),
            row("relu", "layer", 1, path="block.relu", host=0, type="ReLU"),
            row("aten::relu", "operator", 4, host=3 * MS // 2, flops=1_000, bytes=2_000),
            row("head", "layer", 0, host=0, type="Linear"),
            row("aten::addmm", "operator", 6, host=5 * MS // 2, flops=4_000_000, bytes=800),
            row("outside the model", "bucket", 0, host=3 * MS // 2),
        )
    )


def with_tree(**changes) -> Profile:
    return records.profile(**{"tree": tree(), **changes})


def on_device() -> Tree:
    """A tree with kernels: 4 ms on the device, 3 of them the product's."""
    gemm = Kernel(durations=(3 * MS,), grid=(8, 1, 1), block=(256, 1, 1), occupancy=0.5)
    relu = Kernel(durations=(1 * MS,), grid=(4, 1, 1), block=(128, 1, 1))
    return Tree(
        rows=(
            row("Net", "model", -1, host=2 * MS, type="Net"),
            row("fc", "layer", 0, host=0, type="Linear"),
            row("aten::addmm", "operator", 1, host=1 * MS),
            row("gemm", "kernel", 2, device=3 * MS, kernel=gemm),
            row("elementwise", "kernel", 0, device=1 * MS, kernel=relu),
        ),
        allocator="CUDA",
    )


def chain(nodes: int, *, calls: int = 20) -> Profile:
    """A profile of so many nodes: layers of layers with operators and kernels, as models have."""
    rows = [row("Net", "model", -1, host=0, type="Net")]
    block = 0
    while len(rows) < nodes:
        top = len(rows)
        rows.append(row(f"{block}", "layer", 0, path=f"layers.{block}", type="Block", host=100))
        for part in range(calls):
            if len(rows) + 4 > nodes:
                break
            layer, path = len(rows), f"layers.{block}.linear{part}"
            rows.append(row(f"linear{part}", "layer", top, path=path, type="Linear", host=10))
            rows.append(row("aten::linear", "operator", layer, host=50 + part, shapes="[64, 64]"))
            rows.append(
                row("aten::addmm", "operator", layer + 1, host=900, flops=7_000 + part, bytes=900)
            )
            rows.append(row("aten::empty", "operator", layer + 2, host=30, allocations=4_096))
        block += 1
    return records.profile(tree=Tree(rows=tuple(rows[:nodes])))


def cost() -> Cost:
    """A layer of 100 FLOP on float32, and an operator without formula."""
    return costs.cost(
        costs.row(1, "aten::addmm", matmul_flops=90, vector_flops=10, bytes=40),
        costs.row(0, "my::op", "int8", calls=2, has_formula=False),
        nodes=(costs.node("", -1), costs.node("fc", 0)),
    )


def roofs() -> Roofs:
    return Roofs(
        device="A CPU",
        source="datasheet",
        method="a document",
        peaks={"float32": 1e12, "int8": 4e12},
        bandwidth=(
            BandwidthPoint(working_set=1_000, bytes_per_second=4e11),
            BandwidthPoint(working_set=10_000_000, bytes_per_second=1e11),
        ),
    )


def system_with_gpu():
    """A GPU whose driver tells of its use (after the first second), memory and clock, not power."""
    samples = tuple(
        GpuSample(time=second / 2, utilization=use, memory=memory, power=None, clock=1.8e9)
        for second, use, memory in ((1, None, 2 * 10**9), (2, 0.5, 3 * 10**9), (3, 0.75, 10**9))
    )
    gpu = GpuUse(
        index=0,
        name="A GPU",
        utilization=Use(mean=0.625, max=0.75),
        memory=Use(mean=2e9, max=3e9),
        power=None,
        temperature=None,
        clock=Use(mean=1.8e9, max=1.8e9),
        samples=samples,
    )
    host = tuple(SystemSample(time=one.time, cores=1.0, rss=2_500) for one in samples)
    return msgspec.structs.replace(records.system(), gpus=(gpu,), samples=host)


def loop() -> Loop:
    return Loop(
        roots=("Net",),
        environment=records.environment(),
        captured=Captured(requested=2, recorded=1, budget=1_000_000),
        by="optimizer",
        count=4,
        tree=tree(),
        stretches=(
            Stretch(phase="bare", durations=(0.02, 0.01, 0.01)),
            Stretch(phase="record", durations=(0.015,)),
        ),
    )
