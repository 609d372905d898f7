"""What a count says: totals, then where they go, by layer, operator or type of layer."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from torchgauge import units
from torchgauge.model.cost import Cost, Work
from torchgauge.model.count import Count
from torchgauge.model.roofline import Elsewhere
from torchgauge.report.console import LABEL, WIDTH, section_view, warnings_view
from torchgauge.report.sections import Row, Section, cost, size

By = Literal["layer", "operator", "type"]
DEPTH = 3
MOST = 40  # operators shown in a table; the CSV has all
WIDE = 100  # columns from which on there is room for more
CONVENTIONS = (
    "1 MAC = 2 FLOP; vector work 1 FLOP per element; bytes: inputs read and outputs written once "
    "per operator; embedding, views, copies: 0 FLOP."
)
PHASES: tuple[Literal["forward", "backward", "recompute"], ...] = (
    "forward",
    "backward",
    "recompute",
)


class Entry(NamedTuple):
    """One line of the table; `level` indents a layer under the one that calls it."""

    level: int
    name: str
    path: str
    kind: str
    parameters: int | None
    work: Work


def entries(found: Cost, by: By = "layer", depth: int | None = DEPTH) -> list[Entry]:
    """Return the lines, recomputation included; layers in calling order, others most work first."""
    if by == "layer":
        return [
            Entry(level, one.node.name, one.node.path, one.node.kind, one.node.parameters, one.work)
            for level, one in found.tree.walk(depth)
        ]
    groups = found.by_operator() if by == "operator" else found.by_type()
    return [Entry(0, name, "", "", None, work) for name, work in groups.items()]


def render(count: Count) -> str:
    """Return the layers as plain text, 80 columns wide."""
    return text(count)


def text(count: Count, by: By = "layer", depth: int | None = DEPTH) -> str:
    """Return the report as plain text, 80 columns wide."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=WIDTH, force_terminal=False, color_system=None)
    console.print(view(count, by, depth, width=WIDTH))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def table(count: Count, by: By = "layer", depth: int | None = None) -> str:
    """Return the lines as CSV, numbers exact; bytes in bytes, `share` of all FLOPs."""
    buffer = io.StringIO()
    names = (
        "level,path,name,kind,parameters,calls,macs,flops,matmul_flops,causal_matmul_flops,"
        "vector_flops,integer_ops,bytes,intensity_flop_per_byte,share,unknown_calls"
    )
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names.split(","))
    whole = count.cost.total(PHASES).flops
    for one in entries(count.cost, by, depth):
        work = one.work
        writer.writerow(
            [one.level, one.path, one.name, one.kind, one.parameters, work.calls, work.macs,
             work.flops, work.matmul_flops, work.causal_matmul_flops, work.vector_flops,
             work.integer_ops, work.bytes, work.intensity, work.flops / whole if whole else None,
             work.unknown_calls]
        )  # fmt: skip
    return buffer.getvalue()


def view(
    count: Count, by: By = "layer", depth: int | None = DEPTH, *, width: int
) -> RenderableType:
    """Return the report as something rich prints in `width` columns."""
    blocks: list[RenderableType] = [_head(count), Text("")]
    if count.size is not None:
        blocks += [section_view(size(count.size)), Text("")]
    blocks += [section_view(cost(count.cost)), Text(""), _table(count.cost, by, depth, width)]
    if count.elsewhere:
        blocks += [Text(""), section_view(_elsewhere(count.elsewhere))]
    notes = [CONVENTIONS]
    if count.cost.collapsed:
        notes.append(f"Not seen inside (scripted): {', '.join(count.cost.collapsed)}.")
    blocks += [Text(""), *(Text(note, style="dim") for note in notes)]
    if count.all_warnings:
        blocks += [Text(""), warnings_view("Warnings", list(count.all_warnings))]
    return Group(*blocks)


def _elsewhere(found: tuple[Elsewhere, ...]) -> Section:
    """Say what the call would take on other devices."""
    fits = {True: "fits", False: "does not fit", None: "may fit: activations are not counted"}
    rows = []
    for one in found:
        least = "at least " if one.memory_at_least else ""
        memory = f"{least}{units.size(one.memory)} of {units.size(one.memory_available)}"
        note = f"{memory}: {fits[one.fits]}"
        rows.append(Row(_model(one.device), f"≥ {units.time(one.latency)}", note))
    return Section("Elsewhere", found[0].how, tuple(rows))


def _model(device: str) -> str:
    """Return what people call it: "NVIDIA A100-SXM4-80GB" is an A100."""
    name = device.removeprefix("NVIDIA ").removeprefix("Tesla ").removeprefix("GeForce ")
    return name if len(name) < LABEL - 1 else re.split("[ -]", name)[0]


def _head(count: Count) -> Text:
    what = count.target
    shapes = ", ".join(
        f"{one.name} {'×'.join(map(str, one.shape)) or 'scalar'} {one.dtype}" for one in what.inputs
    )
    passes = "forward and backward" if count.cost.backward else "forward"
    where = {"meta": "meta tensors, nothing computed", "fake": "fake tensors, nothing computed"}
    on = where.get(count.cost.counted_on, f"{count.cost.counted_on} tensors")
    return Text.assemble(
        (what.name, "bold cyan"), f"  {what.spec}\n", (f"  {passes} of {shapes}; {on}", "dim")
    )


def _table(found: Cost, by: By, depth: int | None, width: int) -> Table:
    lines = entries(found, by, depth)
    shown = lines if by == "layer" else lines[:MOST]
    whole = found.total(PHASES)
    wide = width >= WIDE
    grid = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold", expand=False)
    grid.add_column(by, no_wrap=True, overflow="ellipsis", max_width=44 if wide else 24)
    columns = _columns(by, wide=wide, integer=bool(whole.integer_ops))
    for name in columns:
        grid.add_column(name, justify="left" if name == "kind" else "right", no_wrap=True)
    for one in shown:
        cells = dict(_cells(one, whole.flops))
        style = "bold" if by == "layer" and one.level == 0 else ""
        label = "  " * one.level + _shortened(one.name, (44 if wide else 24) - 2 * one.level)
        grid.add_row(label, *(cells[name] for name in columns), style=style)
    if len(lines) > len(shown):
        grid.add_row(f"… {len(lines) - len(shown)} more")
    return grid


def _columns(by: By, *, wide: bool, integer: bool) -> list[str]:
    names = ["parameters"] if by == "layer" else ["calls"]
    names += ["MACs", "FLOPs"]
    if wide:
        names = (["kind"] if by == "layer" else []) + [*names, "vector"]
        names += ["integer"] if integer else []
    names.append("bytes")
    if wide:
        names.append("FLOP/B")
    return [*names, "share"]


def _cells(one: Entry, whole: int) -> Iterator[tuple[str, str]]:
    work = one.work
    least = "≥ " if work.at_least else ""
    yield "kind", one.kind
    yield "parameters", "" if one.parameters is None else _number(one.parameters)
    yield "calls", f"{work.calls:,}"
    yield "MACs", _number(work.macs)
    yield "FLOPs", least + _number(work.flops)
    yield "vector", _number(work.vector_flops)
    yield "integer", _number(work.integer_ops)
    yield "bytes", units.size(work.bytes) if work.bytes else "–"
    yield "FLOP/B", "–" if not work.intensity else units.significant(work.intensity)
    yield "share", f"{100 * work.flops / whole:.1f} %" if whole else "–"


def _number(count: int) -> str:
    return units.count(count) if count else "–"


def _shortened(name: str, width: int) -> str:
    """Keep both ends of a name that is too long: the middle tells least."""
    if len(name) <= width:
        return name
    width = max(width, 8)
    head = (width - 1) // 2
    return f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"
