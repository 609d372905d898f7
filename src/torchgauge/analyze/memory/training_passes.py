"""The peak memory of the passes of a training step, and its parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from itertools import accumulate
from typing import Literal, NamedTuple

Moment = Literal["forward", "backward", "optimizer"]


class Block(NamedTuple):
    """An allocation: bytes, its pass, and whether it ended with its operator."""

    size: int
    backward: bool
    scratch: bool = False


class BlockLifetimes:
    """The begins and ends of blocks, in order."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.events: list[tuple[int, int]] = []  # the block, and its bytes more or less
        self.may_replace: set[int] = set()

    def begin(self, block: Block, *, may_replace: bool = False) -> int:
        """Note that a block begins, and return its number.

        With `may_replace` it takes the place of another, where that ends before a third begins.
        """
        number = len(self.blocks)
        if may_replace:
            self.may_replace.add(len(self.events))
        self.blocks.append(block)
        self.events.append((number, block.size))
        return number

    def end(self, number: int) -> None:
        """Note that a block ends."""
        self.events.append((number, -self.blocks[number].size))


@dataclasses.dataclass(frozen=True)
class Passes:
    """Forward and backward pass in bytes, beyond what was there before.

    Attributes:
        peak: The most that was alive at once.
        moment: The pass in which that was.
        parts: What was alive then: gradients of parameters, activations (made in the forward pass,
            outputs and cast weights among them), workspace (all else). They add up to `peak`.
        activations: Alive at the end of the forward pass.
        after_backward: Alive at the end of the backward pass: gradients, outputs.
    """

    peak: int
    moment: Moment
    parts: dict[str, int]
    activations: int
    after_backward: int


def passes(lives: BlockLifetimes, forward_end: int, gradients: Iterable[int]) -> Passes:
    """Return what two passes need; `forward_end` events belong to the first, all to both."""
    live = list(accumulate(size for _, size in lives.events))
    counted = [0 if index in lives.may_replace else size for index, size in enumerate(live)]
    peak = max(counted, default=0)
    peak_event = counted.index(peak) if counted else -1
    return Passes(
        peak=peak,
        moment="forward" if peak_event < forward_end else "backward",
        parts=_parts(lives, peak_event, frozenset(gradients)),
        activations=live[forward_end - 1] if forward_end else 0,
        after_backward=live[-1] if live else 0,
    )


def _parts(lives: BlockLifetimes, peak_event: int, gradients: frozenset[int]) -> dict[str, int]:
    parts = {"gradients": 0, "activations": 0, "workspace": 0}
    for number, size in lives.events[: peak_event + 1]:
        block = lives.blocks[number]
        if number in gradients:
            parts["gradients"] += size
        elif block.backward or block.scratch:
            parts["workspace"] += size
        else:
            parts["activations"] += size
    return parts
