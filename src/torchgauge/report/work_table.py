"""A cost as lines: by layer, operator or type of layer; as many columns as there is room for."""

from __future__ import annotations

from typing import Literal, NamedTuple

from rich.console import Group, RenderableType

from torchgauge import units
from torchgauge.analyze.alike import folded
from torchgauge.model.cost import Cost, LayerCost, Phase, Work
from torchgauge.report.bar import bar
from torchgauge.report.fitted_table import Column, Line, fitted_table
from torchgauge.report.text import Text

By = Literal["layer", "operator", "type"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "recompute")
MOST = 40  # operators shown in a table; the CSV has all
BAR = 10
NOTHING = "–"

# In the order of reading; "integer", the bar and so on come as there is room.
COLUMNS = (
    Column("kind", 3, left=True, style="dim", most=28),
    Column("parameters"),
    Column("calls"),
    Column("MACs"),
    Column("FLOPs"),
    Column("vector", 5),
    Column("integer", 1),
    Column("bytes"),
    Column("FLOP/B", 4),
    Column("share"),
    Column("bar", 2, title="", left=True, style="cyan"),
)


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
    rows = [Line(one.level, one.name, _cells(one, by, whole), _style(one, by)) for one in shown]
    grid = fitted_table(by, rows, COLUMNS, width)
    if len(lines) == len(shown):
        return grid
    return Group(grid, Text(f"… {len(lines) - len(shown)} with less or no work", style="dim"))


def _works(work: Work) -> bool:
    return bool(work.flops or work.integer_ops or work.bytes or work.at_least)


def _style(one: Entry, by: By) -> str:
    return "bold" if by == "layer" and one.level == 0 else ""


def _cells(one: Entry, by: By, whole: Work) -> dict[str, str]:
    work = one.work
    share = work.flops / whole.flops if whole.flops else 0.0
    cells = {
        "MACs": _number(work.macs, at_least=work.at_least),
        "FLOPs": _number(work.flops, at_least=work.at_least),
        "vector": _number(work.vector_flops, at_least=work.at_least),
        "bytes": _bytes(work.bytes, at_least=work.at_least),
        "FLOP/B": _intensity(work),
        "share": f"{100 * share:.1f} %" if work.flops else f"{NOTHING}  ",
        "bar": bar(share, BAR),
    }
    if by == "layer":
        cells["kind"] = one.kind
        cells["parameters"] = "" if one.parameters is None else _number(one.parameters)
    else:
        cells["calls"] = f"{work.calls:,}"
    if whole.integer_ops > whole.flops / 100:
        cells["integer"] = _number(work.integer_ops, at_least=work.at_least)
    return cells


def _number(count: int, *, at_least: bool = False) -> str:
    """Format a count so that digits stand below digits, with a unit or without."""
    if at_least:
        return f"≥ {_number(count)}" if count else units.UNKNOWN
    text = units.count(count) if count else NOTHING
    return text if text[-1].isalpha() else f"{text}  "


def _intensity(work: Work) -> str:
    """Format FLOPs per byte; where a part of both is not known, their ratio is not either."""
    known = work.intensity and not work.at_least
    return units.significant(work.intensity or 0.0) if known else NOTHING


def _bytes(size: int, *, at_least: bool = False) -> str:
    if at_least:
        return f"≥ {_bytes(size)}" if size else units.UNKNOWN
    text = units.size(size) if size else NOTHING
    return text.replace(" B", "  B") if size else f"{text}   "
