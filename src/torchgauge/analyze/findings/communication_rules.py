"""What collectives cost, and why they are slow."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, SERIOUS, rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.trace.trace import Collectives, RankTrace

MAX_CALLS = 3


@rule("slow-collective")
def slow_collective(evidence: Evidence) -> Iterator[Finding]:
    """Find calls of a collective whose transfer took far longer than usual."""
    job = None if evidence.job is None else evidence.job.job
    for call in job.slow[:MAX_CALLS] if job is not None else ():
        size = "" if call.bytes is None else f" of {units.size(call.bytes)}"
        yield slow_collective.finding(
            "warning",
            title=f"{call.name}{size}, call {call.number}, took {units.time(call.transfer)}",
            evidence=f"{call.transfer / call.usual:.1f} times the usual {units.time(call.usual)}, "
            f"{units.time(call.time)} after the first collective began; all ranks had arrived."
            if call.usual
            else f"Usually it takes no time; {units.time(call.time)} after the first one began.",
            remedy="See what else used the network then: another job, storage, a slow link.",
            time=call.transfer,
            worth=call.transfer - call.usual,
            view="ranks",
        )


# Smaller messages are bound by latency.
LARGE = 4 * 2**20
# Larger messages of the same ranks reach at least about the same.
SLOWER = 2.0
SLOW_BANDWIDTH_MIN_CALLS = 2
_RINGS = {"allreduce", "allgather", "reducescatter"}


@rule("slow-bandwidth", source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html")
def slow_bandwidth(evidence: Evidence) -> Iterator[Finding]:
    """Find transfers below the bandwidth of others like them, their waits taken out."""
    trace = evidence.job
    for rank in trace.ranks if trace is not None else ():
        measured = [kind for kind in rank.collectives if _is_measured(kind, rank)]
        slow = [(kind, best) for kind in measured if (best := _best(kind, measured)) is not None]
        time = min(sum(kind.transfer or 0.0 for kind, _ in slow), rank.window)
        if not slow or share(time, evidence.time) < NOTICEABLE:
            continue
        kind, best = max(slow, key=lambda pair: pair[0].transfer or 0.0)
        assert kind.bus_bandwidth is not None  # noqa: S101 - `_is_measured`
        assert best.bus_bandwidth is not None  # noqa: S101
        factor = best.bus_bandwidth / kind.bus_bandwidth
        yield slow_bandwidth.costs(
            (time, evidence.time),
            title=f"{kind.name} of {units.size(kind.bytes or 0)} reaches 1/{factor:.1f} of the "
            f"bandwidth of {best.name}",
            evidence=f"Rank {rank.rank}: {units.size(kind.bus_bandwidth)}/s over {kind.calls} "
            f"calls; {units.size(best.bus_bandwidth)}/s with {units.size(best.bytes or 0)}, also "
            f"of {best.group} ranks. Waiting is left out.",
            remedy="See what shares the links then (another job, copies to the host), and "
            "what NCCL chose (NCCL_DEBUG=INFO: its rings, protocol and algorithm).",
            worth=time * (1 - 1 / factor),
            view="ranks",
        )
        return  # all ranks of a group have the same collectives


def _is_measured(kind: Collectives, rank: RankTrace) -> bool:
    """Whether its bandwidth is known; groups of some ranks may have other links than others."""
    return (
        kind.transfer is not None
        and kind.group == rank.world
        and bool(kind.bus_bandwidth)
        and (kind.bytes or 0) >= LARGE
        and kind.calls >= SLOW_BANDWIDTH_MIN_CALLS
    )


def _best(kind: Collectives, measured: list[Collectives]) -> Collectives | None:
    """Return the fastest one of the others that are not larger, if it is much faster."""
    comparable = [
        other
        for other in measured
        if (other.bytes or 0) <= (kind.bytes or 0)
        and (other.name == kind.name or {other.name, kind.name} <= _RINGS)
    ]
    best = max(comparable, key=lambda other: other.bus_bandwidth or 0.0)
    return best if (best.bus_bandwidth or 0.0) > SLOWER * (kind.bus_bandwidth or 0.0) else None


# Below it the latency of a collective outweighs its transfer: 1 MiB at 100 GB/s is 10 µs.
SMALL = 2**20
# DDP's buckets are 25 MiB; a few small messages (a loss, a norm) are nothing to join.
SMALL_COLLECTIVES_MIN_CALLS = 32
_JOINABLE = ("allreduce", "reducescatter", "allgather", "broadcast", "reduce")


@rule(
    "small-collectives",
    source="https://docs.pytorch.org/docs/stable/generated/"
    "torch.nn.parallel.DistributedDataParallel.html",
)
def small_collectives(evidence: Evidence) -> Iterator[Finding]:
    """Find gradients that are reduced one by one, where a bucket takes hardly longer.

    Those of inference (tensor parallelism) depend on each other, and cannot be joined.
    """
    if evidence.rank is None or not any(node.row.phase == "backward" for node in evidence.nodes):
        return
    collectives = [kind for kind in evidence.rank.collectives if kind.name in _JOINABLE]
    small = [kind for kind in collectives if kind.bytes is not None and kind.bytes < SMALL]
    calls, exposed = sum(kind.calls for kind in small), sum(kind.exposed for kind in small)
    all_calls = sum(kind.calls for kind in collectives)
    exposed = min(exposed, evidence.time)
    if (
        calls < SMALL_COLLECTIVES_MIN_CALLS
        or calls < all_calls / 2
        or share(exposed, evidence.time) < NOTICEABLE
    ):
        return
    total = sum(kind.bytes * kind.calls for kind in small if kind.bytes is not None)
    yield small_collectives.costs(
        (exposed, evidence.time),
        title=f"{calls:,} of {all_calls:,} collectives have less than 1 MiB: "
        f"{units.size(total / calls)} on average",
        evidence=f"They take {units.time(sum(kind.time for kind in small))}, "
        f"{units.time(exposed)} of it beside no computation, for {units.size(total)}.",
        remedy="Join them: larger buckets (DDP's bucket_cap_mb, FSDP units of more layers), or "
        "torch.distributed._coalescing_manager around them.",
        view="devices",
    )


# Of the device's computation: the stream with so much is the one that computes.
COMPUTES = 0.5
EXPOSED = 0.9


@rule(
    "collectives-on-compute-stream",
    source="https://docs.pytorch.org/docs/stable/distributed.html"
    "#synchronous-and-asynchronous-collective-operations",
    explains=("exposed-communication",),
    jax_remedy="Have XLA run them beside the computation: "
    "--xla_gpu_enable_latency_hiding_scheduler=true in XLA_FLAGS.",
)
def compute_stream(evidence: Evidence) -> Iterator[Finding]:
    """Find collectives on a stream that computes, which waits until each has ended."""
    if evidence.rank is None or evidence.rank.device_kind == "TPU":
        return  # its one line of work says nothing of what runs beside it
    for device in evidence.device_times:
        for stream in device.streams:
            own, window = stream.breakdown, device.breakdown.window
            time = min(own.communication, device.breakdown.exposed_communication)
            if (
                share(time, window) < NOTICEABLE
                or own.compute < COMPUTES * device.breakdown.compute
                or time < EXPOSED * own.communication
            ):
                continue
            yield compute_stream.costs(
                (time, window),
                title=f"{evidence.called(device.device)} communicates and computes on one stream: "
                f"{units.percent(share(time, window))} of the window cannot overlap",
                evidence=f"Stream {stream.stream}: {units.time(own.communication)} of "
                f"communication and {units.time(own.compute)} of computation.",
                remedy="Issue independent collectives with async_op=True and wait where the result "
                "is needed; between layers of tensor parallelism, split the product so that a part "
                "is sent while the next is computed (torch.distributed._symmetric_memory).",
                worth=min(time, own.compute),
                device=device.device,
                view="devices",
            )


# Of all exposed communication: else it is not the last one that matters.
MOSTLY = 0.5
# Of the rest: where nothing overlaps, the order of the buckets is not the cause.
OVERLAPS = 0.5


@rule(
    "last-collective",
    source="https://docs.pytorch.org/docs/stable/notes/ddp.html",
    explains=("exposed-communication",),
)
def last_collective(evidence: Evidence) -> Iterator[Finding]:
    """Find a last collective that no backward pass is left to hide."""
    rank = evidence.rank
    if rank is None or rank.exposed_last is None or len(rank.times) != 1:
        return
    if not any(node.row.phase == "backward" for node in evidence.nodes):
        return
    breakdown = rank.times[0].breakdown
    time = min(rank.exposed_last, breakdown.exposed_communication)
    other_time = sum(kind.time for kind in rank.collectives) - time
    other_exposed = sum(kind.exposed for kind in rank.collectives) - time
    if (
        share(time, breakdown.window) < NOTICEABLE
        or share(time, breakdown.exposed_communication) < MOSTLY
        or share(other_exposed, other_time) > 1 - OVERLAPS
    ):
        return
    overlap = 1 - share(other_exposed, other_time)
    yield last_collective.costs(
        (time, breakdown.window),
        title=f"The last collective of each step is {units.percent(time / breakdown.window)} of "
        "the window: nothing is left to compute beside it",
        evidence=f"{units.time(time)} of {units.time(breakdown.exposed_communication)} of exposed "
        f"communication; {units.percent(overlap)} of the rest overlaps.",
        remedy="Make the last bucket small (DDP's bucket_cap_mb), or start the optimizer on the "
        "buckets that have arrived; accumulate gradients over several batches (no_sync).",
        view="devices",
    )


@rule("communication-bound", source="https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html")
def communication_bound(evidence: Evidence) -> Iterator[Finding]:
    """Find a job whose links take much of its time, waits for each other left out."""
    trace = evidence.job
    if trace is None:
        return
    excesses = [_more_than_compute(rank) for rank in trace.ranks]
    bound = [pair for pair in zip(trace.ranks, excesses, strict=True) if pair[1] is not None]
    if len(bound) < len(trace.ranks):
        return
    rank, excess = min(bound, key=lambda pair: pair[1] or 0.0)
    assert excess is not None  # noqa: S101 - selected
    breakdown = rank.times[0].breakdown
    transfer = breakdown.compute + excess
    time = min(breakdown.exposed_communication, excess)
    if share(time, evidence.time) < SERIOUS:
        return
    yield communication_bound.costs(
        (time, evidence.time),
        title=f"Transfers take {units.time(transfer)}, computation "
        f"{units.time(breakdown.compute)}: no order of work hides them",
        evidence=f"Rank {rank.rank}, of all ranks the one with least; waiting for others is left "
        "out.",
        remedy="Send less or less often: accumulate gradients (no_sync), reduce them in bf16 "
        "(a communication hook), shard within a node (HSDP), a larger batch a rank.",
        view="ranks",
    )


def _more_than_compute(rank: RankTrace) -> float | None:
    """Return by how many seconds transfers take longer than computation, None if they do not."""
    transfers = [kind.transfer for kind in rank.collectives]
    known_transfers = [transfer for transfer in transfers if transfer is not None]
    if len(rank.times) != 1 or len(known_transfers) < len(transfers):
        return None
    breakdown = rank.times[0].breakdown
    # Collectives of two groups may run at once.
    excess = min(sum(known_transfers), breakdown.communication) - breakdown.compute
    return excess if excess > 0 else None


_WAITS = (
    "Even out the ranks' work first: most of it waits for the last one, and overlap only hides it."
)


@rule("exposed-communication")
def exposed_communication(evidence: Evidence) -> Iterator[Finding]:
    """Find communication beside which nothing is computed."""
    for device in evidence.device_times:
        breakdown = device.breakdown
        time, window = breakdown.exposed_communication, breakdown.window
        if share(time, window) < NOTICEABLE:
            continue
        yield exposed_communication.costs(
            (time, window),
            title=f"{evidence.called(device.device)} does nothing but communicate for "
            f"{units.percent(time / window)} of the window",
            evidence=f"{units.time(time)} of {units.time(breakdown.communication)} "
            f"of communication overlap with no computation{_waiting(evidence)}.",
            remedy=_WAITS
            if _waits(evidence) > time / 2
            else "Overlap it (buckets, prefetching, order); see whether a rank comes late.",
            device=device.device,
            view="devices",
        )


def _waits(evidence: Evidence) -> float:
    """Return the seconds that the rank waited for others, as far as their files are known."""
    collectives = () if evidence.rank is None else evidence.rank.collectives
    return sum(kind.wait or 0.0 for kind in collectives)


def _waiting(evidence: Evidence) -> str:
    waits = _waits(evidence)
    return f"; all communication waits {units.time(waits)} for other ranks" if waits else ""
