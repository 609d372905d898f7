"""The paired run: planned blocks, one look, at most one extension, a last look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torchgauge import units
from torchgauge.errors import TorchgaugeError
from torchgauge.measure.blocks import Timed
from torchgauge.model.record import MeasurementWarning
from torchgauge.progress import Progress

LEAST = 2  # blocks without which nothing can be said


@dataclass
class PairedRun:
    """The blocks of a paired run and how often they were judged.

    `interrupted` by Ctrl-C; `warnings` hold the error that ended the run early.
    """

    blocks: list[Timed] = field(default_factory=list)
    looks: int = 0
    interrupted: bool = False
    warnings: list[MeasurementWarning] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """True where all planned blocks were run."""
        return not self.interrupted and not self.warnings


def run(
    block: Callable[[], Timed],
    blocks: int,
    most: int,
    decided: Callable[[Sequence[Timed]], bool],
    progress: Progress,
) -> PairedRun:
    """Run `blocks` blocks, judge, and where nothing is decided as many again, `most` in all.

    Ctrl-C ends the run and keeps the whole blocks. So does an error after two blocks; before them
    it is raised.
    """
    found = PairedRun()
    try:
        _extend(found, block, blocks, progress)
        found.looks = 1
        extended = min(2 * blocks, most)
        if extended > blocks and not decided(found.blocks):
            progress.start("one extension")
            _extend(found, block, extended, progress)
            found.looks = 2
    except KeyboardInterrupt:
        found.interrupted = True
    except TorchgaugeError as error:
        if len(found.blocks) < LEAST:
            raise
        where = f"Block {len(found.blocks) + 1}: "
        found.warnings.append(MeasurementWarning.of(error, "gate", where))
    return found


def _extend(found: PairedRun, block: Callable[[], Timed], to: int, progress: Progress) -> None:
    while len(found.blocks) < to:
        done = len(found.blocks)
        left = ""
        if done:
            each = sum(one.duration for one in found.blocks) / done
            left = f", {units.time(each * (to - done), 2)} left"
        progress.update(f"block {done + 1} of {to}{left}", done / to)
        found.blocks.append(block())
