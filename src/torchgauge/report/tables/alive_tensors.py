"""The tensors alive at the peak of a step, the largest first."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.records.memory.memory import AliveTensor, Memory
from torchgauge.records.timeline.table import Table as RecordTable
from torchgauge.report.content.document import Column, Row, Table, Value

TOP = 6
NAMELESS = "without a name"
COLUMNS = (
    Column("bytes", unit="bytes"),
    Column("share", priority=2, unit="share"),
    Column("for", "part", left_aligned=True),
    Column("shape", priority=1, left_aligned=True, max_width=28),
    Column("made by", priority=3, left_aligned=True, tone="faint", max_width=24),
)


def alive(memory: Memory) -> Table:
    """Return a table of the largest tensors at the peak, with a row for all smaller ones."""
    return tensor_table("Alive at the peak", memory.tensors, memory.peak)


def tensor_table(title: str, tensors: Sequence[AliveTensor], total: int) -> Table:
    """Return a table of the largest tensors of a total, with a row for all smaller ones."""
    rows = [Row(label(tensor), _cells(tensor, total)) for tensor in tensors[:TOP]]
    if smaller := tensors[TOP:]:
        size = sum(tensor.size for tensor in smaller)
        cells: dict[str, Value] = {"bytes": size}
        cells |= {"share": size / total} if total else {}
        count = sum(tensor.count for tensor in smaller)
        rows.append(Row(f"{count:,} others", cells, tone="faint", summary=True))
    return Table(
        title=title, first="tensor", columns=COLUMNS, rows=rows, recorded=True,
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


def _cells(tensor: AliveTensor, peak: int) -> dict[str, Value]:
    cells: dict[str, Value] = {
        "bytes": tensor.size,
        "share": tensor.size / peak if peak else None,
        "for": tensor.part,
        "shape": " ".join(filter(None, (shape_text(tensor), tensor.dtype))),
        "made by": tensor.operator.removeprefix("aten::"),
    }
    return {name: cell for name, cell in cells.items() if cell not in (None, "")}


def shape_text(tensor: AliveTensor) -> str:
    """Return a tensor's shape with × between its sizes; empty where it is unknown."""
    return "" if tensor.shape is None else "×".join(map(str, tensor.shape)) or "1 number"
