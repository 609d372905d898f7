"""How the files of recorded traces are read, as users ask for it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from torchgauge.errors import InputError

if TYPE_CHECKING:
    from torchgauge.analyze.trace.selection import Part


TIMELINE_BYTES = 5_500_000  # of a page's timeline: 7.4 MB of its text


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """How files are read; see `read_trace`.

    Attributes:
        python: Whether the Python functions of traces with stacks are kept.
        partial: Whether a damaged file gives what can be read of it.
        cache: Whether events are kept beside each file, and read from there.
        memory_limit: Bytes, of all processes together; None is no limit.
        begin: Seconds from the window's begin; what is before is left out.
        end: Seconds from the window's begin; what is at that time or after is left out.
        step: The marked step that is read; None is all of the trace.
        capture: A recording of the capture of CUDA graphs that the files replay, or a folder of
            such; None is the folder `capture_traces` beside a file, where there is one.
        timeline_bytes: What the events for the page's timeline may take, of all files together; 0
            is without them.
        workers: How many of several files are read at once; None is as many as cores.

    Raises InputError `cache-and-limit`.
    """

    python: bool = False
    partial: bool = False
    cache: bool = False
    memory_limit: int | None = None
    workers: int | None = None
    begin: float | None = None
    end: float | None = None
    step: int | None = None
    timeline_bytes: int = 0
    capture: str | None = None

    @property
    def part(self) -> Part:
        """The part of each file that is analysed.

        Raises InputError `option-invalid` for times that no trace has.
        """
        from torchgauge.analyze.trace.selection import Part  # it needs NumPy

        return Part(self.begin, self.end, self.step)

    def __post_init__(self) -> None:
        if self.cache and self.memory_limit is not None:
            raise InputError(
                "A cache holds a whole trace, and a memory limit may cut it.",
                id="cache-and-limit",
                remedy="Leave out one of the two.",
            )
