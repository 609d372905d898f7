"""What lives in the steps of a loop: by origin at the peak, what is kept, what checkpoints save."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from torchgauge.analyze.memory.training_passes import BlockLifetimes
from torchgauge.records.memory.alive_tensor import AliveTensor, Part
from torchgauge.records.memory.loop_memory import (
    STATES,
    Dominant,
    OutlivingTensors,
    Recomputation,
    WatchedStep,
)

TOP = 30  # origins with an entry of their own
UNSEEN = "unseen"  # the phase of what no operator of the stepping thread made
_PARTS: dict[str, Part] = {
    "forward": "activations",
    "recompute": "activations",
    "loading": "inputs",
}


class Site(NamedTuple):
    """What made a tensor."""

    phase: str
    layer: str
    line: str
    operator: str


class LiveBlock(NamedTuple):
    """A storage: its bytes, device, origin, step, and the number of its node in autograd's graph.

    `segment` is the node for which a checkpoint computed it again, 0 for none.
    """

    size: int
    device: str
    site: Site
    step: int
    node: int
    segment: int = 0


class Held(NamedTuple):
    """A block with its part, and its name where that is a state of the training."""

    block: LiveBlock
    part: Part
    name: str = ""


class Highest(NamedTuple):
    """The highest peak on a device: its bytes, the blocks alive then, and the last that began."""

    size: int
    blocks: frozenset[int]
    last: LiveBlock | None


def fold(lives: BlockLifetimes, base: set[int], peaks: dict[str, Highest]) -> set[int]:
    """Forget the events, raise `peaks` by device to theirs, and return the blocks alive at the end.

    `base` are those alive before the events.
    """
    totals: dict[str, int] = defaultdict(int)
    for number in base:
        totals[lives.blocks[number].device] += lives.blocks[number].size
    best = {device: (size, -1) for device, size in totals.items()}
    for index, (number, size) in enumerate(lives.events):
        device = lives.blocks[number].device
        totals[device] += size
        if totals[device] > best.get(device, (0, 0))[0] and index not in lives.may_replace:
            best[device] = totals[device], index
    for device, (size, index) in best.items():
        if device not in peaks or size > peaks[device].size:
            alive, last = _alive_at(lives, base, index)
            of_device = frozenset(n for n in alive if lives.blocks[n].device == device)
            peaks[device] = Highest(size, of_device, last)
    alive, _ = _alive_at(lives, base, len(lives.events) - 1)
    lives.events.clear()
    lives.may_replace.clear()
    return alive


def _alive_at(
    lives: BlockLifetimes, base: set[int], index: int
) -> tuple[set[int], LiveBlock | None]:
    """Return the blocks alive after an event, and the one that began last."""
    alive, last = set(base), None
    for number, size in lives.events[: index + 1]:
        if size < 0:
            alive.discard(number)
        else:
            alive.add(number)
            last = lives.blocks[number]
    return alive, last


def part_of(site: Site) -> Part:
    """Return the part of tensors other than states, by the phase that made them."""
    return _PARTS.get(site.phase, "workspace")


def by_origin(held: Iterable[Held]) -> tuple[AliveTensor, ...]:
    """Return blocks of one origin and step together, the largest first, states by their part."""
    groups: dict[tuple[object, ...], list[Held]] = defaultdict(list)
    for item in held:
        site = item.block.site
        is_state = item.part in STATES
        key = (item.part,) if is_state else (item.part, item.block.step, *site[:3])
        groups[key].append(item)
    tensors = sorted(map(_group, groups.values()), key=lambda tensor: -tensor.size)
    smaller: dict[Part, list[AliveTensor]] = defaultdict(list)
    for tensor in tensors[TOP:]:
        smaller[tensor.part].append(tensor)
    return (
        *tensors[:TOP],
        *(
            AliveTensor(
                part=part,
                name="",
                size=sum(tensor.size for tensor in of_part),
                count=sum(tensor.count for tensor in of_part),
            )
            for part, of_part in smaller.items()
        ),
    )


def _group(held: Sequence[Held]) -> AliveTensor:
    largest = max(held, key=lambda item: item.block.size)
    site, size = largest.block.site, sum(item.block.size for item in held)
    if largest.part in STATES:
        return AliveTensor(part=largest.part, name="", size=size, count=len(held))
    return AliveTensor(
        part=largest.part,
        name=site.layer,
        operator=site.operator,
        size=size,
        count=len(held),
        phase=site.phase,
        line=site.line,
        step=largest.block.step,
    )


def outliving_tensors(
    held: Iterable[Held], holders: Mapping[Site, tuple[str, bool]], step: int
) -> tuple[OutlivingTensors, ...]:
    """Return what is alive after `step` and no state, by origin, what grows most first.

    What an origin made in every step but the first and the last, and is still there, grows by the
    median of that; what the first step made came before the loop, or is normal.
    """
    groups: dict[Site, list[Held]] = defaultdict(list)
    for item in held:
        if item.part not in STATES:
            groups[item.block.site].append(item)
    groups_found: list[OutlivingTensors] = []
    for site, of_site in groups.items():
        sizes: dict[int, int] = defaultdict(int)
        for item in of_site:
            sizes[item.block.step] += item.block.size
        middle = [sizes.get(number, 0) for number in range(2, step)]
        growth = round(statistics.mean(middle)) if sum(map(bool, middle)) > 1 else 0
        holder, by_graph = holders.get(site, ("", False))
        tensors = msgspec.structs.replace(_group(of_site), holder=holder, step=None)
        groups_found.append(
            OutlivingTensors(
                tensors=tensors, steps=tuple(sorted(sizes)), growth=growth, by_graph=by_graph
            )
        )
    return tuple(sorted(groups_found, key=lambda group: (-group.growth, -group.tensors.size))[:TOP])


def recomputation(
    held: Sequence[Held],
    segment_sizes: Mapping[int, int],
    layers: frozenset[str],
    step: WatchedStep,
) -> Recomputation | None:
    """Return what takes most of the peak of a step with checkpoints; None where it has none.

    `segment_sizes` are the bytes that each segment made again, `layers` those that ran again.
    """
    if not segment_sizes:
        return None
    # Backward passes go from the highest node down: the segment that runs is the lowest.
    running = min((item.block.segment for item in held if item.block.segment), default=0)
    sizes: dict[Dominant, int] = defaultdict(int)
    by_layer: dict[tuple[Dominant, str], int] = defaultdict(int)
    for item in held:
        kind = _kind(item, layers, running, single=len(segment_sizes) == 1)
        sizes[kind] += item.block.size
        by_layer[kind, item.block.site.layer] += item.block.size
    dominant = max(sizes, key=lambda kind: sizes[kind])
    if step.phase == "optimizer" and sizes["optimizer"]:
        dominant = "optimizer"
    layer = max(
        (key for key in by_layer if key[0] == dominant), key=lambda key: by_layer[key], default=None
    )
    return Recomputation(
        segments=len(segment_sizes),
        largest=max(segment_sizes.values()),
        total=sum(segment_sizes.values()),
        dominant=dominant,
        size=sizes[dominant],
        layer="" if layer is None or dominant == "states" else layer[1],
    )


def _kind(item: Held, layers: frozenset[str], running: int, *, single: bool) -> Dominant:
    phase, layer = item.block.site.phase, item.block.site.layer
    # A checkpoint ends early: the last layer of a segment need not run again.
    is_inside = layer in layers or any(layer.startswith(f"{outer}.") for outer in layers if outer)
    if item.part in STATES:
        return "states"
    segment: Dominant = "one segment" if single else "segment"
    if phase == "recompute":
        return segment if item.block.segment == running else "inside"
    if phase == "backward":
        return segment if is_inside else "outside"
    if phase == "forward":
        return "inside" if is_inside else "outside"
    return "optimizer" if phase == "optimizer" else "other"
