"""Figures of one rank of a job on many devices, by kind of rank and device."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.records.headline.figure import Figure, by_name
from torchgauge.records.parallel.parallel import Parallel, RankKind

Labels = tuple[tuple[str, int | str], ...]


def parallel_figures(record: Parallel) -> Iterator[Figure]:
    """Yield the figures of the job, then each figure of all kinds of rank, and of all devices."""
    yield Figure("parallel_ranks", "", "counted", "Ranks of the job", record.world_size)
    text = "Elements of the whole model's parameters"
    yield Figure("parallel_parameters", "", "counted", text, record.parameters)
    several = len(record.kinds) > 1
    labels = [(("kind", kind.name),) if several else () for kind in record.kinds]
    yield from by_name(map(_kind_figures, record.kinds, labels))
    devices = sorted({fit.device for kind in record.kinds for fit in kind.fits})
    yield from by_name(
        _device_figures(kind, device, (*kind_labels, ("on", device)))
        for kind, kind_labels in zip(record.kinds, labels, strict=True)
        for device in devices
    )


def _kind_figures(kind: RankKind, labels: Labels) -> Iterator[Figure]:
    memory = kind.memory
    for name, unit, how, text, value, at_least in (
        ("peak", "B", memory.how, "Most memory of tensors of a rank", memory.peak, False),
        ("reserved", "B", memory.reserved_how, "Reserved by a rank", memory.reserved, False),
        ("flops", "", "counted", "FLOPs of a rank's step", kind.flops, kind.at_least),
        ("executed_flops", "", "counted", "The same with recomputation", kind.executed_flops,
         kind.at_least),
        ("sent", "B", "counted", "Sent by a rank in a step at least", kind.sent, False),
    ):  # fmt: skip
        yield Figure(
            f"parallel_{name}", unit, how, text, value, at_least=at_least, labels=labels  # type: ignore[arg-type]
        )  # fmt: skip


def _device_figures(kind: RankKind, device: str, labels: Labels) -> Iterator[Figure]:
    margins = [fit.margin for fit in kind.fits if fit.device == device]
    bounds = [bound for bound in kind.bounds if bound.device == device]
    text = "Memory of the device less what a rank reserves"
    margin = margins[0] if margins else None
    yield Figure("parallel_margin", "B", "estimated", text, margin, labels=labels)
    yield Figure(
        "parallel_step", "s", "estimated", "Time of a step at its lower bound",
        bounds[0].seconds if bounds else None, at_least=True, labels=labels,
    )  # fmt: skip
