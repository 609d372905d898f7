"""Eager and compiled time of the same layers; those that a fused kernel spans are one entry."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from torchgauge.records.timeline.compilation import ComparedLayers


class KernelTime(NamedTuple):
    """A kernel's seconds of a step, and the layers it runs for; None: not known."""

    name: str
    layers: tuple[str, ...] | None
    time: float


class SideTimes(NamedTuple):
    """Seconds of a step: of all, and of each layer itself by its path."""

    step: float
    layers: Mapping[str, float]


def compared_layers(
    eager: SideTimes,
    compiled: SideTimes,
    kernels: Sequence[KernelTime],
    regions: Collection[str],
    *,
    separated: bool = True,
) -> tuple[ComparedLayers, ...]:
    """Return entries that add up to the eager and to the compiled step.

    `separated`: all kernels of compiled code were seen, so that a layer without one takes nothing.
    `regions` are the layers whose calls run compiled code: what they take themselves, without their
    kernels, is outside kernels. The rest of the step is what these do not explain: what is in no
    layer, and interruptions. It is below zero where the parts were slower than the bare step.
    """
    names: dict[str, None] = dict.fromkeys(eager.layers)
    names |= dict.fromkeys(path for path in compiled.layers if path not in regions)
    groups = _joined(names, [kernel.layers for kernel in kernels if kernel.layers])
    attributed = separated and all(kernel.layers for kernel in kernels)
    without_kernel = 0.0 if attributed else None
    rows = [_group(group, eager, compiled, kernels, regions, without_kernel) for group in groups]
    rows.sort(key=lambda row: -(row.eager or 0.0))
    return (*rows, *_remainders(eager, compiled, kernels, regions))


def _joined(names: Iterable[str], shared: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield the layers in groups that no kernel spans two of."""
    group_of = {name: [name] for name in names}
    for layers in shared:
        merged: list[str] = []
        for layer in layers:
            group = group_of.get(layer, [layer])
            if group is not merged:
                merged += group
                group_of |= dict.fromkeys(group, merged)
    yielded: set[int] = set()
    for group in group_of.values():
        if id(group) not in yielded:
            yielded.add(id(group))
            yield tuple(group)


def _group(
    group: tuple[str, ...],
    eager: SideTimes,
    compiled: SideTimes,
    kernels: Sequence[KernelTime],
    regions: Collection[str],
    without_kernel: float | None,
) -> ComparedLayers:
    own = [kernel for kernel in kernels if kernel.layers and kernel.layers[0] in group]
    eager_times = [eager.layers[path] for path in group if path in eager.layers]
    times = [kernel.time for kernel in own]
    times += [compiled.layers[p] for p in group if p in compiled.layers and p not in regions]
    return ComparedLayers(
        layers=group,
        eager=sum(eager_times) if eager_times else None,
        compiled=sum(times) if times else without_kernel,
        kernels=tuple(kernel.name for kernel in own),
    )


def _remainders(
    eager: SideTimes,
    compiled: SideTimes,
    kernels: Sequence[KernelTime],
    regions: Collection[str],
) -> Iterator[ComparedLayers]:
    unknown = [kernel for kernel in kernels if not kernel.layers]
    if unknown:
        yield ComparedLayers(
            part="kernels of unknown layers",
            compiled=sum(kernel.time for kernel in unknown),
            kernels=tuple(kernel.name for kernel in unknown),
        )
    own = [time for path, time in compiled.layers.items() if path in regions]
    if own:
        yield ComparedLayers(part="compiled code outside kernels", compiled=sum(own))
    in_kernels = sum(kernel.time for kernel in kernels)
    yield ComparedLayers(
        part="rest of the step",
        eager=eager.step - sum(eager.layers.values()),
        compiled=compiled.step - in_kernels - sum(compiled.layers.values()),
    )
