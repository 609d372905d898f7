"""Threads that a recording of a loop leaves out, by their names."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType

import torch

from torchgauge.records.record import MeasurementWarning

_TORCH = str(Path(torch.__file__).parent)
NAMED = 5  # threads that a warning names; it counts the others


class ExcludedThreads:
    """Names of threads that worked with torch beside the one that is recorded."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def note(self) -> None:
        """Take note of the thread that calls."""
        self.names[threading.current_thread().name] = None

    def look(self) -> None:
        """Take note of the other threads that are in code of torch at this moment."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        frames = sys._current_frames()  # noqa: SLF001 (there is no public way)
        # Its own would be a cycle, which would keep what the user's functions hold.
        frames.pop(threading.get_ident(), None)
        for ident, frame in frames.items():
            if ident in names and _in_torch(frame):
                self.names[names[ident]] = None

    def warnings(self) -> tuple[MeasurementWarning, ...]:
        """Return the warning of these threads; nothing where there were none."""
        if not self.names:
            return ()
        return (
            MeasurementWarning(
                id="threads-unrecorded",
                message=f"Other threads worked with torch, which are not recorded: "
                f"{listed(list(self.names))}. What they do is in no figure.",
                probe="timeline",
                cause="torch crashes or hangs where another thread is in an operator as a "
                "recording of all threads begins or ends.",
                remedy="Let those threads pause around it and give all_threads=True "
                "(`torchgauge run --all-threads script.py`), or run the loop under the timeline in "
                "their thread.",
            ),
        )


def listed(names: list[str]) -> str:
    """Return the names with commas, the first NAMED of many."""
    remaining = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {remaining} more" if remaining > 0 else "")


def _in_torch(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_TORCH):
            return True
        frame = frame.f_back
    return False
