"""A table of a cost by layer, operator or type of layer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Hashable
from typing import Literal, NamedTuple

import msgspec

from torchgauge import units
from torchgauge.records.work.cost import Cost, LayerCost, Phase, Work
from torchgauge.report.content.document import Block, Column, Note, Row, Table, Tone, cells

By = Literal["layer", "operator", "type"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "recompute")
MAX_OPERATORS = 40  # operators shown in a table; the CSV has all
EMPTY_CELL = "–"


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
    raised = any(entry.inputs is not None for entry in lines)
    columns = SHAPE_COLUMNS if raised else _columns(by, total)
    rows = [
        Row(entry.name, cells(columns, entry), entry.level, _tone(entry, by))
        for entry in shown_lines
    ]
    omitted_count = len(lines) - len(shown_lines)
    note = Note(f"… {omitted_count} with less or no work", "faint", tight=True)
    table = Table(
        first=by, columns=columns, rows=rows, recorded=True, layout="fitted", ranked_by="bar"
    )
    return [table, *([note] if omitted_count else [])]


def _has_work(work: Work) -> bool:
    return bool(work.flops or work.integer_ops or work.bytes or work.at_least)


def _tone(entry: Entry, by: By) -> Tone:
    return "strong" if by == "layer" and entry.level == 0 else ""


def _amount(name: str) -> Callable[[Entry], str]:
    """Return what formats a number of operations."""
    return lambda entry: _number(getattr(entry.work, name), at_least=entry.work.at_least)


def _parameters(entry: Entry) -> str:
    number = entry.parameters
    return "" if number is None else _aligned(units.elements(number) if number else "")


def _output(entry: Entry) -> str | None:
    raised = entry.inputs is not None and entry.outputs is None
    return "raised" if raised else entry.outputs


# Where the forward raised: what it did is of less interest than what it passed on.
SHAPE_COLUMNS = (
    Column("inputs", "input", left_aligned=True),
    Column("output", get=_output, left_aligned=True),
    Column("FLOPs", get=_amount("flops")),
)


def _columns(by: By, total: Work) -> tuple[Column, ...]:
    """Return the columns in the order of reading; some come only where there is room."""

    def share(entry: Entry) -> float:
        return entry.work.flops / total.flops if total.flops else 0.0

    def share_text(entry: Entry) -> str:
        return f"{100 * share(entry):.1f} %" if entry.work.flops else f"{EMPTY_CELL}  "

    kind = Column("kind", priority=3, left_aligned=True, tone="faint", max_width=28)
    calls = Column("calls", unit="count", get=lambda entry: entry.work.calls)
    return (
        *([kind, Column("parameters", get=_parameters)] if by == "layer" else [calls]),
        Column("MACs", get=_amount("macs")),
        Column("FLOPs", get=_amount("flops")),
        Column("vector", get=_amount("vector_flops"), priority=5),
        *(
            [Column("integer", get=_amount("integer_ops"), priority=1)]
            if total.integer_ops > total.flops / 100
            else []
        ),
        Column("bytes", get=lambda e: _bytes(e.work.bytes, at_least=e.work.at_least)),
        Column("FLOP/B", get=lambda entry: _intensity(entry.work), priority=4),
        Column("share", get=share_text),
        Column("bar", unit="bar", get=share, priority=2),
    )


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


_NUMBERED = re.compile(r"(.*?)(\d+)")


class _FoldedLayer(NamedTuple):
    """A layer whose children are folded, and the key that equal layers share."""

    layer: LayerCost
    likeness: Hashable


def folded(layer: LayerCost) -> LayerCost:
    """Return the tree with numbered siblings that are alike in one: "h.0–11 ×12", with their sums.

    Alike are layers of one class with as many parameters and the same work, and so their children.
    `number` is that of the first.
    """
    return _folded(layer).layer


def _folded(layer: LayerCost) -> _FoldedLayer:
    children = [_folded(child) for child in layer.children]
    groups = [list(group) for _, group in itertools.groupby(children, key=_key)]
    merged_children = tuple(_merged([member.layer for member in group], layer) for group in groups)
    likeness = (
        layer.node.kind,
        layer.node.parameters,
        layer.node.calls,
        layer.work,
        tuple((child.layer.node.name, child.likeness) for child in children),
    )
    return _FoldedLayer(layer._replace(children=merged_children), likeness)


def _key(layer: _FoldedLayer) -> Hashable:
    named = _NUMBERED.fullmatch(layer.layer.node.name)
    # A name without a number equals no other.
    return (named[1] if named else layer.layer.number, layer.likeness)


def _merged(layers: list[LayerCost], parent: LayerCost) -> LayerCost:
    first, *later_layers = layers
    if not later_layers:
        return first
    last = _NUMBERED.fullmatch(later_layers[-1].node.name)
    name = f"{first.node.name}–{last[2] if last else ''} ×{len(layers)}"
    return _times(first, len(layers), parent.node.parameters, name)


def _times(layer: LayerCost, times: int, max_parameters: int | None, name: str = "") -> LayerCost:
    """Return `times` such layers as one; those that share parameters have no more than `most`."""
    parameters = times * (layer.node.parameters or 0)
    node = msgspec.structs.replace(
        layer.node,
        name=name or layer.node.name,
        calls=times * layer.node.calls,
        parameters=parameters if max_parameters is None else min(parameters, max_parameters),
    )
    return layer._replace(
        node=node,
        own=layer.own.times(times),
        work=layer.work.times(times),
        children=tuple(_times(child, times, max_parameters) for child in layer.children),
    )
