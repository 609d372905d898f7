"""What the time of a typical step is in, by kind of time and by what would make it shorter."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Literal

from torchgauge.analyze.findings.operator_rules import SMALL
from torchgauge.analyze.findings.record_evidence import PRODUCTS
from torchgauge.analyze.timeline.device_time import COMMUNICATION
from torchgauge.analyze.timeline.tree import ENGINE, OPTIMIZING
from torchgauge.analyze.work.categories import category
from torchgauge.records.timeline.loop import StepKind
from torchgauge.records.timeline.node import Node, base_name
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.host_delay import LOADING

# Products of matrices; other operators that are long enough to be bound by memory traffic; short
# operators and what is between them; and code that is in no operator.
Work = Literal["products", "memory traffic", "small operators", "python"]

_KINDS: dict[str, StepKind] = {
    "forward": "forward",
    "backward": "backward",
    "recompute": "backward",
    "optimizer": "optimizer",
    "zero_grad": "optimizer",
}
_OTHER_BUCKETS = (LOADING, COMMUNICATION)


@dataclasses.dataclass(frozen=True)
class TreeSplit:
    """Seconds of a typical step by kind and work; `python` is by kind and the node it is in."""

    seconds: dict[tuple[StepKind, Work], float]
    python: dict[StepKind, list[tuple[Node, float]]]

    def share(self, kind: StepKind, *works: Work) -> float | None:
        """Return the part of a kind's time that is in such work; None where it was not recorded."""
        total = sum(time for (time_kind, _), time in self.seconds.items() if time_kind == kind)
        if not total:
            return None
        return sum(self.seconds.get((kind, work), 0.0) for work in works) / total

    def most_python(self, kind: StepKind) -> tuple[Node, float] | None:
        """Return the node with most of a kind's Python, and which part of the kind's time it is."""
        total = sum(time for (time_kind, _), time in self.seconds.items() if time_kind == kind)
        nodes = self.python.get(kind)
        if not nodes or not total:
            return None
        node, time = max(nodes, key=lambda entry: entry[1])
        return node, time / total


def tree_split(tree: Tree) -> TreeSplit:
    """Split the host's time of a loop's tree; waiting and loading are in no kind."""
    seconds: Counter[tuple[StepKind, Work]] = Counter()
    python: dict[StepKind, list[tuple[Node, float]]] = {}
    for node in tree.nodes:
        own, kind = node.host_time_self or 0.0, _kind(node)
        if kind is None or own <= 0:
            continue
        work = _work(node, own)
        if work == "python":
            called = sum(child.calls for child in node.children if child.kind == "operator")
            between = min(own, SMALL * (called + node.calls))
            seconds[kind, "small operators"] += between  # type: ignore[assignment]
            own -= between
            python.setdefault(kind, []).append((node, own))
        seconds[kind, work] += own  # type: ignore[assignment]
    return TreeSplit(dict(seconds), python)


def _kind(node: Node) -> StepKind | None:
    """Return the kind that a node's own time is of; None of loading and communication."""
    if node.kind in ("layer", "model"):
        return "forward"
    if node.kind == "operator" and node.row.phase in _KINDS:
        return _KINDS[node.row.phase]
    bucket: Node | None = node
    while bucket is not None and bucket.kind not in ("bucket", "layer", "model"):
        bucket = bucket.parent
    if bucket is None or bucket.name in _OTHER_BUCKETS or node.kind == "kernel":
        return None
    if bucket.kind != "bucket":
        return "forward"
    return {ENGINE: "backward", OPTIMIZING: "optimizer"}.get(bucket.name, "outside")  # type: ignore[return-value]


def _work(node: Node, own: float) -> Work:
    if node.name == ENGINE or node.name.startswith(("autograd::engine", "torch::autograd")):
        return "small operators"
    if not node.name.startswith(("aten::", "mkldnn::", "c10d::", "gloo:", "nccl:")):
        return "python"
    if own < SMALL * node.calls:
        return "small operators"
    return "products" if category(base_name(node.name)) in PRODUCTS else "memory traffic"
