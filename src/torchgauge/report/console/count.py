"""A count for a terminal: totals, then the work by layer, operator or type of layer."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge import units
from torchgauge.analyze.memory.training_memory import MASTERS, OPTIMIZER
from torchgauge.records.memory.training_memory import TrainingMemory
from torchgauge.records.target import InputDescription
from torchgauge.records.work.count import Count
from torchgauge.records.work.roofline import OtherDevice
from torchgauge.report.console.console import section_view, warnings_view
from torchgauge.report.console.plain import plain
from torchgauge.report.console.text import END, Text
from torchgauge.report.console.work_table import EMPTY_CELL, By, work_table
from torchgauge.report.content.section import SMALLEST_SHARE, Row, Section
from torchgauge.report.content.sections import cost, size

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
AT_LEAST_NOTE = "at the end of its forward pass, or at its own"
PARTIAL_NOTE = "without gradients of activations, workspaces and temporaries"
UNCOUNTED_NOTE = (
    "As kernels of a CPU with 512-bit vectors take it; fragmentation and the driver's own memory "
    "are in no figure."
)


def render(count: Count) -> str:
    """Return the layers as plain text (see `plain`)."""
    return text(count)


def text(count: Count, by: By = "layer", depth: int | None = DEPTH) -> str:
    """Return the report as plain text (see `plain`)."""
    return plain(lambda width: view(count, by, depth, width=width))


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
    if count.other_devices:
        blocks += [Text(""), _other_devices(count)]
    notes = [CONVENTIONS]
    if count.cost.executed_flops != count.cost.flops:
        notes.append("The table's FLOPs are the executed ones.")
    if count.cost.collapsed:
        notes.append(f"Not seen inside (scripted): {', '.join(count.cost.collapsed)}.")
    blocks += [Text(""), *(Text(note, style="dim") for note in notes)]
    if count.all_warnings:
        blocks += [Text(""), warnings_view("Warnings", list(count.all_warnings))]
    return Group(*blocks)


def training(memory: TrainingMemory) -> Section:
    """Return a training step's memory at its peak, or a lower bound where that is not known."""
    step = memory.assumed
    parts = step.at_peak or {name: part.bytes for name, part in memory.parts.items()}
    total_bytes = step.total or sum(parts.values())
    rows = [
        Row(name, units.size(part), _how(memory, name), part / total_bytes)
        for name, part in parts.items()
        if part > SMALLEST_SHARE * total_bytes
    ]
    rows.append(
        Row("at least", units.size(step.lower_bound), AT_LEAST_NOTE if step.total else PARTIAL_NOTE)
    )
    if step.total is not None and step.moment is not None:
        rows.append(Row("at its peak", units.size(step.total), PEAK[step.moment]))
    return Section(f"Training step with {memory.optimizer}", step.how, tuple(rows))


def _how(memory: TrainingMemory, part: str) -> str:
    """Return how a part's size is known: what of it is alive at the peak is estimated."""
    changing = part in ("gradients", "activations", "workspace") and memory.assumed.at_peak
    return "estimated" if changing else memory.parts[part].how


def _training(memory: TrainingMemory) -> RenderableType:
    """Return a training step's memory, then how it changes with the optimizer."""
    note = Padding(Text(UNCOUNTED_NOTE, style="dim"), (0, 0, 0, 2))
    return Group(section_view(training(memory)), Text(""), _optimizers(memory), note)


def _optimizers(memory: TrainingMemory) -> Table:
    dtypes = sorted(
        {dtype for optimizer in memory.optimizers.values() for dtype in optimizer.states.by_dtype}
    )
    peak_known = memory.assumed.total is not None
    grid = _grid(
        "optimizer", *dtypes, "states", "at least", *(["at its peak"] if peak_known else [])
    )
    masters, usual = (memory.optimizers.get(name) for name in (MASTERS, OPTIMIZER))
    # A file of another version may lack one of the two.
    masters_equal = (
        masters is not None and usual is not None and masters.states.bytes == usual.states.bytes
    )
    for name, optimizer in memory.optimizers.items():
        if name == MASTERS and masters_equal:
            continue  # no parameter is in half precision
        state_sizes = [_size(optimizer.states.by_dtype.get(dtype, 0)) for dtype in dtypes]
        figures = (optimizer.states.bytes, optimizer.lower_bound, optimizer.total)
        totals = [_size(figure) for figure in figures if figure is not None]
        chosen = name == memory.optimizer
        grid.add_row(f"  {name}", *state_sizes, *totals, style="bold" if chosen else "")
    return grid


def _other_devices(count: Count) -> RenderableType:
    """Return the call's estimated time and memory on other devices."""
    training = count.training
    title = f"Elsewhere, training with {training.optimizer}" if training else "Elsewhere"
    grid = _grid("device", "time at best", "memory", "of", "")
    for estimate in count.other_devices:
        grid.add_row(
            f"  {_model(estimate.device)}",
            ("≥ " if estimate.latency_at_least and estimate.latency else "")
            + units.time(estimate.latency),
            ("≥ " if estimate.memory_at_least else "") + units.size(estimate.memory),
            units.size(estimate.memory_available, 3),
            fits(estimate, training=training is not None),
        )
    return Group(Text.assemble((title, "bold"), ("  estimated", "dim italic")), grid)


def fits(estimate: OtherDevice, *, training: bool = False) -> str:
    """Say whether the call fits into the device's memory."""
    if estimate.fits is None and estimate.memory_at_least:
        return "unknown" if training else "fits without activations"
    if estimate.fits is None:
        return "may fit"
    return "fits" if estimate.fits else "does not fit"


def _grid(first: str, *columns: str) -> Table:
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    grid.add_column(f"  {first}", no_wrap=True)
    for name in columns:
        grid.add_column(name, justify="right" if name else "left", no_wrap=True)
    return grid


def _size(count: int) -> str:
    return units.size(count) if count else EMPTY_CELL


def _model(device: str) -> str:
    """Return a device's name without its maker: "NVIDIA A100-SXM4-80GB" is an A100-SXM4-80GB."""
    for maker in ("NVIDIA ", "AMD Instinct ", "Tesla ", "GeForce "):
        device = device.removeprefix(maker)
    return device


def _head(count: Count) -> Text:
    target = count.target
    shapes = ", ".join(map(_input, target.inputs))
    passes = "forward and backward" if count.cost.backward else "forward"
    descriptions = {
        "meta": "meta tensors, nothing computed",
        "fake": "fake tensors, nothing computed",
    }
    tensors = descriptions.get(count.cost.counted_on, f"{count.cost.counted_on} tensors")
    return Text.assemble(
        (target.name, "bold cyan"),
        f"  {target.spec}",
        END,
        (f"  {passes} of {shapes}; {tensors}", "dim"),
    )


def _input(description: InputDescription) -> str:
    shape = "×".join(map(str, description.shape)) or "scalar"
    # A decimal name is a position, which is not worth showing.
    name = "" if description.name.isdecimal() else f"{description.name} "
    return f"{name}{shape} {description.dtype}"
