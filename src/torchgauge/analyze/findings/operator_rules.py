"""What many small operators cost the host, and calls that are far slower than most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node

# Seconds: dispatch, allocation and the call from Python or autograd take 1 to 5 µs each, several
# times that under a profiler on a busy machine.
SMALL = 20e-6
# Fewer are no matter of their number.
MIN_CALLS = 100
# The share of the step from which it is what limits the step; of a network with products in layers
# of 1,000 units it is below 3 %.
LIMITING_SHARE = 0.4
# What is not in operators, and what lies between those that autograd calls.
_BETWEEN = ("model", "layer", "bucket")
_ENGINE = "autograd engine"


@rule(
    "small-operators",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#fuse-operations",
    explains=("outside-layers",),
)
def small_operators(evidence: Evidence) -> Iterator[Finding]:
    """Find steps on the CPU in operators so short that calling them is most of their time."""
    nodes = evidence.nodes
    if not nodes or nodes[0].device_time is not None:
        return
    small = [node for node in nodes if _is_small(node)]
    called = [node for node in small if node.name.startswith("aten::")]
    calls = sum(node.calls for node in called)
    time = sum(node.host_time_self or 0.0 for node in small) + _between(nodes, small)
    if calls < MIN_CALLS or share(time, evidence.time) < LIMITING_SHARE:
        return
    longest = max(called, key=lambda node: node.host_time_self or 0.0)
    yield small_operators.costs(
        (time, evidence.time),
        title=f"{units.percent(time / evidence.time)} of the "
        f"{'step' if evidence.rank is None else 'window'} is in {calls:,} operators of less than "
        "20 µs and between them",
        evidence=f"{units.time(time)}; {longest.calls:,} × {longest.name} take "
        f"{units.time(longest.host_time_self)} themselves.",
        remedy="Fewer and larger ones: operators on whole tensors instead of a loop in Python, "
        "torch.compile, a larger batch.",
        node=longest,
    )


def _is_small(node: Node) -> bool:
    """Whether it is an operator, or a node of autograd's, that takes little time by itself."""
    row = node.row
    is_called = row.kind == "operator" and row.calls > 0 and row.host is not None
    return is_called and row.phase != "optimizer" and (row.host or 0) * 1e-9 < SMALL * row.calls


def _between(nodes: list[Node], small: list[Node]) -> float:
    """Return the seconds between small operators: Python's, and the autograd engine's.

    Of a layer's own time no more than so many small calls explain.
    """
    inside: Counter[int] = Counter()
    for node in small:
        if node.parent is not None:
            inside[node.parent.index] += node.calls
        if node.name.startswith("autograd::engine"):
            inside[-1] += node.calls
    return sum(
        min(node.host_time_self or 0.0, SMALL * inside[-1 if node.name == _ENGINE else node.index])
        for node in nodes
        if node.kind in _BETWEEN
    )


TAIL_RATIO = 1.3
# With fewer calls the slowest one decides.
ENOUGH = 100


@rule("slow-tail")
def slow_tail(evidence: Evidence) -> Iterator[Finding]:
    """Find calls that take far longer than the median."""
    latency = None if evidence.profile is None else evidence.profile.latency
    if (
        latency is None
        or len(latency.samples) < ENOUGH
        or latency.p99 < TAIL_RATIO * latency.median
    ):
        return
    times = latency.p99 / latency.median
    yield slow_tail.finding(
        title=f"The slowest calls take {units.significant(times, 2)}× the median",
        evidence=f"1 % of calls take {units.time(latency.p99)} or more, half of them at most "
        f"{units.time(latency.median)}.",
        view="latency",
    )
