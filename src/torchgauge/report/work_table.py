"""A cost as lines: by layer, operator or type of layer; as many columns as there is room for."""

from __future__ import annotations

from typing import Literal, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from torchgauge import units
from torchgauge.analyze.alike import folded
from torchgauge.model.cost import Cost, LayerCost, Phase, Work
from torchgauge.report.console import bar

By = Literal["layer", "operator", "type"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "recompute")
MOST = 40  # operators shown in a table; the CSV has all
NAME = 48  # columns of the first column at most, and at least
NARROW = 8
KIND = 28
BAR = 10
GAP = 2
NOTHING = "–"

# In the order of reading. What is not always shown comes as there is room, by the second order.
COLUMNS = ("kind", "parameters", "calls", "MACs", "FLOPs", "vector", "integer", "bytes", "FLOP/B",
           "share", "bar")  # fmt: skip
OPTIONAL = ("integer", "bar", "kind", "FLOP/B", "vector")
LEFT = frozenset({"kind", "bar"})


class Entry(NamedTuple):
    """One line of the table; `level` indents a layer under the one that calls it."""

    level: int
    name: str
    path: str
    kind: str
    parameters: int | None
    work: Work


def entries(
    found: Cost, by: By = "layer", depth: int | None = None, *, fold: bool = False
) -> list[Entry]:
    """Return the lines, recomputation included; layers in calling order, others most work first.

    With `fold` layers alike, one after the other, are one line.
    """
    if by == "layer":
        tree = folded(found.tree) if fold else found.tree
        return [_layer(level, one) for level, one in tree.walk(depth)]
    groups = found.by_operator() if by == "operator" else found.by_type()
    return [Entry(0, name, "", "", None, work) for name, work in groups.items()]


def _layer(level: int, one: LayerCost) -> Entry:
    node = one.node
    return Entry(level, node.name, node.path, node.kind, node.parameters, one.work)


def work_table(found: Cost, by: By, depth: int | None, width: int) -> RenderableType:
    """Return the lines as a table that fits `width`; names that do not are cut in the middle."""
    lines = entries(found, by, depth, fold=True)
    shown = lines if by == "layer" else [one for one in lines if _works(one.work)][:MOST]
    whole = found.total(PHASES)
    rows = [_cells(one, whole) for one in shown]
    widths = {name: max([len(name), *(len(row[name]) for row in rows)]) for name in COLUMNS}
    widths["bar"] = BAR
    widths["kind"] = min(widths["kind"], KIND)
    names = ["  " * one.level + one.name for one in shown]
    natural = min(max([len(by), *map(len, names)]), NAME)
    columns = _columns(by, whole, widths, width - natural)
    room = width - sum(widths[name] + GAP for name in columns)
    grid = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    grid.add_column(by, no_wrap=True)
    for name in columns:
        style = "cyan" if name == "bar" else "dim" if name == "kind" else ""
        grid.add_column(_placed("" if name == "bar" else name, name, widths), style=style)
    for one, name, row in zip(shown, names, rows, strict=True):
        bold = "bold" if by == "layer" and one.level == 0 else ""
        label = _shortened(name, min(natural, max(room, NARROW)), 2 * one.level)
        cells = (_placed(row[column], column, widths) for column in columns)
        grid.add_row(Text(label), *cells, style=bold)
    if len(lines) == len(shown):
        return grid
    return Group(grid, Text(f"… {len(lines) - len(shown)} with less or no work", style="dim"))


def _placed(text: str, column: str, widths: dict[str, int]) -> Text:
    """Return a cell, padded here: rich would take the blanks that stand where a unit is not."""
    width = widths[column]
    text = _shortened(text, width)
    return Text(text.ljust(width) if column in LEFT else text.rjust(width), no_wrap=True)


def _works(work: Work) -> bool:
    return bool(work.flops or work.integer_ops or work.bytes or work.at_least)


def _columns(by: By, whole: Work, widths: dict[str, int], room: int) -> list[str]:
    """Return the columns that fit: those that must be there, then others as there is room."""
    wanted = ["parameters" if by == "layer" else "calls", "MACs", "FLOPs", "bytes", "share"]
    room -= sum(widths[name] + GAP for name in wanted)
    for name in OPTIONAL:
        told = whole.integer_ops > whole.flops / 100 if name == "integer" else True
        told &= by == "layer" if name == "kind" else True
        if told and widths[name] + GAP <= room:
            room -= widths[name] + GAP
            wanted.append(name)
    return sorted(wanted, key=COLUMNS.index)


def _cells(one: Entry, whole: Work) -> dict[str, str]:
    work = one.work
    share = work.flops / whole.flops if whole.flops else 0.0
    return {
        "kind": one.kind,
        "parameters": "" if one.parameters is None else _number(one.parameters),
        "calls": f"{work.calls:,}",
        "MACs": _number(work.macs, at_least=work.at_least),
        "FLOPs": _number(work.flops, at_least=work.at_least),
        "vector": _number(work.vector_flops),
        "integer": _number(work.integer_ops),
        "bytes": _bytes(work.bytes),
        "FLOP/B": units.significant(work.intensity) if work.intensity else NOTHING,
        "share": f"{100 * share:.1f} %" if work.flops else f"{NOTHING}  ",
        "bar": bar(share, BAR),
    }


def _number(count: int, *, at_least: bool = False) -> str:
    """Format a count so that digits stand below digits, with a unit or without."""
    if at_least:
        return f"≥ {_number(count)}" if count else "unknown"
    text = units.count(count) if count else NOTHING
    return text if text[-1].isalpha() else f"{text}  "


def _bytes(size: int) -> str:
    text = units.size(size) if size else NOTHING
    return text.replace(" B", "  B") if size else f"{text}   "


def _shortened(name: str, width: int, indent: int = 0) -> str:
    """Keep both ends of a name that is too long: the middle tells least."""
    if len(name) <= width:
        return name
    head = indent + (width - indent - 1) // 2
    return f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"
