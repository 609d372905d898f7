"""The tensors alive at the peak of a step, the largest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType

from torchgauge import units
from torchgauge.model.alive_tensor import AliveTensor
from torchgauge.model.memory import Memory
from torchgauge.model.tables import Table
from torchgauge.report import markdown_text, page_tables
from torchgauge.report.fitted_table import Column, Line, fitted_table
from torchgauge.report.markdown_text import Markdown
from torchgauge.report.page_tables import Column as PageColumn
from torchgauge.report.text import Text

TOP, TOP_MARKDOWN = 6, 10
TITLE = "Alive at the peak"
NAMELESS = "without a name"
COLUMNS = (
    Column("bytes"),
    Column("share", 2),
    Column("for"),
    Column("shape", 1, left=True, most=28),
    Column("made by", 3, left=True, style="dim", most=24),
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
    """Return a table of the largest, and how many bytes the others are."""
    shown = memory.tensors[:TOP]
    lines = [Line(0, label(one), _cells(one, memory.peak)) for one in shown]
    if rest := memory.tensors[TOP:]:
        left = AliveTensor(part="workspace", name="", size=sum(one.size for one in rest))
        cells = {name: _cells(left, memory.peak)[name] for name in ("bytes", "share")}
        lines.append(Line(0, f"{_number(rest):,} others", cells, style="dim"))
    return Group(Text(TITLE, style="bold"), fitted_table("tensor", lines, COLUMNS, width))


def markdown(memory: Memory | None) -> Iterator[Markdown]:
    """Return the largest as a table of Markdown."""
    if memory is None or not memory.tensors:
        return
    yield markdown_text.markdown("**{}**", TITLE)
    names = ("bytes", "share", "for", "shape", "made by")
    rows = []
    for one in memory.tensors[:TOP_MARKDOWN]:
        cells = _cells(one, memory.peak)
        texts = (cells.get(name, "") for name in names)
        rows.append((markdown_text.code(label(one)), *texts))
    yield markdown_text.table(("tensor", "bytes:", "share:", *names[2:]), rows)
    yield from markdown_text.more(_number(memory.tensors), _number(memory.tensors[:TOP_MARKDOWN]))


def page(memory: Memory) -> dict[str, Any]:
    """Return all of them as a table of the page."""
    found = table(memory.tensors).columns
    found["label"] = [label(one) for one in memory.tensors]
    found["share"] = [one.size / memory.peak for one in memory.tensors]
    found["shape"] = [_shape(one) for one in memory.tensors]
    return page_tables.table("alive at the peak", PAGE, found)


def table(tensors: Sequence[AliveTensor]) -> Table:
    """Return one row for each, with bytes; a shape is a tuple."""
    names = ("part", "name", "operator", "shape", "dtype", "size", "count")
    return Table({name: [getattr(one, name) for one in tensors] for name in names})


def label(one: AliveTensor) -> str:
    """Return what to call it."""
    if one.count > 1:
        return f"{one.count:,} smaller {one.part}"
    return one.name or one.operator or NAMELESS


def _cells(one: AliveTensor, peak: int) -> dict[str, str]:
    cells = {
        "bytes": units.size(one.size, 3),
        "share": f"{100 * one.size / peak:.1f} %" if peak else "",
        "for": one.part,
        "shape": " ".join(filter(None, (_shape(one), one.dtype))),
        "made by": one.operator.removeprefix("aten::"),
    }
    return {name: cell for name, cell in cells.items() if cell}


def _shape(one: AliveTensor) -> str:
    return "" if one.shape is None else "×".join(map(str, one.shape)) or "1 number"


def _number(tensors: Sequence[AliveTensor]) -> int:
    return sum(one.count for one in tensors)
