"""The memory of a loop's steps: the steps, what lived at the peak, what is kept, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.records.memory.alive_tensor import AliveTensor
from torchgauge.records.memory.loop_memory import LoopMemory, OutlivingTensors, Recomputation
from torchgauge.report.content.document import Block, Column, Note, Row, Table

TOP = 8
STEPS = 3  # of the first and of the last ones
_STEP_COLUMNS = (
    Column("peak", unit="bytes"),
    Column("after", unit="bytes"),
    Column("earlier", 2, unit="bytes"),
    Column("at the peak", 1, left_aligned=True, recorded=True, max_width=44),
)
_COLUMNS = (
    Column("bytes", unit="bytes"),
    Column("share", 3, unit="share"),
    Column("a step", unit="bytes"),
    Column("held by", left_aligned=True, recorded=True, max_width=48),
    Column("made in", 1, left_aligned=True, recorded=True, max_width=24),
    Column("made by", 2, left_aligned=True, tone="faint", max_width=24),
)
_CAUSES = {
    "states": "The peak is parameters, gradients and optimizer states; checkpoints save none.",
    "optimizer": "The peak is in the optimizer's step, whose own tensors checkpoints do not save.",
    "one segment": "One checkpoint is around everything, all alive when it runs again: use "
    "one for each block.",
    "segment": "The peak is in a segment that runs again: use smaller ones.",
    "inside": "Activations inside of segments were kept all the same: by a hook, an attribute or a "
    "list that holds them.",
    "outside": "The peak is of layers outside of all checkpoints, as logits and loss.",
    "other": "The peak is tensors of the loop itself.",
}


def memory_blocks(memory: LoopMemory) -> Iterator[Block]:
    """Yield tables of the steps, of the highest peak and of what is kept, with their causes."""
    steps = memory.steps
    listed = steps if len(steps) <= 2 * STEPS else (*steps[:STEPS], *steps[-STEPS:])
    rows = [
        Row(
            f"step {step.number}",
            {
                "peak": step.peak,
                "after": step.after,
                "earlier": step.earlier,
                "at the peak": _text(step.phase, step.layer, step.line),
            },
        )
        for step in listed
    ]
    notes = [*_allocator(memory)]
    if len(steps) > len(listed):
        notes.append(f"{len(steps) - len(listed)} steps between them are in the record.")
    yield Table(
        title=f"Memory by step on {memory.device}", how=memory.how, first="", columns=_STEP_COLUMNS,
        rows=rows, layout="fitted", notes=notes,
    )  # fmt: skip
    peak = max(step.peak for step in steps)
    yield _table(f"Alive at the peak of step {memory.peak_step}", [
        _row(tensor, {"share": tensor.size / peak if peak else None}) for tensor in memory.at_peak
    ])  # fmt: skip
    if memory.recomputation is not None:
        yield Note(_recomputed(memory.recomputation))
    if memory.outliving:
        title = f"Alive after step {steps[-1].number}, beside states"
        if memory.growth:
            title += f": grows by {units.size(memory.growth)} a step"
        yield _table(title, [_kept_row(group) for group in memory.outliving])


def _table(title: str, rows: list[Row]) -> Table:
    listed, hidden = rows[:TOP], rows[TOP:]
    if hidden:
        size = sum(row.cells["bytes"] for row in hidden)  # type: ignore[misc]
        listed.append(Row(f"{len(hidden)} others", {"bytes": size}, tone="faint", summary=True))
    return Table(
        title=title, first="what", columns=_COLUMNS, rows=listed, recorded=True, layout="fitted"
    )


def _row(tensor: AliveTensor, cells: dict[str, float | None]) -> Row:
    step = "" if tensor.step is None else f"step {tensor.step}"
    name = _text(tensor.name, tensor.line) or tensor.phase or tensor.part
    values = {
        "bytes": tensor.size,
        **cells,
        "made in": _text(tensor.phase, step),
        "made by": tensor.operator.removeprefix("aten::"),
    }
    return Row(
        f"{name} ×{tensor.count:,}" if tensor.count > 1 else name,
        {key: value for key, value in values.items() if value not in (None, "")},
    )


def _kept_row(group: OutlivingTensors) -> Row:
    row, holder = _row(group.tensors, {"a step": group.growth or None}), group.tensors.holder
    graph = "graph of " if group.by_graph and holder else ""
    cells = {**row.cells, "held by": f"{graph}{holder or 'not found'}"}
    return row._replace(cells=cells, tone="bad" if group.growth else "")


def _text(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _recomputed(checkpoints: Recomputation) -> str:
    layer = f", most of it by {checkpoints.layer}" if checkpoints.layer else ""
    return (
        f"Checkpoints: {checkpoints.segments} segments ran again and made "
        f"{units.size(checkpoints.total)}, the largest "
        f"{units.size(checkpoints.largest)}. {_CAUSES[checkpoints.dominant]} "
        f"{units.size(checkpoints.size)} of the peak{layer}."
    )


def _allocator(memory: LoopMemory) -> list[str]:
    last = memory.steps[-1]
    if last.allocated is None:
        return []
    gap = last.allocated - last.after
    return [
        f"The allocator had given out {units.size(last.allocated)} as the last step ended: "
        f"{units.size(gap)} beyond tensors that were seen (rounding, libraries, other threads)."
    ]
