"""Eager and compiled time of the same layers, and the names in generated code.

Above a kernel's call the code names what it was made from, but not for fused kernels of the CPU:
those have their operators in their names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from torchgauge.records.timeline.compilation import ComparedLayers

_IDENTITY = re.compile(r"^# AOT ID: \['(\d+)_(\w+)'\]", re.MULTILINE)
_SOURCE = re.compile(r"^\s+# .*Source Nodes: \[([^\]]*)\], Original ATen: \[([^\]]*)\]")
_HANDLE = re.compile(r"^\s+# \[Provenance debug handles\] (\S+)")
_CALL = re.compile(
    r"^\s+(?:\w+ = )?(extern_kernels\.\w+|torch\.ops\.[\w.]+|(?:cpp|triton)_\w+?)(?:\.run)?\("
)
_FUSED = re.compile(r"(?:cpp|triton(?:_[a-z]+)?)_fused_(\w+?)_\d+")


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
    eager: SideTimes, compiled: SideTimes, kernels: Sequence[KernelTime], regions: Collection[str]
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


class KernelCall(NamedTuple):
    """A kernel as the code calls it.

    Attributes:
        nodes: Nodes of the traced program; () where the code names none.
        line: The number of the line.
        handle: By what Inductor's table of sources names this call; "" without such a table.
    """

    name: str
    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    line: int
    handle: str = ""


def identity(text: str) -> tuple[int, str] | None:
    """Return the number of the graph that the code is of, and "forward", "backward" or such."""
    match = _IDENTITY.search(text)
    return (int(match[1]), match[2]) if match else None


def kernel_calls(text: str, is_operator: Callable[[str], bool]) -> list[KernelCall]:
    """Return the calls in their order; `is_operator` knows the names that a fused one is made of.

    Raises nothing for code of another form: it has no calls then.
    """
    calls = []
    source: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    handle = ""
    for number, line in enumerate(text.splitlines(), 1):
        if source_match := _SOURCE.match(line):
            source = _listed(source_match[1]), _listed(source_match[2])
        elif handle_match := _HANDLE.match(line):
            handle = handle_match[1]
        elif call := _CALL.match(line):
            nodes, operators = source or ((), _in_name(call[1], is_operator))
            calls.append(KernelCall(call[1], operators, nodes, number, handle))
            source, handle = None, ""
    return calls


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _in_name(name: str, is_operator: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the operators that a fused kernel's name joins; an unknown word stands for itself."""
    fused = _FUSED.fullmatch(name)
    words = fused[1].split("_") if fused else []
    operators, index = [], 0
    while index < len(words):
        ends = range(len(words), index + 1, -1)
        parts = ((end, "_".join(words[index:end])) for end in ends)
        end, part = next(
            ((end, part) for end, part in parts if is_operator(part)), (index + 1, words[index])
        )
        if part:
            operators.append(f"aten.{part}")
        index = end
    return tuple(operators)
