"""What delays the host within steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, noticeable, rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node, base_name
from torchgauge.records.trace.host_delay import Cause
from torchgauge.records.trace.trace import Synchronisation


class Delay(NamedTuple):
    """All delays of one cause.

    Attributes:
        name: Of those that cost most.
        calls: How often, in all steps.
        time: Seconds of all.
        longest: Seconds of the longest.
        steps: The steps in which they were; 1 is the whole of a trace.
        cost: Seconds of a step, or of the window, in which a device waited for it; without a
            device those of the host. No more than
            a typical step's, which rare delays may exceed.
        share: The share of the window, or of the time of all these steps, that it costs.
        waits: Whether that is a device's time.
        has_workers: Of waits for batches, whether processes of their own make them.
    """

    name: str
    calls: int
    time: float
    longest: float
    steps: int
    cost: float
    share: float
    waits: bool
    has_workers: bool | None

    @property
    def text(self) -> str:
        """The evidence: "16 × cudaMalloc: 3.1 ms, the longest 1.2 ms"."""
        steps = f" in {self.steps:,} steps" if self.steps > 1 else ""
        longest = f", the longest {units.time(self.longest)}" if self.calls > 1 else ""
        return f"{self.calls:,} × {self.name}{steps}: {units.time(self.time)}{longest}"


def delayed_by(evidence: Evidence, cause: Cause) -> Delay | None:
    """Return what delays of this cause cost; None where the record has none."""
    record = evidence.rank or evidence.loop
    delays = [] if record is None else [d for d in record.host_delays if d.cause == cause]
    if not delays:
        return None
    cost = sum(delay.cost / delay.steps for delay in delays)
    duration = delays[0].duration or evidence.time
    longest = max(delays, key=lambda delay: delay.cost)
    return Delay(
        longest.name,
        sum(delay.calls for delay in delays),
        sum(delay.time for delay in delays),
        max(delay.longest for delay in delays),
        max(delay.steps for delay in delays),
        min(cost, evidence.time),
        share(sum(delay.cost for delay in delays), duration),
        any(delay.idle is not None for delay in delays),
        longest.has_workers,
    )


def title(evidence: Evidence, delay: Delay, subject: str) -> str:
    """Return the share of the step or window that a delay costs, in words."""
    scope = "window" if evidence.rank is not None else "step"
    percent = units.percent(delay.share)
    if delay.waits:
        return f"The device waits for {subject} {percent} of the {scope}"
    return f"{subject[0].upper()}{subject[1:]} takes {percent} of the {scope}"


def delay_rule(
    rule_id: str,
    cause: Cause,
    subject: str,
    *,
    remedy: str,
    source: str,
    explains: tuple[str, ...] = ("idle-host",),
) -> Rule:
    """Return the rule that delays of a cause are noticeable; `subject` is the cause in words."""

    def find(evidence: Evidence) -> Iterator[Finding]:
        delay = delayed_by(evidence, cause)
        if delay is not None and delay.share >= NOTICEABLE:
            yield Finding(
                id=rule_id,
                severity=severity(delay.share),
                title=title(evidence, delay, subject),
                evidence=f"{delay.text}.",
                remedy=remedy,
                time=delay.cost,
                worth=delay.cost,
                view="devices" if evidence.device_times else "tree",
            )

    find.__doc__ = f"Find steps that wait for {subject}."
    return Rule(rule_id, find, source=source, explains=explains)


# torch.compile compiles, or Triton tunes, in steps that should only run.
COMPILATION_IN_LOOP = delay_rule(
    "compilation",
    "compilation",
    "compilation",
    remedy="Compile before, by steps with each shape that occurs. TORCH_LOGS=recompiles says "
    "why code is compiled again; for shapes that vary torch.compile(dynamic=True), or padding "
    "to few sizes.",
    source="https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/compile/programming_model.recompilation.html",
    explains=("idle-host", "hottest-operator", "outside-layers"),
)


# Operators of a step: fewer are no loop over parameters.
MIN_CALLS = 20
# Seconds of one operator, on a busy machine too: in longer ones, as of a million elements, memory
# traffic is most of it.
SHORT = 50e-6
# One that multiplies matrices (Muon, Shampoo), or runs the model (L-BFGS), is not overhead alone.
_PRODUCTS = frozenset(("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::conv2d"))
_BATCHED = ("aten::_foreach", "aten::_fused")


@rule(
    "optimizer-loop",
    source="https://docs.pytorch.org/docs/stable/optim.html#default-optimizers",
    explains=("idle-host", "launch-bound", "outside-layers"),
)
def optimizer_loop(evidence: Evidence) -> Iterator[Finding]:
    """Find an optimizer that goes through its parameters one by one: overhead of many calls."""
    operators = _operators(evidence)
    calls = sum(node.calls for node in operators)
    time = _time(evidence, operators)
    if time is None or share(time, evidence.time) < NOTICEABLE:
        return
    longest = max(operators, key=lambda node: node.host_time_self or 0.0)
    waits = "the device waits for it " if evidence.device_times else ""
    yield optimizer_loop.costs(
        (time, evidence.time),
        title=f"The optimizer goes through its parameters one by one: {waits}"
        f"{units.percent(time / evidence.time)} of the {_scope(evidence)}",
        evidence=f"{calls:,} operators ({longest.calls:,} × {longest.name}), none for several "
        f"parameters at once: {units.time(time)}.",
        remedy="torch.optim.AdamW(…, fused=True), as Adam, SGD and Adagrad take it too; else "
        "foreach=True.",
        node=longest,
        path="",
    )


def _scope(evidence: Evidence) -> str:
    return "window" if evidence.rank is not None else "step"


def _operators(evidence: Evidence) -> list[Node]:
    """Return the nodes of the optimizer's own operators, those in zero_grad left out."""
    return [
        node
        for node in evidence.nodes
        if node.kind == "operator"
        and node.row.phase == "optimizer"
        and base_name(node.name).startswith("aten::")
    ]


def _time(evidence: Evidence, operators: list[Node]) -> float | None:
    """Return what the loop costs, None where there is no loop."""
    calls = sum(node.calls for node in operators)
    names = {base_name(node.name) for node in operators}
    if calls < MIN_CALLS or names & _PRODUCTS or any(n.startswith(_BATCHED) for n in names):
        return None
    if evidence.rank is not None:
        delay = delayed_by(evidence, "optimizer loop")
        if delay is None or delay.waits or not _short(operators, calls):
            return None if delay is None or not delay.waits else delay.cost
        return delay.cost
    if not _short(operators, calls) or any(node.row.device for node in evidence.nodes):
        return None
    steps = [node for node in evidence.nodes if node.name.startswith("Optimizer.step#")]
    return sum(node.host_time or 0.0 for node in steps)


def _short(operators: list[Node], calls: int) -> bool:
    return sum(node.host_time_self or 0.0 for node in operators) < SHORT * calls


# Python's garbage collector runs in the loop, and stops all threads meanwhile.
GARBAGE_COLLECTION = delay_rule(
    "garbage-collection",
    "garbage collection",
    "garbage collection",
    remedy="Call no gc.collect() in the step. gc.freeze() after set-up leaves out what lives "
    "on; or gc.disable(), and gc.collect() every some hundred steps.",
    source="https://docs.python.org/3/library/gc.html#gc.freeze",
)


_VALUES = (
    "Leave values on the device: no .item(), float(), print or if on them in the step; log every "
    "some hundred steps."
)
_SIZES = (
    "Sizes that depend on values have to be waited for: torch.where, multiplication with the "
    "mask, or torch.nonzero_static in place of nonzero and boolean indices."
)
_COPIES = (
    "Copy with non_blocking=True, from and to pinned memory; leave out of the step what it does "
    "not read."
)
_REMEDIES = {
    **dict.fromkeys(("aten::item", "aten::is_nonzero", "aten::_local_scalar_dense"), _VALUES),
    **dict.fromkeys(("aten::nonzero", "aten::masked_select", "aten::index"), _SIZES),
    **dict.fromkeys(("aten::_unique2", "aten::unique_consecutive", "aten::unique_dim"), _SIZES),
    **dict.fromkeys(("aten::to", "aten::_to_copy", "aten::copy_"), _COPIES),
}


@rule(
    "synchronisation",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
    "#avoid-unnecessary-cpu-gpu-synchronization",
    explains=("idle-host",),
)
def synchronisation(evidence: Evidence) -> Iterator[Finding]:
    """Find calls in which the host waits for the device, which then waits for the host.

    A wait that costs the device nothing, as at the end of a recording or where the host is far
    ahead, is no finding.
    """
    waits = () if evidence.rank is None else evidence.rank.synchronisations
    if not (idle := noticeable(evidence, (wait.idle for wait in waits))):
        return
    costliest = max(waits, key=lambda wait: wait.idle)
    yield synchronisation.costs(
        (idle, evidence.time),
        title="The host waits for the device, which then waits for the host: "
        f"{units.percent(idle / evidence.time)} of the window",
        evidence=f"{costliest.count:,} × {_call(costliest)}: the host waits "
        f"{units.time(costliest.time)}, and the device afterwards {units.time(costliest.idle)} for "
        f"launches.{_all_waits(waits, idle)}",
        remedy=_remedy(costliest) + _stack_hint(evidence, costliest),
        path=costliest.layer,
        view="tables",
    )


def _all_waits(waits: tuple[Synchronisation, ...], idle: float) -> str:
    """Return what all of them cost the device, where there are several kinds."""
    costly = sum(wait.idle > 0 for wait in waits)
    return f" After all waits: {units.time(idle)}." if costly > 1 else ""


def _stack_hint(evidence: Evidence, wait: Synchronisation) -> str:
    """Return how to see who called it, where the file has stacks that were not read."""
    has_stacks = evidence.rank is not None and evidence.rank.contents.python > 0
    return (
        " With --python the calling function is named." if has_stacks and not wait.function else ""
    )


def _call(wait: Synchronisation) -> str:
    """Return the call with what is around it: "aten::item in head, train.py(12): step"."""
    location = f" in {wait.layer}" if wait.layer else ""
    function = f", {wait.function}" if wait.function else ""
    around = f"{wait.operator} ({wait.call})" if wait.operator else wait.call
    return f"{around}{location}{function}"


def _remedy(wait: Synchronisation) -> str:
    if not wait.operator:
        return "Do not synchronise in the step: torch.cuda.synchronize() is for measuring."
    other = "Leave values on the device; torch.cuda.set_sync_debug_mode(1) warns of each wait."
    return _REMEDIES.get(base_name(wait.operator), other)


# Memory is asked from the driver, or given back to it, while the program runs.
DEVICE_ALLOCATION = delay_rule(
    "device-allocation",
    "allocation",
    "allocation by the driver",
    remedy="Let the caching allocator keep it: no torch.cuda.empty_cache() in the step, the "
    "largest batch first, PYTORCH_ALLOC_CONF=expandable_segments:True. cudaFree in a step is "
    "a retry near the limit: use less memory. Make pinned buffers once.",
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
)


# Code of kernels is loaded at their first launch, while the device has nothing to do.
FIRST_LAUNCHES = delay_rule(
    "first-launches",
    "first launch",
    "first launches of kernels",
    remedy="They occur once: leave the first steps out of a measurement, and run the model "
    "before it serves. CUDA_MODULE_LOADING=EAGER loads all code at the start.",
    source="https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/lazy-loading.html",
)
