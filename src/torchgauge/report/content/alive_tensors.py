"""The tensors alive at the peak of a step, the largest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType

from torchgauge import units
from torchgauge.records.memory.alive_tensor import AliveTensor
from torchgauge.records.memory.memory import Memory
from torchgauge.records.timeline.table import Table
from torchgauge.report.console.fitted_table import Column, Line, fitted_table
from torchgauge.report.console.text import Text
from torchgauge.report.markdown import markdown_text
from torchgauge.report.markdown.markdown_text import Markdown
from torchgauge.report.page import page_tables
from torchgauge.report.page.page_tables import Column as PageColumn

TOP, TOP_MARKDOWN = 6, 10
TITLE = "Alive at the peak"
NAMELESS = "without a name"
COLUMNS = (
    Column("bytes"),
    Column("share", 2),
    Column("for"),
    Column("shape", 1, left_aligned=True, max_width=28),
    Column("made by", 3, left_aligned=True, style="dim", max_width=24),
)
PAGE = (
    PageColumn("label", "tensor", "text"),
    PageColumn("part", "for", "text"),
    PageColumn("shape", "shape", "text"),
    PageColumn("dtype", "type", "text"),
    PageColumn("size", "bytes", "bytes"),
    PageColumn("share", "share of the peak", "share"),
    PageColumn("operator", "made by", "text"),
    PageColumn("count", "tensors", "count"),
)


def view(memory: Memory, width: int) -> RenderableType:
    """Return a table of the largest tensors, with a row for all smaller ones."""
    largest = memory.tensors[:TOP]
    lines = [Line(0, label(tensor), _cells(tensor, memory.peak)) for tensor in largest]
    if smaller := memory.tensors[TOP:]:
        smaller_total = AliveTensor(
            part="workspace", name="", size=sum(tensor.size for tensor in smaller)
        )
        cells = {name: _cells(smaller_total, memory.peak)[name] for name in ("bytes", "share")}
        lines.append(Line(0, f"{_tensor_count(smaller):,} others", cells, style="dim"))
    return Group(Text(TITLE, style="bold"), fitted_table("tensor", lines, COLUMNS, width))


def markdown(memory: Memory | None) -> Iterator[Markdown]:
    """Yield the largest tensors as a table of Markdown."""
    if memory is None or not memory.tensors:
        return
    yield markdown_text.markdown("**{}**", TITLE)
    names = ("bytes", "share", "for", "shape", "made by")
    rows = []
    for tensor in memory.tensors[:TOP_MARKDOWN]:
        cells = _cells(tensor, memory.peak)
        texts = (cells.get(name, "") for name in names)
        rows.append((markdown_text.code(label(tensor)), *texts))
    yield markdown_text.table(("tensor", "bytes:", "share:", *names[2:]), rows)
    yield from markdown_text.omitted(
        _tensor_count(memory.tensors), _tensor_count(memory.tensors[:TOP_MARKDOWN])
    )


def page(memory: Memory) -> dict[str, Any]:
    """Return all tensors as a table of the page."""
    columns = table(memory.tensors).columns
    columns["label"] = [label(tensor) for tensor in memory.tensors]
    columns["share"] = [tensor.size / memory.peak for tensor in memory.tensors]
    columns["shape"] = [_shape(tensor) for tensor in memory.tensors]
    return page_tables.table("alive at the peak", PAGE, columns)


def table(tensors: Sequence[AliveTensor]) -> Table:
    """Return one row for each tensor, with bytes; a shape is a tuple."""
    names = ("part", "name", "operator", "shape", "dtype", "size", "count")
    return Table({name: [getattr(tensor, name) for tensor in tensors] for name in names})


def label(tensor: AliveTensor) -> str:
    """Return a tensor's name, or what stands for one."""
    if tensor.count > 1:
        return f"{tensor.count:,} smaller {tensor.part}"
    return tensor.name or tensor.operator or NAMELESS


def _cells(tensor: AliveTensor, peak: int) -> dict[str, str]:
    cells = {
        "bytes": units.size(tensor.size, 3),
        "share": f"{100 * tensor.size / peak:.1f} %" if peak else "",
        "for": tensor.part,
        "shape": " ".join(filter(None, (_shape(tensor), tensor.dtype))),
        "made by": tensor.operator.removeprefix("aten::"),
    }
    return {name: cell for name, cell in cells.items() if cell}


def _shape(tensor: AliveTensor) -> str:
    return "" if tensor.shape is None else "×".join(map(str, tensor.shape)) or "1 number"


def _tensor_count(tensors: Sequence[AliveTensor]) -> int:
    return sum(tensor.count for tensor in tensors)
