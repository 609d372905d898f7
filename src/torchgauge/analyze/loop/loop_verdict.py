"""The verdict of one loop: the fault that costs most, else what takes most of a step.

A fault is named where the lower end of its interval is above SMALLEST: waiting for data, garbage
collection, Python outside of the model, Python inside one layer, backward function or optimizer.
Without one, that the thread often had no core. Waiting for other processes comes before a fault
that takes less, where it is much. Else the largest of the work that a step must do, where it is
more than half. Shares are of the time in which the thread could run, not of others.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from torchgauge import units
from torchgauge.analyze.findings.operator_rules import SMALL
from torchgauge.analyze.findings.record_evidence import PRODUCTS
from torchgauge.analyze.loop.step_shares import (
    KIND_NAMES,
    Shares,
    delay_evidence,
    further_evidence,
    mean_duration,
    scaled,
    share_of,
    steps_by_kind,
    with_loader_waits,
)
from torchgauge.analyze.timeline.device_time import COMMUNICATION
from torchgauge.analyze.timeline.tree import ENGINE, OPTIMIZING
from torchgauge.analyze.work.categories import category
from torchgauge.records.record import Interval
from torchgauge.records.timeline.loop import (
    STEP_KINDS,
    Loop,
    LoopBound,
    LoopVerdict,
    StepKind,
    StepTimes,
)
from torchgauge.records.timeline.node import Node, base_name
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.host_delay import LOADING
from torchgauge.visible import one_line

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
        work = _work_of_node(node, own)
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


def _work_of_node(node: Node, own: float) -> Work:
    if node.name == ENGINE or node.name.startswith(("autograd::engine", "torch::autograd")):
        return "small operators"
    if not node.name.startswith(("aten::", "mkldnn::", "c10d::", "gloo:", "nccl:")):
        return "python"
    if own < SMALL * node.calls:
        return "small operators"
    return "products" if category(base_name(node.name)) in PRODUCTS else "memory traffic"


# The smallest share of a step that is worth naming as a fault.
SMALLEST = 0.05
# Of Python inside layers, backward functions and optimizers: hooks and dispatch are always there.
SMALLEST_PYTHON = 0.1
# Of the time without a core, on machines that are shared.
SMALLEST_WITHOUT_CORE = 0.25
NO_CORE = "no core"
# What takes more of a step than that bounds it.
DOMINATING = 0.5
# Waiting for other processes is named before the work where it is more than that.
SMALLEST_WAITING = 0.25
# Steps without a profiler below which nothing is said.
MIN_STEPS = 8
# `item()` and its like explain what is in Python where so much of it is inside of these calls.
SCALAR_SHARE = 0.2
_WORK: dict[Work, LoopBound] = {
    "products": "compute",
    "memory traffic": "memory traffic",
    "small operators": "host",
    "python": "host",
}
_COMPUTING: tuple[StepKind, ...] = ("forward", "backward", "optimizer", "outside")


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """Something that may bound the steps; `options` are those of `torchgauge run` to look closer.

    `predicate` is how its title goes on after "31 % of a step", `kind` the part of a step that it
    is or is in.
    """

    bound: LoopBound
    cause: str
    share: float
    interval: Interval | None
    predicate: str
    layer: str = ""
    evidence: tuple[str, ...] = ()
    options: str = "--lines"
    kind: StepKind | None = None

    @property
    def low(self) -> float:
        return -1.0 if self.interval is None else self.interval.low


def loop_verdict(loop: Loop) -> LoopVerdict | None:
    """Return what bounds the loop's steps; None where no step ended."""
    if not loop.count:
        return None
    times = loop.step_times
    count = 0 if times is None else len(times.steps)
    if times is None or count < MIN_STEPS:
        return unclear(count, f"only {count} of {loop.count:,} steps ran without a profiler")
    steps = times.running
    shares = with_loader_waits(
        {kind: share_of(times.seconds(kind), steps) for kind in STEP_KINDS}, loop
    )
    if max(shares.values(), key=lambda share: share[0])[1] is None:
        return unclear(count, f"{count} steps that resemble their neighbours are too few")
    split = None if loop.tree is None else tree_split(loop.tree)
    evidence = (steps_by_kind(times, shares), *further_evidence(loop, times))
    work = sorted(_work(shares, split), key=lambda entry: -entry.share)
    faults = _faults(loop, shares, split)
    worst = max(faults, key=lambda fault: fault.low, default=None) or _preempted(times)
    if worst is not None:
        waiting = next(entry for entry in work if entry.bound == "communication")
        waits = waiting.low > SMALLEST_WAITING and waiting.share > worst.share
        named = waiting if waits else worst
        return _verdict(loop, named, evidence, work, shares, fault=not waits)
    largest = work[0]
    limit = SMALLEST_WAITING if largest.bound == "communication" else DOMINATING
    if largest.low > limit:
        return _verdict(loop, largest, evidence, work, shares)
    listed = ", ".join(f"{entry.cause} {units.percent(entry.share)}" for entry in work[:3])
    return LoopVerdict(
        bound="nothing stands out",
        title=f"Nothing stands out: {listed} of a step",
        time=mean_duration(times),
        steps=count,
        evidence=evidence,
        command=command(loop, largest.options),
    )


def command(loop: Loop, options: str) -> str:
    """Return what to paste into a shell, of a job for all ranks; empty if the program is unknown.

    torchrun's processes of a node are taken for all.
    """
    world = 1 if loop.rank is None else loop.rank.world
    start = f"torchrun --nproc-per-node {world} -m " * (world > 1)
    return f"{start}torchgauge run {options} {one_line(loop.program)}" if loop.program else ""


def _verdict(
    loop: Loop, named: _Candidate, evidence: tuple[str, ...], work: list[_Candidate],
    shares: Shares, *, fault: bool = False,
) -> LoopVerdict:  # fmt: skip
    """Return a verdict; what takes less than another kind of work or part bounds nothing."""
    times, interval = loop.step_times, named.interval
    reach = "" if interval is None else f" ({percents(interval)})"
    rivals = [entry.share for entry in work if entry.bound != named.bound]
    if fault or named.kind:
        rivals += [part - named.share * (kind == named.kind) for kind, (part, _) in shares.items()]
    article = "the " * (named.bound in ("loader", "host"))
    head = f"Bound by {article}{named.bound}: " * (named.share >= max(rivals))
    return LoopVerdict(
        bound=named.bound,
        fault=fault,
        title=f"{head}{units.percent(named.share)}{reach} of a step {named.predicate}",
        cause=named.cause,
        layer=named.layer,
        share=named.share,
        interval=interval,
        time=None if times is None else mean_duration(times),
        steps=0 if times is None else len(times.steps),
        evidence=(*named.evidence, *evidence),
        command=command(loop, named.options),
    )


def percents(interval: Interval) -> str:
    """Return an interval of a share: "29 … 33 %"."""
    return f"{100 * interval.low:.3g} … {units.percent(interval.high)}"


def unclear(count: int, reason: str) -> LoopVerdict:
    """Return the verdict of `count` steps of which nothing can be said, for a reason."""
    return LoopVerdict(
        bound="unclear",
        title=f"Unclear: {reason}",
        steps=count,
        evidence=(f"Let the loop run for {MIN_STEPS + 30} steps or more.",),
    )


def _faults(loop: Loop, shares: Shares, split: TreeSplit | None) -> Iterator[_Candidate]:
    """Yield what is worth naming as something that need not be."""
    named = [
        _Candidate(
            "loader", "data loading", *shares["loading"], "waits for the loader",
            evidence=delay_evidence(loop, "data loading"), kind="loading",
        ),
        _Candidate(
            "host", "garbage collection", *shares["collecting"],
            "is Python's garbage collection", evidence=delay_evidence(loop, "garbage collection"),
            kind="collecting",
        ),
        _outside(loop, shares, split),
    ]  # fmt: skip
    idle = _device_idle(loop)
    yield from (fault for fault in named if min(fault.low, idle) > SMALLEST)
    for kind in ("forward", "backward", "optimizer"):
        fault = _python(loop, kind, shares, split)
        if fault is not None and fault.low > SMALLEST_PYTHON:
            yield fault


def _preempted(times: StepTimes) -> _Candidate | None:
    """Return the time without a core, where it is much; it hides nothing, being in no other."""
    if times.preempted is None:
        return None
    share, interval = share_of(times.preempted, times.durations)
    predicate = "the loop's thread had no core: other threads or programs ran"
    delayed = _Candidate("host", NO_CORE, share, interval, predicate)
    return delayed if delayed.low > SMALLEST_WITHOUT_CORE else None


def _outside(loop: Loop, shares: Shares, split: TreeSplit | None) -> _Candidate:
    """Return the time outside of the model that no long operator explains."""
    part = None if split is None else split.share("outside", "small operators", "python")
    share, interval = scaled(shares["outside"], 1.0 if part is None else part)
    recorded = 0.0
    if split is not None:
        recorded = sum(t for (kind, _), t in split.seconds.items() if kind == "outside")
    scalars = _scalars(loop, recorded)
    cause = ".item()" if scalars else "host code"
    predicate = "is in the loop's own code" + (", which reads tensors' values" if scalars else "")
    return _Candidate(
        "host", cause, share, interval, f"{predicate}, outside the model", evidence=scalars,
        kind="outside",
    )  # fmt: skip


def _python(
    loop: Loop, kind: StepKind, shares: Shares, split: TreeSplit | None
) -> _Candidate | None:
    """Return the layer, backward function or optimizer with most time in no operator."""
    largest = None if split is None else split.most_python(kind)
    if largest is None or loop.tree is None or loop.tree.devices:
        return None
    node, part = largest
    share, interval = scaled(shares[kind], part)
    layer = one_line(node.path)
    place = one_line(node.name) if kind != "forward" else f"{layer} ({one_line(node.row.type)})"
    scalars = _scalars(loop, (node.host_time_self or 0.0))
    options = "--lines"
    if kind == "forward" and node.row.type.isidentifier():
        options += f" --function {node.row.type}.forward"
    return _Candidate(
        "host",
        ".item()" if scalars else kind,
        share,
        interval,
        f"is {place}'s own code in the {KIND_NAMES[kind]}, in no operator",
        layer=layer,
        evidence=scalars,
        options=options,
        kind=kind,
    )


def _scalars(loop: Loop, recorded: float) -> tuple[str, ...]:
    """Return the lines that read tensors' values, where they are much of a recorded time."""
    if sum(read.time for read in loop.scalars) < SCALAR_SHARE * recorded or not recorded:
        return ()
    return tuple(
        f"{read.call}() {read.calls:,.0f} times a step at {one_line(read.file)}:{read.line}: "
        f"{units.time(read.time, 3)}."
        for read in loop.scalars[:2]
    )


def _work(shares: Shares, split: TreeSplit | None) -> list[_Candidate]:
    """Return what a step's time is in where nothing is wrong: each is part of a whole."""
    entries = [
        _Candidate(
            "loader", "loading", *shares["loading"], "waits for the loader", kind="loading"
        ),
        _Candidate(
            "communication", "communication", *shares["waiting"], "waits for other processes",
            options="--output-dir ranks", kind="waiting",
        ),
    ]  # fmt: skip
    totals: dict[LoopBound, tuple[float, float, float]] = {}
    for kind in _COMPUTING:
        for work, bound in _WORK.items():
            part = None if split is None else split.share(kind, work)
            if part is None:
                part = float(work == ("python" if kind == "outside" else "products"))
            share, interval = scaled(shares[kind], part)
            low, high = (share, share) if interval is None else (interval.low, interval.high)
            before = totals.get(bound, (0.0, 0.0, 0.0))
            totals[bound] = (before[0] + share, before[1] + low, before[2] + high)
    phase = max(_COMPUTING, key=lambda kind: shares[kind][0])
    phase_text = f", most of it {KIND_NAMES[phase]} ({units.percent(shares[phase][0])})"
    predicates = {
        "compute": f"is in products of matrices{phase_text}",
        "memory traffic": f"is in operators that move data{phase_text}",
        "host": f"is in short operators and the code between them{phase_text}",
    }
    for bound, (share, low, high) in totals.items():
        interval = Interval(low=max(low, 0.0), high=high, scope="process")
        entries.append(
            _Candidate(
                bound, bound, share, interval, predicates[bound],
                options="--output-dir loop --format html",
            )
        )  # fmt: skip
    return entries


def _device_idle(loop: Loop) -> float:
    """Return the share of a step in which a device waits: what the host does costs no more.

    1 where the host computes itself.
    """
    devices = () if loop.tree is None else loop.tree.devices
    return max((use.idle / ((use.busy + use.idle) or 1.0) for use in devices), default=1.0)
