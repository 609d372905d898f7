"""What one rank has more of than others: what its device and its host did meanwhile."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np

from torchgauge.analyze.communication.communication_kernels import collective_of
from torchgauge.records.timeline.node import base_name
from torchgauge.records.trace.ranks import Differing, RankDifference
from torchgauge.records.trace.trace import RankTrace

_Kernel = tuple[str, tuple[int, ...] | None, tuple[int, ...] | None]
_Durations = dict[_Kernel, tuple[float, int]]
# Of what is lost: less explains nothing.
NOTICEABLE = 0.1
# Others that it is compared with: their median needs no more.
MAX_OTHERS = 16
INPUT = "enumerate(DataLoader)"
MIN_SHARED_KERNELS = 3


def differences(
    rank: RankTrace, other_ranks: Sequence[RankTrace], lost: float
) -> tuple[RankDifference, ...]:
    """Return what a rank has more of than the median of the others, most first."""
    compared = other_ranks[:MAX_OTHERS]
    result = []
    for aspect, seconds in _FIGURES.items():
        extra_time = seconds(rank) - statistics.median(map(seconds, compared))
        name = _most_more(_synchronisations, rank, compared)[0] if aspect in _NAMED else ""
        result.append(RankDifference(aspect=aspect, extra_time=extra_time, name=name))
    operator, extra_time = _most_more(_host_times, rank, compared)
    result.append(RankDifference(aspect="host", extra_time=extra_time, name=operator))
    noticeable = [difference for difference in result if difference.extra_time > NOTICEABLE * lost]
    return tuple(sorted(noticeable, key=lambda difference: -difference.extra_time))


def _host_wait(rank: RankTrace) -> float:
    return sum(device.breakdown.idle.host_wait for device in rank.times)


_FIGURES: dict[Differing, Callable[[RankTrace], float]] = {
    "kernels": lambda rank: sum(device.breakdown.compute for device in rank.times),
    "copies": lambda rank: sum(device.breakdown.copies for device in rank.times),
    "waiting for the host": _host_wait,
    "input": lambda rank: sum(
        node.host_time or 0.0
        for node in rank.tree.nodes
        if node.name.startswith(INPUT)
        and (node.parent is None or not node.parent.name.startswith(INPUT))
    ),
    "synchronisations": lambda rank: sum(wait.time for wait in rank.synchronisations),
}
_NAMED = ("synchronisations",)


def _synchronisations(rank: RankTrace) -> dict[str, float]:
    times: dict[str, float] = {}
    for wait in rank.synchronisations:
        name = wait.operator or wait.call
        times[name] = times.get(name, 0.0) + wait.time
    return times


def _host_times(rank: RankTrace) -> dict[str, float]:
    times: dict[str, float] = {}
    for node in rank.tree.nodes:
        if node.kind == "operator" and node.host_time_self:
            name = base_name(node.name)
            times[name] = times.get(name, 0.0) + node.host_time_self
    return times


def _most_more(
    figures: Callable[[RankTrace], dict[str, float]],
    rank: RankTrace,
    other_ranks: Sequence[RankTrace],
) -> tuple[str, float]:
    """Return the name that a rank has most more of than the median of others, and how much."""
    own, of_others = figures(rank), [figures(other) for other in other_ranks]
    extra_time = {
        name: time - statistics.median(other.get(name, 0.0) for other in of_others)
        for name, time in own.items()
    }
    name = max(extra_time, key=lambda name: extra_time[name], default="")
    return name, extra_time.get(name, 0.0)


def relative_kernel_times(ranks: Sequence[RankTrace]) -> list[float | None]:
    """Return by rank how long its kernels take, relative to the same kernels of the median rank.

    The median over the kernels that most ranks have, weighted with their time. The same are those
    of one name and launch configuration that compute. None where too few are shared.
    """
    medians = [_kernel_medians(rank) for rank in ranks]
    usual: dict[_Kernel, float] = {}
    for kernel in {kernel for of_rank in medians for kernel in of_rank}:
        times = [of_rank[kernel][0] for of_rank in medians if kernel in of_rank]
        if len(times) > len(ranks) / 2 and (median := statistics.median(times)) > 0:
            usual[kernel] = median
    return [_relative(of_rank, usual) for of_rank in medians]


def _kernel_medians(rank: RankTrace) -> _Durations:
    """Return the median ns of each kernel that computes, and how often it ran."""
    durations: dict[_Kernel, list[tuple[int, ...]]] = {}
    for row in rank.tree.rows:
        kernel = row.kernel
        if kernel is None or kernel.work != "kernel" or kernel.collective is not None:
            continue
        if collective_of(row.name) is None:
            durations.setdefault((row.name, kernel.grid, kernel.block), []).append(kernel.durations)
    return {
        kernel: (float(np.median(np.concatenate(parts))), sum(map(len, parts)))
        for kernel, parts in durations.items()
    }


def _relative(
    of_rank: dict[_Kernel, tuple[float, int]], usual: dict[_Kernel, float]
) -> float | None:
    shared = [kernel for kernel in of_rank if kernel in usual]
    if len(shared) < MIN_SHARED_KERNELS:
        return None
    ratio = np.array([of_rank[kernel][0] / usual[kernel] for kernel in shared])
    weight = np.array([usual[kernel] * of_rank[kernel][1] for kernel in shared])
    order = np.argsort(ratio)
    reached = np.cumsum(weight[order])
    return float(ratio[order][np.searchsorted(reached, reached[-1] / 2)])
