"""The tree of a trace that was recorded elsewhere: model → layer → operator → kernel."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import PurePath

import msgspec
import numpy as np

from torchgauge.analyze.timeline.attribution import HOST, Spans, attribute
from torchgauge.analyze.timeline.layer_times import LayerTimes
from torchgauge.analyze.timeline.module_calls import Modules
from torchgauge.analyze.timeline.steps import marked
from torchgauge.analyze.timeline.tree import NodeTable, node_table
from torchgauge.analyze.timeline.typical_step import typical
from torchgauge.analyze.trace.device_work import Activities
from torchgauge.analyze.work.event_costs import EventCosts, by_node, event_costs
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.events import ABSENT, Events, Integers

STEP = re.compile(r"(?:ProfilerStep#|tg@)(\d{1,18})")
_MARKING = {
    "JAX": "Mark parts of the host's code with jax.profiler.TraceAnnotation.",
    "Proton": "Mark parts with triton.profiler.scope.",
    "ExecuTorch": "`torchgauge profile FILE.pte --trust --etrecord FILE` has the layers.",
    "rocprof": "Mark parts with ROCTX, and record them: rocprofv3 --marker-trace.",
}


def recorded_tree(events: Events) -> Tree:
    """Return the tree of all that was recorded, its figures summed over the whole recording.

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
    modules, spans = attributed(events)
    return tree_of(events, modules, spans, event_costs(events, spans))


def attributed(events: Events) -> tuple[Modules, Spans]:
    """Return the layers that the trace names, and the host's spans with their layer and phase."""
    modules = Modules(events, _name(events))
    spans = attribute(events, modules.tree, number=modules.number, calls=modules.calls)
    if not len(modules):
        spans = dataclasses.replace(spans, layer=np.zeros_like(spans.layer))
    return modules, spans


def tree_of(events: Events, modules: Modules, spans: Spans, costs: EventCosts) -> Tree:
    """Return the tree as `recorded_tree` does, from the results of `attributed`."""
    table = node_table(events, spans, modules.tree, STEP, as_one=True)
    _count(table, costs)
    tree = typical(table, LayerTimes([], []), step="loop", passes=())
    return msgspec.structs.replace(
        tree,
        steps=max(marked_steps(events), 1),
        warnings=(
            *events.warnings,
            *tree.warnings,
            *_layer_warnings(modules, events.metadata.recorder),
        ),
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


def _name(events: Events) -> str:
    name = events.metadata.trace_name
    return PurePath(name).name if name else "recording"


def _layer_warnings(modules: Modules, recorder: str | None) -> Iterator[MeasurementWarning]:
    if recorder == "torch.compile":
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
