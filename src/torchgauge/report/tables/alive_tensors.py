"""The tensors alive at the peak of a step, the largest first."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.records.memory.memory import AliveTensor, Memory
from torchgauge.records.timeline.table import Table as RecordTable
from torchgauge.report.content.document import Column, Row, Table, Value, rows_of

TOP = 6
NAMELESS = "without a name"


def alive(memory: Memory) -> Table:
    """Return a table of the largest tensors at the peak, with a row for all smaller ones."""
    return tensor_table("Alive at the peak", memory.tensors, memory.peak)


def tensor_table(
    title: str, tensors: Sequence[AliveTensor], total: int, rows: int | None = TOP
) -> Table:
    """Return a table of tensors of a total: the first rows, and one for all smaller ones."""
    columns = (
        Column("size", "bytes", "bytes"),
        Column("share", unit="share", get=lambda tensor: tensor.size / total if total else None,
               priority=2),
        Column("part", left_aligned=True),
        Column("shape", get=_typed_shape, priority=1, left_aligned=True, max_width=28),
        Column("made by", get=lambda tensor: tensor.operator.removeprefix("aten::"), priority=3,
               left_aligned=True, tone="faint", max_width=24),
        Column("count", "tensors", "count", medium="page"),
    )  # fmt: skip
    shown_rows = rows_of(columns, tensors[:rows], label)
    if rows is not None and (smaller := tensors[rows:]):
        size = sum(tensor.size for tensor in smaller)
        cells: dict[str, Value] = {"size": size}
        cells |= {"share": size / total} if total else {}
        count = sum(tensor.count for tensor in smaller)
        shown_rows.append(Row(f"{count:,} others", cells, tone="faint", summary=True))
    return Table(
        title=title, first="tensor", columns=columns, rows=shown_rows, recorded=True,
        layout="fitted",
    )  # fmt: skip


def table(tensors: Sequence[AliveTensor]) -> RecordTable:
    """Return one row for each tensor, with bytes; a shape is a tuple."""
    names = ("part", "name", "operator", "shape", "dtype", "size", "count")
    return RecordTable({name: [getattr(tensor, name) for tensor in tensors] for name in names})


def label(tensor: AliveTensor) -> str:
    """Return a tensor's name, or what stands for one."""
    if tensor.count > 1:
        return f"{tensor.count:,} smaller {tensor.part}"
    return tensor.name or tensor.operator or NAMELESS


def _typed_shape(tensor: AliveTensor) -> str:
    """Return a tensor's shape, with × between its sizes, and type, as far as they are known."""
    shape = "" if tensor.shape is None else "×".join(map(str, tensor.shape)) or "1 number"
    return " ".join(filter(None, (shape, tensor.dtype)))
