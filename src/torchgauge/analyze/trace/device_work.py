"""Device work as plain columns: when it ran, where, what kind it was, and when it was launched."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import PurePath

import msgspec
import numpy as np

from torchgauge.analyze.communication.communication_kernels import collective_of
from torchgauge.analyze.timeline.attribution import HOST, Spans, attribute
from torchgauge.analyze.timeline.launches import Launched
from torchgauge.analyze.timeline.module_calls import Modules
from torchgauge.analyze.timeline.residual import LayerTimes
from torchgauge.analyze.timeline.steps import marked
from torchgauge.analyze.timeline.tree import NodeDraft, NodeTable, node_table
from torchgauge.analyze.timeline.typical_step import typical
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.analyze.work.event_costs import EventCosts, by_node
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.events import ABSENT, Events, Integers

COMPUTE, COMMUNICATION, COPY = range(3)


@dataclasses.dataclass(frozen=True, eq=False)
class Activities:
    """Device work as columns, one entry each; times in ns.

    `kind` is COMPUTE, COMMUNICATION or COPY. `launch` is when the host's call began that launched
    it, ABSENT where the trace has none. `due` is when it should have begun on an idle device: after
    the launch and what a launch takes; ABSENT where the trace does not say when that was.
    """

    begin: Integers
    end: Integers
    kind: Integers
    launch: Integers
    due: Integers
    device: Integers
    stream: Integers

    def take(self, entries: np.ndarray) -> Activities:
        """Return these entries (indices or a mask)."""
        columns = (getattr(self, field.name) for field in dataclasses.fields(self))
        return Activities(*(column[entries] for column in columns))

    def by(self, column: Integers) -> Iterator[tuple[int, Activities]]:
        """Yield each value of a column, in order, with the activities that have it, in theirs."""
        order = np.argsort(column, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(column[order])) + 1, len(order))
        begin = 0
        for end in ends.tolist() if len(order) else ():
            yield int(column[order[begin]]), self.take(order[begin:end])
            begin = end

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def window(self) -> tuple[int, int]:
        """From the first begin to the last end."""
        return int(self.begin.min()), int(self.end.max())


def device_activities(events: Events, work: Launched, facts: Facts) -> Activities:
    """Return all device work, in the order of `work`."""
    begin = events.start[work.row]
    kind = np.where(facts.is_kernel, COMPUTE, COPY).astype(np.int8)
    launch = np.where(work.launched, events.start[work.call], ABSENT)
    activities = Activities(
        begin=begin,
        end=begin + np.maximum(events.duration[work.row], 0),
        kind=np.where(facts.communicates, COMMUNICATION, kind),
        launch=launch,
        due=launch,
        device=facts.device,
        stream=facts.stream,
    )
    # A call that launches a kernel never waits for it: while it lasts, the host is at it.
    returned = launch + np.where(facts.is_kernel, events.duration[work.call], 0)
    due = np.maximum(launch + _usual_launch(activities), returned)
    due[~work.launched | (events.metadata.recorder in _QUEUEING)] = ABSENT
    return dataclasses.replace(activities, due=due)


# Recorders whose launches are the operators': a thread of their own hands the work over later.
_QUEUEING = ("torch_npu",)
# From a launch to its work on an idle device, in ns: the least and the most that is usual. Medians
# of recordings are 6 to 12 µs; what takes longer than the second was not held up by the launch.
_QUICK_LAUNCH, _SLOW_LAUNCH = 10_000, 100_000


def _usual_launch(activities: Activities) -> int:
    """Return how long a launch onto an idle device usually takes: at most twice the median.

    In ns. The first work of a device may have waited for what ran before the recording.
    """
    delays = [np.array([_QUICK_LAUNCH // 2])]
    for _, on_device in activities.by(activities.device):
        ordered = on_device.take(np.argsort(on_device.begin, kind="stable"))
        idle = ordered.launch[1:] >= np.maximum.accumulate(ordered.end)[:-1]
        delays.append((ordered.begin - ordered.launch)[1:][idle])
    median = np.quantile(np.concatenate(delays), 0.5, method="lower")
    return int(np.clip(2 * median, _QUICK_LAUNCH, _SLOW_LAUNCH))


STEP = re.compile(r"(?:ProfilerStep#|tg@)(\d{1,18})")
_MARKING = {
    "JAX": "Mark parts of the host's code with jax.profiler.TraceAnnotation.",
    "Proton": "Mark parts with triton.profiler.scope.",
    "ExecuTorch": "`torchgauge profile FILE.pte --trust --etrecord FILE` has the layers.",
    "rocprof": "Mark parts with ROCTX, and record them: rocprofv3 --marker-trace.",
}


def attributed(events: Events) -> tuple[Modules, Spans]:
    """Return the layers that the trace names, and the host's spans with their layer and phase."""
    modules = Modules(events, _name(events))
    spans = attribute(events, modules.tree, number=modules.number, calls=modules.calls)
    if not len(modules):
        spans = dataclasses.replace(spans, layer=np.zeros_like(spans.layer))
    return modules, spans


def tree_of(events: Events, modules: Modules, spans: Spans, costs: EventCosts) -> Tree:
    """Return the tree of all that was recorded, from the results of `attributed`.

    Its figures are sums over the whole recording.

    Nothing is left out: the sum of `device` is that of the durations of all device work, the sum of
    `host` is the time of the marked steps with what ran outside of them; threads that run at once
    count each, but one that waits for its backward pass does not. `Tree.steps` counts the marked
    steps (1 where none is): a figure divided by it is the mean of a step.

    FLOPs and bytes are counted from the recorded sizes; `unknown` is the calls whose FLOPs these do
    not tell, `calls_without_bytes` those whose bytes they do not, since a trace has no outputs.

    Layers are those of a trace that we wrote, with their paths, or of our ranges, else of torch's
    `nn.Module:` calls, which name class and instance and no path. Without any, operators and
    kernels are the model's own, and a warning says so.
    """
    table = node_table(events, spans, modules.tree, STEP, as_one=True)
    _count(table, costs)
    tree = typical(table, LayerTimes([], []), step="loop", passes=())
    return msgspec.structs.replace(
        tree,
        steps=max(marked_steps(events), 1),
        warnings=(*events.warnings, *tree.warnings, *_layer_warnings(events, modules)),
    )


def marked_steps(events: Events) -> int:
    """Return how many steps the host marks; marks of ours are operators to torch."""
    return int(_step_marks(events).sum())


def launched_in_steps(events: Events, activities: Activities) -> Integers | None:
    """Return the number of the marked step that launched each activity, ABSENT outside of them.

    What has no launch counts when it begins. None where the host marks no step.
    """
    marks = _step_marks(events)
    if not marks.any():
        return None
    steps = marked(marks, events.start, events.start + events.duration)
    texts = (STEP.fullmatch(str(events.name[row])) for row in steps.span.tolist())
    numbers = [int(text[1]) for text in texts if text]
    time = np.where(activities.launch == ABSENT, activities.begin, activities.launch)
    return np.array([*numbers, ABSENT], np.int64)[steps.containing(time)]


def _step_marks(events: Events) -> np.ndarray:
    on_host = events.category.where(lambda name: name in HOST)
    return on_host & events.name.where(lambda name: bool(STEP.fullmatch(name)))


def _count(table: NodeTable, costs: EventCosts) -> None:
    """Note on the nodes what their spans cost."""
    works = by_node(costs, table.of_span, len(table.nodes))
    # Without sizes, views are all that is known to be free.
    sizes_recorded = bool((costs.flops > 0).any())
    for node, work in zip(table.nodes, works, strict=True):
        if work is not None:
            node.flops, node.unknown = work.flops if sizes_recorded else None, work.unknown
            node.bytes = work.bytes if sizes_recorded else None
            node.unknown_bytes = work.unknown_bytes
    if sizes_recorded and table.device is not None:
        _count_others(table, table.device, costs)


# A smaller share of the time needs no words.
_NEGLIGIBLE = 0.01


def _count_others(table: NodeTable, time: np.ndarray, costs: EventCosts) -> None:
    """Note the kernels that no operator launched, as those of a CUDA graph, as of unknown work."""
    answering = set(table.of_span[costs.counts].tolist())
    kernels = []
    for number, node in enumerate(table.nodes):
        if node.parent in answering:
            answering.add(number)
        elif node.kernel is not None and node.kernel.work == "kernel" and not _sends(node):
            kernels.append(number)
    if time[kernels].sum() > _NEGLIGIBLE * time.sum():
        for number in kernels:
            table.nodes[number].unknown = int(table.calls[number].sum())


def _sends(node: NodeDraft) -> bool:
    collective = None if node.kernel is None else node.kernel.collective
    return collective is not None or collective_of(node.name) is not None


# torch writes to such a file, and packs that.
_TEMPORARY = re.compile(r"tmp[a-z0-9_]{8}\.json")


def _name(events: Events) -> str:
    name = PurePath(events.metadata.trace_name or "").name
    return "recording" if not name or _TEMPORARY.fullmatch(name) else name


def _layer_warnings(events: Events, modules: Modules) -> Iterator[MeasurementWarning]:
    recorder = events.metadata.recorder
    if recorder == "torch.compile" or not len(events):
        return
    if not len(modules):
        yield MeasurementWarning(
            id="no-layers",
            message="The trace has no layers: the tree has operators and kernels only.",
            cause=f"{recorder} records no modules of a model."
            if recorder in _MARKING
            else "It was recorded without stacks and without torchgauge.",
            remedy=_MARKING.get(
                recorder or "",
                "Record with torch.profiler.profile(with_stack=True), or with torchgauge.",
            ),
        )
    elif not modules.have_paths:
        yield MeasurementWarning(
            id="no-layer-paths",
            message="The trace has no module paths: layers have the names used in the trace.",
            cause="Its ranges number the modules, and the table of names is not in the trace."
            if modules.are_ours
            else "torch names a module's class and counts its instances.",
            remedy="Profile the model with torchgauge to see qualified names.",
        )
