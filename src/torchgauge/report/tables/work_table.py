"""A table of a cost by layer, operator or type of layer."""

from __future__ import annotations

from typing import Literal, NamedTuple

from torchgauge import units
from torchgauge.analyze.work.repeated_layers import folded
from torchgauge.records.work.cost import Cost, LayerCost, Phase, Work
from torchgauge.report.content.document import Block, Column, Note, Row, Table, Tone, Value

By = Literal["layer", "operator", "type"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "recompute")
MAX_OPERATORS = 40  # operators shown in a table; the CSV has all
EMPTY_CELL = "–"

# In the order of reading; "integer", the bar and so on come as there is room.
COLUMNS = (
    Column("kind", priority=3, left_aligned=True, tone="faint", max_width=28),
    Column("parameters"),
    Column("calls"),
    Column("MACs"),
    Column("FLOPs"),
    Column("vector", priority=5),
    Column("integer", priority=1),
    Column("bytes"),
    Column("FLOP/B", priority=4),
    Column("share"),
    Column("bar", priority=2, unit="bar"),
)
# Where the forward raised: what it did is of less interest than what it passed on.
SHAPE_COLUMNS = (
    Column("input", left_aligned=True),
    Column("output", left_aligned=True),
    Column("FLOPs"),
)


class Entry(NamedTuple):
    """One line of the table; `level` indents a layer under the one that calls it."""

    level: int
    name: str
    path: str
    kind: str
    parameters: int | None
    work: Work
    inputs: str | None = None
    outputs: str | None = None


def entries(
    cost: Cost, by: By = "layer", depth: int | None = None, *, fold: bool = False
) -> list[Entry]:
    """Return the entries, recomputation included; layers in calling order, others most work first.

    With `fold` consecutive layers of the same shape are one entry.
    """
    if by == "layer":
        tree = folded(cost.tree) if fold else cost.tree
        return [_layer(level, layer) for level, layer in tree.walk(depth)]
    groups = cost.by_operator() if by == "operator" else cost.by_type()
    return [Entry(0, name, "", "", None, work) for name, work in groups.items()]


def _layer(level: int, layer: LayerCost) -> Entry:
    node = layer.node
    return Entry(level, node.name, node.path, node.kind, node.parameters, layer.work,
                 node.inputs, node.outputs)  # fmt: skip


def work_table(cost: Cost, by: By, depth: int | None) -> list[Block]:
    """Return the work by layer, operator or type of layer; what does none is left out."""
    lines = entries(cost, by, depth, fold=True)
    shown_lines = lines
    if by != "layer":
        shown_lines = [entry for entry in lines if _has_work(entry.work)][:MAX_OPERATORS]
    total = cost.total(PHASES)
    rows = [
        Row(entry.name, _cells(entry, by, total), entry.level, _tone(entry, by))
        for entry in shown_lines
    ]
    omitted_count = len(lines) - len(shown_lines)
    note = Note(f"… {omitted_count} with less or no work", "faint", tight=True)
    raised = any(entry.inputs is not None for entry in lines)
    columns = SHAPE_COLUMNS if raised else COLUMNS
    table = Table(
        first=by, columns=columns, rows=rows, recorded=True, layout="fitted", ranked_by="bar"
    )
    return [table, *([note] if omitted_count else [])]


def _has_work(work: Work) -> bool:
    return bool(work.flops or work.integer_ops or work.bytes or work.at_least)


def _tone(entry: Entry, by: By) -> Tone:
    return "strong" if by == "layer" and entry.level == 0 else ""


def _cells(entry: Entry, by: By, total: Work) -> dict[str, Value]:
    work = entry.work
    share = work.flops / total.flops if total.flops else 0.0
    cells: dict[str, Value] = {
        "MACs": _number(work.macs, at_least=work.at_least),
        "FLOPs": _number(work.flops, at_least=work.at_least),
        "vector": _number(work.vector_flops, at_least=work.at_least),
        "bytes": _bytes(work.bytes, at_least=work.at_least),
        "FLOP/B": _intensity(work),
        "share": f"{100 * share:.1f} %" if work.flops else f"{EMPTY_CELL}  ",
        "bar": share,
    }
    if by == "layer":
        cells["kind"] = entry.kind
        if entry.inputs is not None:
            cells["input"] = entry.inputs
            cells["output"] = "raised" if entry.outputs is None else entry.outputs
        parameters = entry.parameters
        cells["parameters"] = (
            "" if parameters is None else _aligned(units.elements(parameters) if parameters else "")
        )
    else:
        cells["calls"] = f"{work.calls:,}"
    if total.integer_ops > total.flops / 100:
        cells["integer"] = _number(work.integer_ops, at_least=work.at_least)
    return cells


def _number(count: int, *, at_least: bool = False) -> str:
    """Format a count so that digits stand below digits, with a unit or without."""
    if at_least:
        return f"≥ {_number(count)}" if count else units.UNKNOWN
    return _aligned(units.count(count) if count else "")


def _aligned(text: str) -> str:
    text = text or EMPTY_CELL
    return text if text[-1].isalpha() else f"{text}  "


def _intensity(work: Work) -> str:
    """Format FLOPs per byte; where a part of both is not known, their ratio is not either."""
    is_known = work.intensity and not work.at_least
    return units.significant(work.intensity or 0.0) if is_known else EMPTY_CELL


def _bytes(size: int, *, at_least: bool = False) -> str:
    if at_least:
        return f"≥ {_bytes(size)}" if size else units.UNKNOWN
    text = units.size(size) if size else EMPTY_CELL
    return text.replace(" B", "  B") if size else f"{text}   "
