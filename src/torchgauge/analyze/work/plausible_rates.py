"""Rates that no machine reaches: a time or a count is then not that of the whole call.

A call that returns before its work is done, work that another process does, or an operator that
computes less than its formula says: each makes a rate that contradicts itself.
"""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.environment import Machine
from torchgauge.records.latency.latency import Latency
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.cost import Cost

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
SAME_WORK = 1.01
_VECTORS = frozenset({"float32", "float64", "complex64", "complex128"})
_MAX_NAMED = 3


def of_each_call(cost: Cost | None, tree: Tree | None) -> Cost | None:
    """Return the cost where each call does as much, to a hundredth; of others there is no rate."""
    if cost is None:
        return None
    if cost.flops_range is not None:
        lowest, highest = cost.flops_range
        return cost if highest <= SAME_WORK * lowest else None
    return None if tree is not None and tree.varies else cost


def implausible(
    machine: Machine, device: str, cost: Cost | None, latency: Latency | None, tree: Tree | None
) -> tuple[MeasurementWarning, ...]:
    """Return the warning `rate-impossible` where a call or a layer is faster than any machine.

    Of a training step the call's own rate is not judged: it is timed with its optimizer.
    """
    flops, moved = _max_rates(machine, device, cost)
    rates = []
    if cost is not None and latency is not None and latency.median > 0 and not cost.backward:
        call_rates = (cost.executed_flops / latency.median, cost.bytes / latency.median)
        if call_rates[0] > flops or call_rates[1] > moved:
            rates.append(f"the call ({_rates(*call_rates)})")
    if tree is not None:
        rates += [
            f"{node.path or 'the model'} ({units.rate(node.flops_per_second, 'FLOP')})"
            for node in tree.root.walk()
            if node.kind in ("model", "layer") and (node.flops_per_second or 0.0) > flops
        ]
    if not rates:
        return ()
    remainder_text = f" and {len(rates) - _MAX_NAMED} more" if len(rates) > _MAX_NAMED else ""
    return (
        MeasurementWarning(
            id="rate-impossible",
            message=f"No machine is as fast as these figures say: {', '.join(rates[:_MAX_NAMED])}"
            f"{remainder_text}.",
            probe="cost",
            cause="Time and work contradict each other: work goes on after the call returns, is "
            "done elsewhere, or is less than the operators' formulas say.",
            remedy="Trust neither rate nor time; let the model return when its work is done.",
        ),
    )


def _max_rates(machine: Machine, device: str, cost: Cost | None) -> tuple[float, float]:
    """Return FLOP/s and bytes per second that no device of this kind exceeds."""
    if not device.startswith("cpu"):
        return GPU_FLOPS, GPU_BYTES
    cores = max(machine.logical_cores, machine.usable_cores)
    dtypes = set() if cost is None else {row.dtype for row in cost.rows if row.matmul_flops}
    core_flops = VECTOR_FLOPS if dtypes and dtypes <= _VECTORS else CORE_FLOPS
    return cores * core_flops, cores * CORE_BYTES


def _rates(flops: float | None, moved: float | None) -> str:
    return f"{units.rate(flops, 'FLOP')}, {units.rate(moved, 'B')}"
