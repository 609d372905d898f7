"""Recorded traces, read from files: of one process, or of all ranks of a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.api.preparation import measuring, require_torch
from torchgauge.progress import showing
from torchgauge.traces.read_options import TIMELINE_BYTES, ReadOptions

if TYPE_CHECKING:
    from torchgauge.records.trace.replay import Replay
    from torchgauge.records.trace.trace import Trace
    from torchgauge.records.trace.trace_diff import TraceDiff
    from torchgauge.traces.conversions import Form


def read_trace(
    path: str | Path,
    *,
    rank: int | None = None,
    begin: float | None = None,
    end: float | None = None,
    step: int | None = None,
    python: bool = False,
    partial: bool = False,
    cache: bool = False,
    memory_limit: int | None = None,
    workers: int | None = None,
    capture: str | Path | None = None,
    timeline: bool = False,
    progress: bool | None = None,
) -> Trace:
    """Read a Kineto trace, or those of a job's ranks in a folder or a zip; torch is not needed.

    All of it is read, or a part, as if no more had been recorded: `step` is the number of a marked
    step, `begin` and `end` are in s from the window's begin, of one rank only. Host code is in the
    part if it begins there, device work if its launch does. Of several files `rank` reads one.
    `python` keeps the Python functions of a trace with stacks, which are most of its events. With
    `partial` a damaged file gives what can be read of it, and a warning. `cache` keeps the events
    beside each file in `FILE.torchgauge.parquet`, and reads that while the file is unchanged (extra
    `parquet`). `memory_limit` is in bytes, of all processes together: of a file that needs more the
    first part is read, and a warning says up to when. Of several files `workers` are read at once,
    as many as there are cores unless said otherwise; one that cannot be read is a failed warning,
    and the others stay; JSON of another kind is left out with a warning. Kernels that CUDA
    graphs replay get the operators of the recording of the graphs' capture: `capture` is that file,
    or a folder of such, by default `capture_traces` beside the file. `timeline` keeps what the
    page's timeline shows. Of an archive nothing is unpacked to disk, and nothing cached.

    Raises InputError as `torchgauge.readers.kineto.kineto.read_events`, and `trace-none` for a
    folder without traces, `cache-and-limit`, `rank-unknown`, `step-unknown`, `part-empty`,
    `option-invalid`, `option-conflict`; MissingExtraError where `cache` needs PyArrow.

    Examples:
        >>> import torch, torchgauge as tg
        >>> with torch.profiler.profile() as recording:
        ...     y = torch.nn.Linear(4, 2)(torch.ones(8, 4))
        >>> recording.export_chrome_trace("trace.json")
        >>> trace = tg.read_trace("trace.json")
        >>> trace.ranks[0].contents.operators > 0
        True
    """
    options = ReadOptions(
        python,
        partial,
        cache,
        memory_limit,
        workers,
        begin=begin,
        end=end,
        step=step,
        timeline_bytes=TIMELINE_BYTES if timeline else 0,
        capture=None if capture is None else str(capture),
    )
    from torchgauge.traces.rank_files import read

    with showing(progress) as display:
        return read(Path(path), options, display, rank)


def compare_traces(
    baseline: Trace | str | Path,
    current: Trace | str | Path,
    *,
    rank: int | None = None,
    timeline: bool = False,
) -> TraceDiff:
    """Compare two traces, or the files or folders that hold them: `rank` of both, else the first.

    `timeline` keeps of files what the page's timelines show.

    Raises InputError `rank-unknown`, and what `read_trace` raises.
    """
    from torchgauge.traces.rank_files import compared

    return compared(baseline, current, rank, TIMELINE_BYTES // 2 if timeline else 0)


def replay_operator(
    path: str | Path,
    operator: str,
    *,
    rank: int | None = None,
    device: str | None = None,
    budget: float | None = None,
    partial: bool = False,
    cache: bool = False,
    progress: bool | None = None,
) -> Replay:
    """Time one recorded call of an operator again, with its sizes, types and strides.

    `operator` is a name with the number of the call, from 1: "aten::mm#12"; without a number it is
    the first. Values are made up, and no code of the file runs: the name must be one of torch's own
    operators. `device` None is a GPU where the call used one and one is here, else the CPU;
    `budget` is in seconds of sampling (default 5). `rank` chooses among several files, None is the
    first. The other options are those of `read_trace`.

    Raises InputError as `read_trace` for files, `rank-unknown`, `operator-unknown`, `call-unknown`,
    `inputs-absent` where no sizes were recorded, `operator-not-replayable` with the cause,
    `operator-too-large`, `device-unknown`, `device-absent`.

    Examples:
        >>> import torch, torchgauge as tg
        >>> with torch.profiler.profile(record_shapes=True) as recording:
        ...     y = torch.mm(torch.ones(8, 4), torch.ones(4, 2))
        >>> recording.export_chrome_trace("trace.json")
        >>> replay = tg.replay_operator("trace.json", "aten::mm", budget=0.1)
        >>> replay.latency.median > 0
        True
    """
    from torchgauge.traces import operator_replay

    reading = ReadOptions(partial=partial, cache=cache)
    with showing(progress) as display:
        call = operator_replay.find_call(Path(path), operator, rank, reading, display)
    require_torch()
    seconds = operator_replay.BUDGET if budget is None else budget
    with measuring(progress) as display:
        return operator_replay.replay(call, device, seconds, display)


def convert_trace(
    path: str | Path,
    to: Form,
    output: str | Path,
    *,
    rank: int | None = None,
    begin: float | None = None,
    end: float | None = None,
    step: int | None = None,
    layer: str | None = None,
    python: bool = False,
    partial: bool = False,
    cache: bool = False,
    progress: bool | None = None,
) -> Path:
    """Write a trace, or a selected part of it, in another format; return the path.

    `to`: "speedscope" (a profile for each stream and thread, in real time), "folded" (stacks of
    layers, operators and kernels with their time in ns), "parquet" (all events as a table; extra
    `parquet`), or "chrome" (the recorded events themselves; several ranks on one clock, each with
    its own processes). It is compressed if `output` ends in
    .gz. `begin` and `end` are in s from the window's begin, `step` is the number of a marked step,
    `layer` a layer's path; host code is included if it begins in the part, device work if its
    launch does. The other options are those of `read_trace`.

    Raises InputError as `read_trace` for files, `rank-unknown`, `step-unknown`, `layer-unknown`,
    `part-empty`, `format-absent`, `option-conflict`, `output-unwritable`; MissingExtraError.

    Examples:
        >>> import torch, torchgauge as tg
        >>> with torch.profiler.profile() as recording:
        ...     y = torch.nn.Linear(4, 2)(torch.ones(8, 4))
        >>> recording.export_chrome_trace("trace.json")
        >>> str(tg.convert_trace("trace.json", "folded", "trace.folded"))
        'trace.folded'
    """
    from torchgauge.analyze.trace.selection import Part
    from torchgauge.traces.conversions import Conversion, converted, write

    part, reading = Part(begin, end, step, layer), ReadOptions(python, partial, cache)
    parts = converted(Path(path), Conversion(to, rank, part, reading), progress)
    return write(parts, Path(output))
