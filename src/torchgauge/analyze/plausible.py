"""Rates that no machine reaches: where one comes out, a time or a count is not the whole call's.

A call that returns before its work is done, work that another process does, or an operator that
computes less than its formula says: each makes a rate that contradicts itself.
"""

from __future__ import annotations

from torchgauge import units
from torchgauge.model.cost import Cost
from torchgauge.model.environment import Machine
from torchgauge.model.latency import Latency
from torchgauge.model.record import MeasurementWarning
from torchgauge.model.tree import Tree

# Of one core in a second: 8,192 operations (matrix units on bytes) and 512 bytes (three vectors of
# 64 read and written, twice over) in each of 6 G cycles.
CORE_FLOPS = 8192 * 6e9
CORE_BYTES = 512 * 6e9
# The same with vectors alone (two units of 16 fused multiply-adds, twice over), of float32 and
# float64, for which there are no matrix units.
VECTOR_FLOPS = 128 * 6e9
# Of one GPU: some five times the densest that is sold.
GPU_FLOPS = 1e17
GPU_BYTES = 1e14
_VECTORS = frozenset({"float32", "float64", "complex64", "complex128"})
_NAMED = 3


def implausible(
    machine: Machine, device: str, cost: Cost | None, latency: Latency | None, tree: Tree | None
) -> tuple[MeasurementWarning, ...]:
    """Return the warning `rate-impossible` where a call or a layer is faster than any machine.

    Of a training step the call's own rate is not judged: it is timed with its optimizer.
    """
    flops, moved = _most(machine, device, cost)
    found = []
    if cost is not None and latency is not None and latency.median > 0 and not cost.backward:
        whole = (cost.executed_flops / latency.median, cost.bytes / latency.median)
        if whole[0] > flops or whole[1] > moved:
            found.append(f"the call ({_rates(*whole)})")
    if tree is not None:
        found += [
            f"{node.path or 'the model'} ({units.rate(node.flops_per_second, 'FLOP')})"
            for node in tree.root.walk()
            if node.kind in ("model", "layer") and (node.flops_per_second or 0.0) > flops
        ]
    if not found:
        return ()
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return (
        MeasurementWarning(
            id="rate-impossible",
            message=f"No machine is as fast as these figures say: {', '.join(found[:_NAMED])}"
            f"{more}.",
            probe="cost",
            cause="Time and work contradict each other: work goes on after the call returns, is "
            "done elsewhere, or is less than the operators' formulas say.",
            remedy="Trust neither the rate nor the time; have the model return when all is done.",
        ),
    )


def _most(machine: Machine, device: str, cost: Cost | None) -> tuple[float, float]:
    """Return FLOP/s and bytes per second that no device of this kind exceeds."""
    if not device.startswith("cpu"):
        return GPU_FLOPS, GPU_BYTES
    cores = max(machine.logical_cores, machine.usable_cores)
    dtypes = set() if cost is None else {row.dtype for row in cost.rows if row.matmul_flops}
    each = VECTOR_FLOPS if dtypes and dtypes <= _VECTORS else CORE_FLOPS
    return cores * each, cores * CORE_BYTES


def _rates(flops: float | None, moved: float | None) -> str:
    return f"{units.rate(flops, 'FLOP')}, {units.rate(moved, 'B')}"
