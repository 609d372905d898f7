"""Quality of measured roofs, and the rates that no machine reaches.

A call that returns before its work is done, work that another process does, or an operator that
computes less than its formula says: each makes a rate that contradicts itself.
"""

from __future__ import annotations

import msgspec

from torchgauge import units
from torchgauge.records.environment import Machine
from torchgauge.records.latency.latency import Latency
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import BandwidthPoint, Roofs

# Cores' worth of time of other processes, from which on roofs without a quality are too low.
DISTURBED = 0.25
# Two passes of an undisturbed machine differ by less.
WIDE_SPREAD = 0.15
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


def disturbed(roofs: Roofs) -> bool:
    """Return whether other work made measured roofs too low."""
    if roofs.quality is None:
        return (roofs.other or 0.0) > DISTURBED
    return roofs.quality == "busy"


def combined(stored: Roofs | None, latest: Roofs) -> Roofs:
    """Return the combination of two measurements of one machine: the faster of each figure.

    Other work and fewer sizes make a figure slower, never faster. What is said of the measurement
    (its extent, quality and time) is that of the better one: a quiet one before a busy one, then a
    full one before a quick one. A quiet and full one stands alone, since the machine may have
    become slower.
    """
    if stored is None or _rank(latest) == (True, True):
        return latest
    better = latest if _rank(latest) >= _rank(stored) else stored
    peaks, libraries = faster_products(stored, latest)
    dispatches = [roofs.dispatch for roofs in (stored, latest) if roofs.dispatch is not None]
    return msgspec.structs.replace(
        better,
        peaks=peaks,
        libraries=libraries,
        bandwidth=_faster_streams(stored, latest),
        dispatch=min(dispatches, default=None),
    )


def faster_products(stored: Roofs, latest: Roofs) -> tuple[dict[str, float], dict[str, str]]:
    """Return the higher peak of each dtype, and whose library reached it where that is known."""
    peaks, libraries = dict(stored.peaks), dict(stored.libraries)
    for dtype, peak in latest.peaks.items():
        if peak > peaks.get(dtype, 0.0):
            peaks[dtype] = peak
            libraries.pop(dtype, None)
            if library := latest.libraries.get(dtype):
                libraries[dtype] = library
    return peaks, libraries


def reservations(roofs: Roofs) -> tuple[str, ...]:
    """Return why better roofs are possible, and how; nothing for a full and quiet measurement."""
    if roofs.source == "datasheet":
        return ("Datasheet roofs are higher than any kernel reaches.",)
    texts = []
    if disturbed(roofs):
        texts.append(
            f"Others took {roofs.other or 0.0:.2f} cores while the roofs were measured: the "
            "machine is faster than that. `torchgauge profile TARGET --roofs` measures them again, "
            "best on an idle machine."
        )
    if roofs.extent == "quick":
        texts.append(
            "The roofs were measured quickly, and are a little too low; "
            "`torchgauge profile TARGET --roofs` refines them."
        )
    if (roofs.spread or 0.0) > WIDE_SPREAD:
        texts.append(
            f"Two passes of measuring memory bandwidth differ by {units.percent(roofs.spread)}."
        )
    return tuple(texts)


def description(roofs: Roofs) -> str:
    """Return how roofs were obtained, in short: "measured", "measured, quick, busy machine"."""
    return ", ".join((roofs.source, *shortcomings(roofs)))


def shortcomings(roofs: Roofs) -> tuple[str, ...]:
    """Return the reasons why measured roofs are too low, a word each; none for good ones."""
    busy = ("busy machine",) if disturbed(roofs) else ()
    return (("quick",) if roofs.extent == "quick" else ()) + busy


def _rank(roofs: Roofs) -> tuple[bool, bool]:
    return not disturbed(roofs), roofs.extent == "full"


def _faster_streams(stored: Roofs, latest: Roofs) -> tuple[BandwidthPoint, ...]:
    sizes = {point.working_set for roofs in (stored, latest) for point in roofs.bandwidth}
    return tuple(
        BandwidthPoint(
            working_set=size, bytes_per_second=max(_proven(stored, size), _proven(latest, size))
        )
        for size in sorted(sizes)
    )


def _proven(roofs: Roofs, size: int) -> float:
    """Return the rate that was reached on a working set of `size` bytes or a larger one."""
    larger = [point for point in roofs.bandwidth if point.working_set >= size]
    return larger[0].bytes_per_second if larger else 0.0


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
        rates += _faster_nodes(tree, ("model", "layer"), flops)
    return _impossible(
        rates,
        "Time and work contradict each other: work goes on after the call returns, is done "
        "elsewhere, or is less than the operators' formulas say.",
        "Trust neither rate nor time; let the model return when its work is done.",
    )


def implausible_recording(tree: Tree, roofs: Roofs | None) -> tuple[MeasurementWarning, ...]:
    """Return the warning where layers or operators of a trace are faster than their device.

    `roofs` are the device's, None where it is not known.
    """
    flops = GPU_FLOPS if roofs is None else max(roofs.peaks.values(), default=GPU_FLOPS)
    return _impossible(
        _faster_nodes(tree, ("model", "layer", "operator"), flops),
        "Time and work contradict each other: the recorded sizes are not those of what ran, or not "
        "all that ran was recorded.",
        "Trust neither these rates nor what rests on them.",
    )


def _faster_nodes(tree: Tree, kinds: tuple[str, ...], flops: float) -> list[str]:
    """Return the nodes of these kinds that do more FLOP/s on a device, or on the host."""
    return [
        f"{node.path or node.name} ({units.rate(node.flops_per_second, 'FLOP')})"
        for node in tree.root.walk()
        if node.kind in kinds and (node.flops_per_second or 0.0) > flops
    ]


def _impossible(rates: list[str], cause: str, remedy: str) -> tuple[MeasurementWarning, ...]:
    if not rates:
        return ()
    remainder_text = f" and {len(rates) - _MAX_NAMED} more" if len(rates) > _MAX_NAMED else ""
    return (
        MeasurementWarning(
            id="rate-impossible",
            message=f"No machine is as fast as these figures say: {', '.join(rates[:_MAX_NAMED])}"
            f"{remainder_text}.",
            probe="cost",
            cause=cause,
            remedy=remedy,
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
