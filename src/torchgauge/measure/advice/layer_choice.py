"""Choose the layers to change so that the output stays within its tolerance."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from torch import nn

from torchgauge.errors import TorchgaugeError
from torchgauge.measure.advice.check import CheckSource, OutputSnapshot, judged, outputs_of
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.records.advice import LeftOut, OutputCheck
from torchgauge.targets import members
from torchgauge.targets.changed_target import changed
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.placement import Placement

MOST_GROUPS = 12
COPY = "import copy\nmodel = copy.deepcopy(model)"


class LayerGroup(NamedTuple):
    """Layers that are changed together: module paths that they are under, bytes of parameters."""

    paths: tuple[str, ...]
    size: int


class LayerChoice(msgspec.Struct, frozen=True):
    """Layers that a change keeps the output with.

    Attributes:
        paths: Module paths of the layers, or of modules around them; empty where none holds.
        share: Their share of the parameters' bytes of all layers of these kinds.
        left_out: The other layers, and what the output was with them changed.
    """

    paths: tuple[str, ...]
    share: float
    left_out: tuple[LeftOut, ...] = ()


@dataclasses.dataclass(frozen=True)
class LayerChoiceSource(CheckSource):
    """A source with a change to layers of some kinds, whose `lines` name the layers."""

    kinds: tuple[str, ...] = ()
    lines: Callable[[Sequence[str]], str] = "".join


def chosen(source: LayerChoiceSource, placement: Placement, options: LatencyOptions) -> LayerChoice:
    """Choose layers by their outputs alone: each group by itself, then the largest ones together.

    Raises what running the original raises.
    """
    before, _ = outputs_of(source, placement, options)

    def check(paths: tuple[str, ...]) -> OutputCheck:
        return _check(source, placement, options, before, paths)

    model = module_of(placement.model)
    groups = [] if model is None else layer_groups(model, source.kinds)
    left_out: list[LeftOut] = []
    holding: list[LayerGroup] = []
    for group in groups:
        output = check(group.paths)
        if output.passed:
            holding.append(group)
        else:
            left_out.append(LeftOut(paths=group.paths, output=output, tested_alone=True))
    selected: list[LayerGroup] = []
    for group in sorted(holding, key=lambda group: -group.size):
        joint_paths = _paths([*selected, group])
        joint_output = check(joint_paths) if selected else None
        if joint_output is None or joint_output.passed:
            selected.append(group)
        else:
            left_out.append(LeftOut(paths=group.paths, output=joint_output, tested_alone=False))
    size = sum(group.size for group in groups)
    share = sum(group.size for group in selected) / size if size else 0.0
    ordered = [group for group in groups if group in selected]
    return LayerChoice(_paths(ordered), share, tuple(left_out))


def _paths(groups: Sequence[LayerGroup]) -> tuple[str, ...]:
    return tuple(path for group in groups for path in group.paths)


def _check(
    source: LayerChoiceSource,
    placement: Placement,
    options: LatencyOptions,
    before: OutputSnapshot,
    paths: tuple[str, ...],
) -> OutputCheck:
    """Compare the output of a copy with these layers changed; what it raises does not pass."""
    try:
        after, _ = outputs_of(source, changed(placement, (COPY, source.lines(paths))), options)
        return judged(source, before, after)
    except TorchgaugeError as error:
        return OutputCheck(
            passed=False, bound=source.tolerance, reason=error.cause or error.message
        )


def layer_groups(model: nn.Module, kinds: Sequence[str]) -> list[LayerGroup]:
    """Group layers of some kinds by the module around them, in the model's order.

    At most `MOST_GROUPS`: of the depths of module paths the first that tells as many apart is
    taken, then the smallest neighbours are joined.
    """
    classes = {getattr(nn, kind) for kind in kinds}
    sizes = {
        path: sum(tensor.nbytes for tensor in members.parameters(layer))
        for path, layer in model.named_modules()
        if type(layer) in classes
    }
    groups: list[LayerGroup] = []
    for depth in range(1, 1 + max((path.count(".") + 1 for path in sizes), default=0)):
        groups = _at_depth(sizes, depth)
        if len(groups) >= MOST_GROUPS:
            break
    while len(groups) > MOST_GROUPS:
        joined = [
            LayerGroup(a.paths + b.paths, a.size + b.size) for a, b in itertools.pairwise(groups)
        ]
        smallest = min(range(len(joined)), key=lambda number: joined[number].size)
        groups[smallest : smallest + 2] = [joined[smallest]]
    return groups


def _at_depth(sizes: dict[str, int], depth: int) -> list[LayerGroup]:
    by_path: dict[str, int] = {}
    for path, size in sizes.items():
        block = ".".join(path.split(".")[:depth])
        by_path[block] = by_path.get(block, 0) + size
    return [LayerGroup((path,), size) for path, size in by_path.items()]
