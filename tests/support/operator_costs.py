"""Cost records made by hand, whose bounds are computed on paper."""

from torchgauge.records.latency.latency import Latency
from torchgauge.records.record import Interval
from torchgauge.records.work.cost import Cost, CostNode, CostRow
from torchgauge.records.work.roofline import BandwidthPoint, Roofs
from torchgauge.records.work.size import Size

MIB = 2**20

# 100 GFLOP/s in float32, 200 in bfloat16; 100 GB/s in a cache of 32 MiB, 10 GB/s beyond it.
ROOFS = Roofs(
    device="a machine",
    source="measured",
    method="by hand",
    peaks={"float32": 100e9, "tf32": 400e9, "bfloat16": 200e9, "int8": 800e9},
    bandwidth=(
        BandwidthPoint(working_set=2**15, bytes_per_second=100e9),
        BandwidthPoint(working_set=32 * MIB, bytes_per_second=100e9),
        BandwidthPoint(working_set=128 * MIB, bytes_per_second=10e9),
        BandwidthPoint(working_set=256 * MIB, bytes_per_second=10e9),
    ),
    last_level_cache=32 * MIB,
    memory=10**9,
    dispatch=2e-6,
)


def row(node=0, operator="aten::mm", dtype="float32", calls=1, phase="forward", **work):
    if "matmul_flops" in work:
        work.setdefault("causal_matmul_flops", work["matmul_flops"])
    return CostRow(node=node, operator=operator, phase=phase, dtype=dtype, calls=calls, **work)


def cost(*rows, nodes=None):
    nodes = nodes or (CostNode(name="", path="", kind="Model", parent=-1, calls=1),)
    return Cost(nodes=nodes, rows=rows, backward=False, counted_on="cpu")


def node(path, parent, parameters=0, calls=1):
    return CostNode(
        name=path, path=path, kind="Layer", parent=parent, calls=calls, parameters=parameters
    )


def latency(median, low=None, high=None):
    return Latency(
        median=median,
        mean=median,
        std=None,
        min=median,
        max=median,
        p50=median,
        p90=median,
        p95=median,
        p99=median,
        interval=None if low is None else Interval(low=low, high=high),
        interval_method="",
        percentile_intervals={},
        first_call=median,
        steady=True,
        stop="iterations done",
        device_time=None,
        processes=(),
    )


def size(parameter_bytes=0, buffer_bytes=0, uninitialized=()):
    return Size(
        parameters=parameter_bytes // 4,
        trainable=parameter_bytes // 4,
        buffers=buffer_bytes // 4,
        parameter_bytes=parameter_bytes,
        buffer_bytes=buffer_bytes,
        by_dtype={},
        uninitialized=uninitialized,
    )
