"""A count: totals, then the work by layer, operator or type of layer."""

from __future__ import annotations

from torchgauge import units
from torchgauge.analyze.memory.training_memory import MASTERS, OPTIMIZER
from torchgauge.records.memory.memory import TrainingMemory
from torchgauge.records.target import InputDescription
from torchgauge.records.work.cost import NOT_RUN
from torchgauge.records.work.roofline import OtherDevice
from torchgauge.records.work.size import Count
from torchgauge.report.content import document as doc
from torchgauge.report.content.section import SMALLEST_SHARE, Section
from torchgauge.report.content.section import Row as Figure
from torchgauge.report.content.sections import cost, size
from torchgauge.report.tables.target_facts import graph
from torchgauge.report.tables.work_table import work_table

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
UNCOUNTED_NOTES = {
    "cpu": "As kernels of a CPU with 512-bit vectors take it; fragmentation and the driver's own "
    "memory are in no figure.",
    "cuda": "As CUDA's kernels save it for the backward pass; their workspaces, fragmentation and "
    "the driver's own memory are in no figure.",
}


def document(count: Count, options: doc.Options) -> doc.Document:
    """Return the totals, the work by layer, a training step's memory, and other devices."""
    blocks: list[doc.Block] = [size(count.size)] if count.size is not None else []
    blocks += [graph(count.graph)] if count.graph is not None else []
    # Where the forward raised, the layers that ran are shown to the last.
    depth = DEPTH if options.depth is None and NOT_RUN not in count.cost.unknown else options.depth
    blocks += [cost(count.cost), *work_table(count.cost, options.by, depth)]
    if count.training is not None:
        blocks += [training(count.training), _optimizers(count.training)]
    if count.other_devices:
        blocks.append(other_devices(count))
    blocks.append(doc.Note(CONVENTIONS, "faint"))
    if count.cost.executed_flops != count.cost.flops:
        blocks.append(doc.Note("The table's FLOPs are the executed ones.", "faint", tight=True))
    if count.cost.collapsed:
        collapsed = f"Not seen inside (scripted): {', '.join(count.cost.collapsed)}."
        blocks.append(doc.Note(collapsed, "faint", tight=True))
    blocks += [doc.Warnings(count.all_warnings)] if count.all_warnings else []
    return doc.Document(
        count.target.name,
        headline=count.target.spec,
        line=_conditions(count),
        blocks=blocks,
        names=(count.target.name,),
    )


def training(memory: TrainingMemory) -> Section:
    """Return a training step's memory at its peak, or a lower bound where that is not known."""
    step = memory.assumed
    parts = step.at_peak or {name: part.bytes for name, part in memory.parts.items()}
    total_bytes = step.total or sum(parts.values())
    rows = [
        Figure(name, units.size(part), _how(memory, name), part / total_bytes)
        for name, part in parts.items()
        if part > SMALLEST_SHARE * total_bytes
    ]
    rows.append(
        Figure(
            "at least", units.size(step.lower_bound), AT_LEAST_NOTE if step.total else PARTIAL_NOTE
        )
    )
    if step.total is not None and step.moment is not None:
        rows.append(Figure("at its peak", units.size(step.total), PEAK[step.moment]))
    return Section(f"Training step with {memory.optimizer}", step.how, tuple(rows))


def _how(memory: TrainingMemory, part: str) -> str:
    """Return how a part's size is known: what of it is alive at the peak is estimated."""
    changing = part in ("gradients", "activations", "workspace") and memory.assumed.at_peak
    return "estimated" if changing else memory.parts[part].how


def _optimizers(memory: TrainingMemory) -> doc.Table:
    """Return how a training step's memory changes with the optimizer."""
    dtypes = sorted(
        {dtype for optimizer in memory.optimizers.values() for dtype in optimizer.states.by_dtype}
    )
    columns = [
        *(doc.Column(dtype, empty="–") for dtype in dtypes),
        doc.Column("states", empty="–"),
        doc.Column("at least", empty="–"),
        *([doc.Column("at its peak", empty="–")] if memory.assumed.total is not None else []),
    ]
    masters, usual = (memory.optimizers.get(name) for name in (MASTERS, OPTIMIZER))
    # A file of another version may lack one of the two.
    masters_equal = (
        masters is not None and usual is not None and masters.states.bytes == usual.states.bytes
    )
    rows = []
    for name, optimizer in memory.optimizers.items():
        if name == MASTERS and masters_equal:
            continue  # no parameter is in half precision
        sizes = {dtype: optimizer.states.by_dtype.get(dtype, 0) for dtype in dtypes}
        sizes |= {"states": optimizer.states.bytes, "at least": optimizer.lower_bound}
        sizes |= {} if optimizer.total is None else {"at its peak": optimizer.total}
        cells: dict[str, doc.Value] = {
            key: units.size(value) for key, value in sizes.items() if value
        }
        rows.append(doc.Row(name, cells, tone="strong" if name == memory.optimizer else ""))
    return doc.Table(
        first="optimizer", columns=columns, rows=rows, notes=(UNCOUNTED_NOTES[memory.kernels],)
    )


def other_devices(count: Count) -> doc.Table:
    """Return the call's estimated time and memory on other devices."""
    training_memory = count.training
    columns = (
        doc.Column("time at best", get=_time_at_best),
        doc.Column("memory", get=_memory),
        doc.Column(
            "of", "available", get=lambda estimate: units.size(estimate.memory_available, 3)
        ),
        doc.Column(
            "fits",
            title="",
            get=lambda estimate: fits(estimate, training=training_memory is not None),
            left_aligned=True,
        ),
    )
    heading = "Elsewhere"
    if training_memory is not None:
        heading += f", training with {training_memory.optimizer}"
    rows = doc.rows_of(columns, count.other_devices, lambda estimate: model_name(estimate.device))
    varies = count.cost.flops_range is not None
    notes = ("Of the call that was counted: others do other work, and may need more.",) * varies
    return doc.Table(
        title=heading, how="estimated", first="device", columns=columns, rows=rows, notes=notes
    )


def _time_at_best(estimate: OtherDevice) -> str:
    prefix = "≥ " if estimate.latency_at_least and estimate.latency else ""
    return prefix + units.time(estimate.latency)


def _memory(estimate: OtherDevice) -> str:
    return ("≥ " if estimate.memory_at_least else "") + units.size(estimate.memory)


def fits(estimate: OtherDevice, *, training: bool = False) -> str:
    """Say whether the call fits into the device's memory."""
    if estimate.fits is None and estimate.memory_at_least:
        return "unknown" if training else "fits without activations"
    if estimate.fits is None:
        return "may fit"
    return "fits" if estimate.fits else "does not fit"


def model_name(device: str) -> str:
    """Return a device's name without its maker: "NVIDIA A100-SXM4-80GB" is an A100-SXM4-80GB."""
    for maker in ("NVIDIA ", "AMD Instinct ", "Tesla ", "GeForce "):
        device = device.removeprefix(maker)
    return device


def _conditions(count: Count) -> str:
    """Return which passes were counted, of what inputs and on which tensors."""
    shapes = ", ".join(map(_input, count.target.inputs))
    passes = "forward and backward" if count.cost.backward else "forward"
    descriptions = {
        "meta": "meta tensors, nothing computed",
        "fake": "fake tensors, nothing computed",
        "onnx": "types that the graph infers, nothing computed",
        "executorch": "sizes that the program has, nothing computed",
        "aotinductor": "a compiled library, whose work is not known",
    }
    tensors = descriptions.get(count.cost.counted_on, f"{count.cost.counted_on} tensors")
    return f"{passes} of {shapes}; {tensors}"


def _input(description: InputDescription) -> str:
    shape = "×".join(map(str, description.shape)) or "scalar"
    # A decimal name is a position, which is not worth showing.
    name = "" if description.name.isdecimal() else f"{description.name} "
    return f"{name}{shape} {description.dtype}"
