"""The file of one rank, read in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torchgauge.analyze.communication.collectives import Calls
from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.analyze.trace.recording import devices, recording
from torchgauge.analyze.trace.selection import select, selected_events, waits_for_others
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.progress import Progress
from torchgauge.readers.kineto.heads import PythonDetail
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.trace.events import Events
from torchgauge.records.trace.trace import RankTrace
from torchgauge.records.work.roofline import Roofs
from torchgauge.traces.read_options import ReadOptions


class RankResult(NamedTuple):
    """What was read from one rank's file: its record and collectives, or the error it ended in."""

    file: str
    rank: RankTrace | None = None
    calls: Calls = Calls({})
    error: TorchgaugeError | None = None


def read_rank(file: str, options: ReadOptions, progress: Progress | None = None) -> RankResult:
    """Read one file in this process; what is wrong with it is raised."""
    events = events_of(file, options, progress, launch_arrows=False)
    if progress is not None:
        progress.start("analysing")
    name, part = Path(file).name, options.part
    behind_others = False
    if not part.is_whole:
        complete_recording = recording(events)
        selection = select(complete_recording, part)
        behind_others = waits_for_others(complete_recording, selection)
        events = selected_events(events, selection)
    roofs = datasheet([device.name for device in devices(events)])
    rank, calls = rank_trace(
        events,
        name,
        str(part),
        behind_others=behind_others,
        timeline_bytes=options.timeline_bytes,
        roofs=roofs,
    )
    return RankResult(file, rank, calls)


def datasheet(names: Sequence[str]) -> Roofs | None:
    """Return the roofs of the device by its name; None of several kinds, or of an unknown one."""
    from torchgauge.device.roofs import peaks

    with contextlib.suppress(InputError):
        return peaks.find(names[0]) if len(set(names)) == 1 else None
    return None


def events_of(
    file: str,
    options: ReadOptions,
    progress: Progress | None = None,
    *,
    launch_arrows: bool = True,
) -> Events:
    """Return the events of one file, from the cache beside it if requested.

    `launch_arrows` as `read_events` takes it; a cache has them in any case.
    """
    detail: PythonDetail = "all" if options.python else "modules"
    if progress is not None:
        progress.start("reading")
    if options.cache:
        from torchgauge.traces.trace_cache import cached_events

        return cached_events(Path(file), python=detail, partial=options.partial, progress=progress)
    return read_events(
        file,
        python=detail,
        launch_arrows=launch_arrows,
        partial=options.partial,
        memory_limit=options.memory_limit,
        progress=progress,
    )
