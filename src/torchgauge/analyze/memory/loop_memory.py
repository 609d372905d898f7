"""What lives in the steps of a loop: at a peak by origin, what outlives them, checkpoints."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from torchgauge.records.memory.loop_memory import (
    STATES,
    AliveGroup,
    Checkpoints,
    LoopMemory,
    Share,
    WatchedStep,
)
from torchgauge.records.memory.memory import Part


class Site(NamedTuple):
    """What made a tensor."""

    phase: str = ""
    layer: str = ""
    line: str = ""
    operator: str = ""


@dataclasses.dataclass(slots=True, eq=False)
class LiveBlock:
    """A storage: what made it in which step, and what it is for; numbers rise as blocks begin.

    `segment` is the node for which a checkpoint made it again, 0 for none; `is_input` says that a
    checkpoint computed something again from it. `holder` is a variable, what has it, and whether
    its tensor's graph is what holds the block. `reference` calls back at the storage's end.
    """

    number: int
    size: int
    site: Site
    step: int
    part: Part
    segment: int = 0
    is_input: bool = False
    holder: tuple[str, str, bool] = ("", "", False)
    reference: Any = None

    @property
    def is_state(self) -> bool:
        """Whether it is a state of the training."""
        return self.part in STATES


class LiveBlocks:
    """The blocks alive on a device, and their peak since `restart`."""

    def __init__(self) -> None:
        self.alive: dict[int, LiveBlock] = {}
        self.total = 0
        self.restart()

    def restart(self) -> None:
        """Look for the highest peak from now on."""
        self.peak = self.total
        self._last = max(self.alive, default=-1)  # that began last before the peak
        self._freed: dict[int, LiveBlock] = {}  # since then

    def begin(self, block: LiveBlock, *, may_replace: bool) -> None:
        """Note that a block begins; with `may_replace` it may take the place of one that ends."""
        self.alive[block.number] = block
        self.total += block.size
        if self.total > self.peak and not may_replace:
            self.peak, self._last = self.total, block.number
            self._freed.clear()

    def end(self, block: LiveBlock) -> None:
        """Note that a block ends, if it has not."""
        if self.alive.pop(block.number, None) is not None:
            self.total -= block.size
            if block.number <= self._last:
                self._freed[block.number] = block

    def at_peak(self) -> list[LiveBlock]:
        """Return what was alive at the peak, in the order in which it began."""
        blocks = self._freed | self.alive
        return [blocks[number] for number in sorted(blocks) if number <= self._last]


def with_step(
    memory: LoopMemory,
    blocks: LiveBlocks,
    step: WatchedStep,
    segments: Mapping[int, int],
    layers: Collection[str],
) -> LoopMemory:
    """Return the memory of a loop with a step more.

    `segments` are the bytes that each made again in it, `layers` the names of those that ran again.
    """
    at_peak, number = blocks.at_peak(), step.number
    last = at_peak[-1].site if at_peak and at_peak[-1].step == number else Site()
    earlier = [block.size for block in at_peak if 0 < block.step < number and not block.is_state]
    step = msgspec.structs.replace(step, earlier=sum(earlier), **last._asdict())
    steps = (*memory.steps, step)
    no_states = [block for block in blocks.alive.values() if not block.is_state]
    outliving = _grouped(no_states, lambda block: block.site, range(steps[0].number, number))
    memory = msgspec.structs.replace(memory, steps=steps, outliving=outliving)
    if memory.highest is not step:
        return memory
    return msgspec.structs.replace(
        memory,
        at_peak=_grouped(at_peak, lambda block: (block.step == number, *block.site[:3])),
        checkpoints=_checkpoints(at_peak, segments, layers, last) if segments and at_peak else None,
    )


def _grouped(
    blocks: Iterable[LiveBlock], origin: Callable[[LiveBlock], Any], steps: Sequence[int] = ()
) -> tuple[AliveGroup, ...]:
    """Return blocks of one origin together, states by their part, what grows most first.

    What an origin made in most of the steps, and is still alive, grows by the mean of that. The
    last step is none of them: what it made is alive as it ends.
    """
    by_origin: dict[tuple[Part, Any], list[LiveBlock]] = defaultdict(list)
    for block in blocks:
        by_origin[block.part, None if block.is_state else origin(block)].append(block)
    groups = []
    for of_origin in by_origin.values():
        sizes: Counter[int] = Counter()
        for block in of_origin:
            sizes[block.step] += block.size
        step_sizes = [sizes[number] for number in steps]
        is_growing = sum(map(bool, step_sizes)) > max(1, len(step_sizes) / 2)
        groups.append(
            _group(of_origin, sizes, round(statistics.mean(step_sizes)) if is_growing else 0)
        )
    return tuple(sorted(groups, key=lambda group: (-group.growth, -group.size)))


def _group(blocks: Sequence[LiveBlock], sizes: Mapping[int, int], growth: int) -> AliveGroup:
    largest = max(blocks, key=lambda block: block.size)
    group = AliveGroup(part=largest.part, size=sum(sizes.values()), count=len(blocks))
    if largest.is_state:
        return group
    holder, held_in, by_graph = next((b.holder for b in blocks if b.holder[0]), ("", "", False))
    return msgspec.structs.replace(
        group,
        **largest.site._asdict(),
        steps=tuple(sorted(sizes)),
        growth=growth,
        holder=holder,
        held_in=held_in,
        by_graph=by_graph,
    )


def _checkpoints(
    at_peak: Sequence[LiveBlock], segments: Mapping[int, int], layers: Collection[str], last: Site
) -> Checkpoints:
    """Return what a peak consists of, which `last` reached."""

    def is_inside(layer: str) -> bool:
        # A checkpoint ends early: the last layer of a segment need not run again.
        return layer in layers or any(layer.startswith(f"{outer}.") for outer in layers)

    # Backward passes go from the highest node down: the segment that runs is the lowest.
    running = min((block.segment for block in at_peak if block.segment), default=0)
    in_forward = last.phase == "forward" and is_inside(last.layer)
    sizes: Counter[tuple[Share, str]] = Counter()
    shares: Counter[Share] = Counter()
    for block in at_peak:
        share = _share(block, running, is_inside, in_forward=in_forward)
        sizes[share, block.site.layer] += block.size
        shares[share] += block.size
    largest = max(shares, key=lambda share: shares[share])
    return Checkpoints(
        segments=len(segments),
        recomputed=sum(segments.values()),
        shares=dict(shares.most_common()),
        layer=max(sizes, key=lambda key: (key[0] == largest, sizes[key]))[1],
    )


def _share(
    block: LiveBlock, running: int, is_inside: Callable[[str], bool], *, in_forward: bool
) -> Share:
    phase = block.site.phase
    if block.is_state or phase == "optimizer":
        return "states"
    if phase == "recompute":
        return "running segment" if block.segment == running else "kept in segments"
    if block.is_input:
        return "segment inputs"
    if phase not in ("forward", "backward"):
        return "of no layer"
    if not is_inside(block.site.layer):
        return "outside of segments"
    return "running segment" if phase == "backward" or in_forward else "kept in segments"
