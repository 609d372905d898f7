"""The paired run: planned blocks, one look, at most one extension, a last look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torchgauge import units
from torchgauge.analyze.statistics.paired import ESTIMATING_BLOCKS
from torchgauge.errors import TorchgaugeError
from torchgauge.measure.latency.blocks import Timed
from torchgauge.progress import Progress
from torchgauge.records.record import MeasurementWarning

LEAST_BLOCKS = 2  # blocks without which nothing can be said


@dataclass
class PairedRun:
    """The blocks of a paired run and how often they were judged.

    `interrupted` by Ctrl-C; `hopeless` where the first blocks told that all would not be enough;
    `warnings` hold the error that ended the run early.
    """

    blocks: list[Timed] = field(default_factory=list)
    look_count: int = 0
    interrupted: bool = False
    hopeless: bool = False
    warnings: list[MeasurementWarning] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """True where all planned blocks were run."""
        return not self.interrupted and not self.warnings


def run(
    block: Callable[[], Timed],
    blocks: int,
    most_blocks: int,
    decided: Callable[[Sequence[Timed]], bool],
    progress: Progress,
    hopeless: Callable[[Sequence[Timed], int], bool] = lambda _, __: False,
) -> PairedRun:
    """Run `blocks` blocks, judge, and where nothing is decided as many again, `most_blocks` in all.

    After three blocks `hopeless` tells of them and the most whether to end there. Ctrl-C ends the
    run and keeps the whole blocks. So does an error after two blocks; before them
    it is raised.
    """
    result = PairedRun()
    try:
        extended = min(2 * blocks, most_blocks)
        _extend(result, block, min(ESTIMATING_BLOCKS, blocks), progress)
        result.hopeless = hopeless(result.blocks, extended)
        if result.hopeless:
            return result
        _extend(result, block, blocks, progress)
        result.look_count = 1
        if extended > blocks and not decided(result.blocks):
            progress.start("one extension")
            _extend(result, block, extended, progress)
            result.look_count = 2
    except KeyboardInterrupt:
        result.interrupted = True
    except TorchgaugeError as error:
        if len(result.blocks) < LEAST_BLOCKS:
            raise
        prefix = f"Block {len(result.blocks) + 1}: "
        result.warnings.append(MeasurementWarning.from_error(error, "gate", prefix))
    return result


def _extend(result: PairedRun, block: Callable[[], Timed], to: int, progress: Progress) -> None:
    while len(result.blocks) < to:
        done = len(result.blocks)
        remaining = ""
        if done:
            seconds_per_block = sum(timed.duration for timed in result.blocks) / done
            remaining = f", {units.time(seconds_per_block * (to - done), 2)} left"
        progress.update(f"block {done + 1} of {to}{remaining}", done / to)
        result.blocks.append(block())
