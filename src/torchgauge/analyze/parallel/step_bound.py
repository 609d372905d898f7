"""The least time of a step of a job, and whether its ranks fit their devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from torchgauge.records.parallel.parallel import (
    CollectiveRow,
    Link,
    LinkBound,
    Links,
    StepBound,
    WorkRow,
)
from torchgauge.records.parallel.rank_memory import DeviceFit, RankMemory, Verdict
from torchgauge.records.work.roofline import Roofs

# What frameworks reserved in published runs was up to a fifth more than is estimated here.
RESERVED_MARGIN = 0.25
# The driver's context, NCCL's buffers, the libraries' workspaces.
OVERHEAD = 1_000_000_000
# A datasheet's GB is 10⁹ bytes, and a device's is up to 2³⁰.
LARGEST_GB = 2**30 / 10**9


def device_fit(memory: RankMemory, roofs: Roofs) -> DeviceFit | None:
    """Return whether a rank fits; None for a device of unknown memory."""
    if roofs.memory is None:
        return None
    margin = roofs.memory - memory.reserved
    needed = int(RESERVED_MARGIN * memory.reserved) + OVERHEAD
    verdict: Verdict = "may fit"
    if memory.peak > LARGEST_GB * roofs.memory:
        verdict = "does not fit"
    elif margin >= needed:
        verdict = "fits"
    return DeviceFit(
        device=roofs.device,
        memory=roofs.memory,
        verdict=verdict,
        margin=margin,
        needed_margin=needed,
        source=roofs.sources.get("memory", ""),
    )


_OWNED = ("parameters", "optimizer")


def step_bound(
    memory: RankMemory,
    work: Iterable[WorkRow],
    collectives: Iterable[CollectiveRow],
    roofs: Roofs,
    links: Links | None,
    ranks_of: Mapping[str, tuple[int, ...]],
) -> StepBound:
    """Return the lower bound of a step; `ranks_of` gives the ranks of each group by its name."""
    compute, at_least = _products(work, roofs)
    compute += _optimizer(memory, roofs)
    bounds = []
    for (group, ranks), rows in _by_group(collectives).items():
        if links is None:
            at_least = True
            continue
        bound = _link_bound(group, ranks, rows, links, ranks_of.get(group, ()))
        at_least |= bound is None
        bounds += [] if bound is None else [bound]
    exposed = sum(bound.exposed_seconds for bound in bounds)
    overlappable = sum(bound.overlappable_seconds for bound in bounds)
    busy: defaultdict[str, float] = defaultdict(float)
    for bound in bounds:
        busy[bound.link.name] += bound.exposed_seconds + bound.overlappable_seconds
    return StepBound(
        device=roofs.device,
        seconds=max(compute + exposed, *busy.values(), 0.0),
        compute=compute,
        exposed=exposed,
        overlappable=overlappable,
        links=tuple(bounds),
        at_least=at_least,
        sources=roofs.sources,
    )


def _products(work: Iterable[WorkRow], roofs: Roofs) -> tuple[float, bool]:
    """Return seconds of products at the peaks of their dtypes, and whether some are missing."""
    seconds, at_least = 0.0, False
    for row in work:
        at_least |= row.unknown_calls > 0
        if not row.causal_matmul_flops:
            continue
        peak = roofs.peak(row.dtype, tf32=True)
        if peak is None:
            at_least = True
        else:
            seconds += row.causal_matmul_flops / peak
    return seconds, at_least


def _optimizer(memory: RankMemory, roofs: Roofs) -> float:
    """Return seconds in which the optimizer reads and writes its states and the parameters."""
    bandwidth = roofs.memory_bandwidth
    if bandwidth is None:
        return 0.0
    moved = 2 * sum(memory.resting.get(part, 0) for part in _OWNED)  # type: ignore[call-overload]
    return float((moved + memory.largest.get("gradients", 0)) / bandwidth)


def _by_group(collectives: Iterable[CollectiveRow]) -> dict[tuple[str, int], list[CollectiveRow]]:
    groups: dict[tuple[str, int], list[CollectiveRow]] = {}
    for row in collectives:
        if row.ranks > 1:
            groups.setdefault((row.group, row.ranks), []).append(row)
    return groups


def _link_bound(
    group: str, ranks: int, rows: list[CollectiveRow], links: Links, members: tuple[int, ...]
) -> LinkBound | None:
    """Return a group's time on the link that bounds it; None where that link's rate is unknown.

    Ranks are numbered machine by machine. What a machine with several of the group's ranks takes
    from others is shared by their network cards; the rest goes over the links within.
    """
    by_machine: defaultdict[int, int] = defaultdict(int)
    for rank in members:
        by_machine[rank // links.devices] += 1
    machines = len(by_machine)
    ranks_per_machine = max(by_machine.values(), default=1)
    link: Link | None = links.within
    share = 1.0
    if machines > 1:
        link = links.between
        # Of (n − 1)/n of the bytes, the others' machines send (n − m)/n, over m cards.
        share = (ranks - ranks_per_machine) / ranks_per_machine / (ranks - 1)
    if link is None or not machines:
        return None
    seconds = {"exposed": 0.0, "overlappable": 0.0}
    for row in rows:
        seconds[row.exposure] += share * row.moved / link.bytes_per_second
    return LinkBound(
        group=group,
        ranks=ranks,
        machines=machines,
        link=link,
        moved=sum(row.moved for row in rows),
        exposed_seconds=seconds["exposed"],
        overlappable_seconds=seconds["overlappable"],
    )
