"""A call of an operator of a trace file, replayed on this machine."""

from __future__ import annotations

from pathlib import Path

from torchgauge.analyze.trace.device_work import attributed
from torchgauge.analyze.trace.recording import recorded_call
from torchgauge.progress import Progress
from torchgauge.records.trace.replay import RecordedCall, Replay
from torchgauge.traces.rank_file import events_of
from torchgauge.traces.read_options import ReadOptions
from torchgauge.traces.trace_files import files_by_rank, rank_unknown

BUDGET = 5.0  # seconds of sampling


def find_call(
    path: Path, text: str, rank: int | None, reading: ReadOptions, progress: Progress
) -> RecordedCall:
    """Return the call that "aten::mm#12" names in a file, or in that of one rank of several.

    Raises InputError as `recorded_call` and for files, `rank-unknown`.
    """
    rank_files = files_by_rank(path)
    if rank_files is not None:
        if rank is None:
            rank = min(rank_files)
        if rank not in rank_files:
            raise rank_unknown(path.name, [*rank_files], rank)
        path = rank_files[rank]
    events = events_of(str(path), reading, progress)
    _, spans = attributed(events)
    return recorded_call(events, spans, text)


def replay(call: RecordedCall, device: str | None, budget: float, progress: Progress) -> Replay:
    """Time the call again on a device, None: a GPU where the call used one and one is here.

    Raises InputError as `measure.latency.operator_replay.replayed`, and for the device.
    """
    from torchgauge.device.select import resolve
    from torchgauge.measure.latency.operator_replay import replayed

    likely = "cpu" if call.device is None else "auto"
    progress.start("latency")
    return replayed(call, resolve(likely if device is None else device), budget, progress)
