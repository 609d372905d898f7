"""What a count says: totals, then where they go, by layer, operator or type of layer."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge import units
from torchgauge.analyze.training_memory import MASTERS, OPTIMIZER
from torchgauge.model.cost import known_part
from torchgauge.model.count import Count
from torchgauge.model.roofline import Elsewhere
from torchgauge.model.target import InputDescription
from torchgauge.model.training_memory import TrainingMemory
from torchgauge.report import csv
from torchgauge.report.console import section_view, warnings_view
from torchgauge.report.plain import plain
from torchgauge.report.section import SMALLEST_SHARE, Row, Section
from torchgauge.report.sections import cost, size
from torchgauge.report.text import END, Text
from torchgauge.report.work_table import NOTHING, PHASES, By, entries, work_table

DEPTH = 3
CONVENTIONS = (
    "1 MAC = 2 FLOP; vector work 1 FLOP per element; bytes: inputs read and outputs written once "
    "per operator; embedding, views, copies: 0 FLOP."
)
PEAK = {
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "while the optimizer steps",
}
LEAST = "at the end of its forward pass, or at its own"
PARTLY = "without gradients of activations, workspaces and temporaries"
UNSEEN = "As the CPU's kernels take it; fragmentation and the driver's own memory are in no figure."


def render(count: Count) -> str:
    """Return the layers as plain text (see `plain`)."""
    return text(count)


def text(count: Count, by: By = "layer", depth: int | None = DEPTH) -> str:
    """Return the report as plain text (see `plain`)."""
    return plain(lambda width: view(count, by, depth, width=width))


def table(count: Count, by: By = "layer", depth: int | None = None) -> str:
    """Return the lines as CSV, numbers exact; bytes in bytes, `share` of all FLOPs.

    Where `unknown_calls` is not 0 amounts are lower bounds, and empty where nothing is known.
    """
    names = (
        "level,path,name,kind,parameters,calls,macs,flops,matmul_flops,causal_matmul_flops,"
        "vector_flops,integer_ops,bytes,intensity_flop_per_byte,share,unknown_calls,estimated"
    )
    whole = count.cost.total(PHASES).flops
    rows = (
        [one.level, one.path, one.name, one.kind, one.parameters, work.calls,
         *(known_part(amount, at_least=work.at_least) for amount in (
             work.macs, work.flops, work.matmul_flops, work.causal_matmul_flops,
             work.vector_flops, work.integer_ops, work.bytes)),
         None if work.at_least else work.intensity, work.flops / whole if whole else None,
         work.unknown_calls, work.estimated]
        for one in entries(count.cost, by, depth) for work in [one.work]
    )  # fmt: skip
    return csv.text(names.split(","), rows)


def view(
    count: Count, by: By = "layer", depth: int | None = DEPTH, *, width: int
) -> RenderableType:
    """Return the report as something rich prints in `width` columns."""
    blocks: list[RenderableType] = [_head(count), Text("")]
    if count.size is not None:
        blocks += [section_view(size(count.size)), Text("")]
    blocks += [section_view(cost(count.cost)), Text("")]
    blocks.append(work_table(count.cost, by, depth, width))
    if count.training is not None:
        blocks += [Text(""), _training(count.training)]
    if count.elsewhere:
        blocks += [Text(""), _elsewhere(count)]
    notes = [CONVENTIONS]
    if count.cost.executed_flops != count.cost.flops:
        notes.append("The table's FLOPs are the executed ones.")
    if count.cost.collapsed:
        notes.append(f"Not seen inside (scripted): {', '.join(count.cost.collapsed)}.")
    blocks += [Text(""), *(Text(note, style="dim") for note in notes)]
    if count.all_warnings:
        blocks += [Text(""), warnings_view("Warnings", list(count.all_warnings))]
    return Group(*blocks)


def training(found: TrainingMemory) -> Section:
    """Say what a training step holds at its peak; where that is not known, at least."""
    step = found.assumed
    parts = step.at_peak or {name: part.bytes for name, part in found.parts.items()}
    whole = step.total or sum(parts.values())
    rows = [
        Row(name, units.size(part), _how(found, name), part / whole)
        for name, part in parts.items()
        if part > SMALLEST_SHARE * whole
    ]
    rows.append(Row("at least", units.size(step.least), LEAST if step.total else PARTLY))
    if step.total is not None and step.moment is not None:
        rows.append(Row("at its peak", units.size(step.total), PEAK[step.moment]))
    return Section(f"Training step with {found.optimizer}", step.how, tuple(rows))


def _how(found: TrainingMemory, part: str) -> str:
    """Say how a part is known: what is alive of the changing ones at the peak is estimated."""
    changing = part in ("gradients", "activations", "workspace") and found.assumed.at_peak
    return "estimated" if changing else found.parts[part].how


def _training(found: TrainingMemory) -> RenderableType:
    """Say what a training step holds, then how that changes with the optimizer."""
    note = Padding(Text(UNSEEN, style="dim"), (0, 0, 0, 2))
    return Group(section_view(training(found)), Text(""), _optimizers(found), note)


def _optimizers(found: TrainingMemory) -> Table:
    dtypes = sorted({dtype for one in found.optimizers.values() for dtype in one.states.by_dtype})
    known = found.assumed.total is not None
    grid = _grid("optimizer", *dtypes, "states", "at least", *(["at its peak"] if known else []))
    masters, usual = (found.optimizers.get(name) for name in (MASTERS, OPTIMIZER))
    # A file of another version may lack one of the two.
    same = masters is not None and usual is not None and masters.states.bytes == usual.states.bytes
    for name, one in found.optimizers.items():
        if name == MASTERS and same:
            continue  # nothing is in half precision
        kept = [_size(one.states.by_dtype.get(dtype, 0)) for dtype in dtypes]
        figures = (one.states.bytes, one.least, one.total)
        totals = [_size(figure) for figure in figures if figure is not None]
        chosen = name == found.optimizer
        grid.add_row(f"  {name}", *kept, *totals, style="bold" if chosen else "")
    return grid


def _elsewhere(count: Count) -> RenderableType:
    """Say what the call would take on other devices."""
    training = count.training
    title = f"Elsewhere, training with {training.optimizer}" if training else "Elsewhere"
    grid = _grid("device", "time at best", "memory", "of", "")
    for one in count.elsewhere:
        grid.add_row(
            f"  {_model(one.device)}",
            ("≥ " if one.latency_at_least and one.latency else "") + units.time(one.latency),
            ("≥ " if one.memory_at_least else "") + units.size(one.memory),
            units.size(one.memory_available, 3),
            fits(one, training=training is not None),
        )
    return Group(Text.assemble((title, "bold"), ("  estimated", "dim italic")), grid)


def fits(one: Elsewhere, *, training: bool = False) -> str:
    """Say whether the call fits into the device's memory."""
    if one.fits is None and one.memory_at_least:
        return "unknown" if training else "fits without activations"
    if one.fits is None:
        return "may fit"
    return "fits" if one.fits else "does not fit"


def _grid(first: str, *others: str) -> Table:
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    grid.add_column(f"  {first}", no_wrap=True)
    for name in others:
        grid.add_column(name, justify="right" if name else "left", no_wrap=True)
    return grid


def _size(count: int) -> str:
    return units.size(count) if count else NOTHING


def _model(device: str) -> str:
    """Return what people call it: "NVIDIA A100-SXM4-80GB" is an A100-SXM4-80GB."""
    for maker in ("NVIDIA ", "AMD Instinct ", "Tesla ", "GeForce "):
        device = device.removeprefix(maker)
    return device


def _head(count: Count) -> Text:
    what = count.target
    shapes = ", ".join(map(_input, what.inputs))
    passes = "forward and backward" if count.cost.backward else "forward"
    where = {"meta": "meta tensors, nothing computed", "fake": "fake tensors, nothing computed"}
    on = where.get(count.cost.counted_on, f"{count.cost.counted_on} tensors")
    return Text.assemble(
        (what.name, "bold cyan"),
        f"  {what.spec}",
        END,
        (f"  {passes} of {shapes}; {on}", "dim"),
    )


def _input(one: InputDescription) -> str:
    shape = "×".join(map(str, one.shape)) or "scalar"
    name = "" if one.name.isdecimal() else f"{one.name} "  # a position tells nothing
    return f"{name}{shape} {one.dtype}"
