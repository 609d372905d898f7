"""The tree of one typical step, from several recorded and several stamped ones."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Literal, cast

import numpy as np

from torchgauge.analyze.timeline import attribution
from torchgauge.analyze.timeline.residual import LayerTimes, residual_warnings
from torchgauge.analyze.timeline.tree import ENGINE, OPTIMIZING, OUTSIDE_MODEL, NodeTable
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.node import Kind, TreeRow
from torchgauge.records.timeline.tree import Pass, Tree

_GROUPS = (
    (("backward",), (attribution.BACKWARD, attribution.RECOMPUTE), ENGINE),
    (("zero_grad", "optimizer"), (attribution.ZERO_GRAD, attribution.OPTIMIZER), OPTIMIZING),
)


@dataclasses.dataclass(frozen=True)
class PhaseTimes:
    """The length of each phase in ns, by step: of `bare` steps and of those that were `recorded`.

    A phase is named as in a training step: "zero_grad", "forward", "loss", "backward", "optimizer".
    """

    bare: Sequence[dict[str, int]]
    recorded: Sequence[dict[str, int]]

    def scaled(self, host: np.ndarray, table: NodeTable) -> np.ndarray:
        """Return the nodes' times `host` with those of both phases as long as in the bare steps.

        Recording can make a phase twice as long: what the profiler allocates between the tensors
        keeps the allocator from using memory again, and fresh memory costs a page fault each 4 kB.
        These meet another operator in each step, so that the operators' medians are also too short
        together: their sum is brought to the median of the phase.
        """
        scaled = host.copy()
        for names, phases, bucket in _GROUPS:
            bare, recorded = _median(self.bare, names), _median(self.recorded, names)
            group = [
                number
                for number, node in enumerate(table.nodes)
                if node.phase in phases or (node.kind == "bucket" and node.name == bucket)
            ]
            group_time = int(host[group].sum())
            if bare and recorded and group_time:
                recorded_time = float(np.median(table.host[group].sum(axis=0)))
                ratio = bare / recorded * recorded_time / group_time
                scaled[group] = np.rint(host[group] * ratio).astype(np.int64)
        return scaled


def _median(steps: Sequence[dict[str, int]], names: tuple[str, ...]) -> float:
    return statistics.median([sum(step.get(name, 0) for name in names) for step in steps] or [0])


_COMPARED = ("model", "layer", "operator")
_OF_OPTIMIZER = (attribution.OPTIMIZER, attribution.ZERO_GRAD)


def typical(
    table: NodeTable,
    stamped: LayerTimes,
    *,
    step: Literal["inference", "training", "loop"],
    passes: tuple[Pass, ...],
    phases: PhaseTimes | None = None,
) -> Tree:
    """Return the tree of a step: each node's own time is its median over the steps.

    What the recording says of a layer's forward pass is scaled to the layer's stamped time, and
    what it says of backward pass and optimizer to the length of those `phases` in bare steps: the
    profiler is slower where operators are many, so that its own times say how a time is shared, not
    how long it is. Device times are as recorded: the profiler does not slow a device down. A node's
    total is the sum over the nodes below by construction.
    """
    host = np.median(table.host, axis=1).astype(np.int64)
    if phases is not None:
        host = phases.scaled(host, table)
    calls = [statistics.mode(row) if len(row) else 0 for row in table.calls.tolist()]
    for layer, layer_nodes in _forward_nodes(table).items():
        times = [own[layer] for own in stamped.steps if layer in own]
        if times:
            shortest = min(*times, *table.host[layer_nodes].sum(axis=0))
            table.nodes[layer].shortest = max(0, int(shortest))
            host[layer_nodes] = shared(max(0, int(statistics.median(times))), host[layer_nodes])
    bare = passes[0].bare if passes else None
    if phases is not None and bare is not None:
        _shorten_outside(host, table, round(bare * 1e9))
    order = _outer_first(table)
    row_by_node = {number: row for row, number in enumerate(order)}
    device = None if table.device is None else np.median(table.device, axis=1).astype(np.int64)
    rows = tuple(
        _row(
            table,
            number,
            row_by_node,
            host=int(host[number]),
            calls=calls[number],
            device=None if device is None else int(device[number]),
        )
        for number in order
    )
    varies = step != "loop" and _varies(table)
    residual = None if bare is None else int(host.sum()) * 1e-9 - bare
    return Tree(
        rows=rows,
        step=step,
        passes=passes,
        residual=residual,
        varies=varies,
        devices=table.uses,
        warnings=(
            *table.warnings,
            *residual_warnings(residual, bare),
            *([varying_warning("timeline")] if varies else []),
        ),
    )


def shared(total: int, parts: np.ndarray) -> np.ndarray:
    """Return integers that add up to `total` in the proportions of `parts`; rest to the first.

    The first is the layer itself: what rounding leaves is Python's time, not an operator's.
    """
    parts = np.maximum(parts, 0)
    parts_sum = int(parts.sum())
    scaled = np.array(
        [total * int(part) // parts_sum if parts_sum else 0 for part in parts], np.int64
    )
    scaled[0] += total - int(scaled.sum())
    return scaled


def _shorten_outside(host: np.ndarray, table: NodeTable, bare: int) -> None:
    """Leave outside of the model at most what the parts leave of the `bare` step (ns).

    What was recorded of it is the profiler's own work for the most part, in steps below 1 ms.
    """
    for number, node in enumerate(table.nodes):
        if node.kind == "bucket" and node.name == OUTSIDE_MODEL:
            remainder = bare - (int(host.sum()) - int(host[number]))
            host[number] = min(int(host[number]), max(0, remainder))


def _forward_nodes(table: NodeTable) -> dict[int, list[int]]:
    """Return, by layer, its own node and those of its forward operators."""
    nodes_by_layer: dict[int, list[int]] = {}
    layer_of: list[int] = []
    for number, node in enumerate(table.nodes):
        layer = node.layer if node.kind != "operator" else layer_of[node.parent]
        layer_of.append(layer)
        if node.kind in ("model", "layer") or (layer >= 0 and node.phase == attribution.FORWARD):
            nodes_by_layer.setdefault(layer, []).append(number)
    return nodes_by_layer


def _varies(table: NodeTable) -> bool:
    """Return whether steps differ in how often they call a layer or an operator of its passes.

    An optimizer may leave a step out: a scaler has it do so.
    """
    of_host = [
        number
        for number, node in enumerate(table.nodes)
        if node.kind in _COMPARED and node.phase not in _OF_OPTIMIZER
    ]
    calls = table.calls[of_host]
    return bool((calls != calls[:, :1]).any())


def varying_warning(probe: str) -> MeasurementWarning:
    """Return the warning that recorded steps did not all do the same."""
    return MeasurementWarning(
        id="steps-vary",
        message="Steps do other work each time: some called other operators, or more of them.",
        probe=probe,
        cause="Memory is that of one step, time that of the usual one: with what was counted of a "
        "call they give no rate.",
        remedy="Fix what decides (random numbers, a counter, a cache) to measure one kind of step.",
    )


def _outer_first(table: NodeTable) -> list[int]:
    """Return the nodes, a parent before its children, without what never ran."""
    children: dict[int, list[int]] = {}
    for number, node in enumerate(table.nodes):
        children.setdefault(node.parent, []).append(number)
    ran = [bool(node.any()) for node in np.hstack([table.host, table.calls])]
    for number in range(len(table.nodes) - 1, 0, -1):
        above = table.nodes[number].parent
        ran[above] = ran[above] or ran[number]
    order, pending = [], [0]
    while pending:
        number = pending.pop()
        order.append(number)
        below = [child for child in children.get(number, []) if ran[child]]
        # Layers and operators as they were met, buckets last.
        below.sort(key=lambda child: table.nodes[child].kind == "bucket")
        pending += reversed(below)
    return order


def _row(
    table: NodeTable,
    number: int,
    row_by_node: dict[int, int],
    *,
    host: int,
    calls: int,
    device: int | None,
) -> TreeRow:
    node = table.nodes[number]
    return TreeRow(
        name=node.name,
        kind=cast("Kind", node.kind),
        parent=row_by_node.get(node.parent, -1),
        calls=calls,
        path=node.path,
        type=node.type,
        source=node.source,
        phase=attribution.PHASES[node.phase] if node.phase >= 0 else "",
        shapes=node.shapes,
        dtype=node.dtype,
        host=host,
        shortest=node.shortest,
        device=device,
        flops=node.flops,
        unknown=node.unknown,
        bytes=node.bytes,
        calls_without_bytes=node.unknown_bytes,
        kernel=node.kernel,
    )
