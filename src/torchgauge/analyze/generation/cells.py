"""The calls of one shape summed up in a cell, with the lower bounds of its decode steps."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from torchgauge.analyze.latency.run_spread import process_interval
from torchgauge.analyze.work.bottleneck import IMPOSSIBLE
from torchgauge.analyze.work.roof_quality import disturbed
from torchgauge.records.generation.call import Forwards, GenerationCall
from torchgauge.records.generation.cell import GenerationCell, RepeatedTime, StageWork, Status
from torchgauge.records.generation.generation import LargestBatch
from torchgauge.records.record import Interval
from torchgauge.records.work.roofline import Roofs


class DecodeStep(NamedTuple):
    """One decode forward and the time until the next one begins, or until the call ends.

    Attributes:
        sequences: Rows of its batch.
        tokens: Positions of a sequence that it computed.
        context: Positions that the last of these attends to.
        forward: Seconds of the forward.
        between: Seconds after it in which no forward ran.
        period: Seconds until the next decode forward: a draft's forwards are in it.
    """

    sequences: int
    tokens: int
    context: int
    forward: float
    between: float
    period: float


def decode_steps(call: GenerationCall) -> tuple[DecodeStep, ...]:
    """Return the decode steps of a call, in order; not the last of a call that an exception ended.

    Where forwards were timed on their device, what the host waits for them is not between them.
    """
    forwards = call.forwards
    indices = forwards.indices("decode")
    next_indices = [*indices[1:], len(forwards)] if indices else []
    ends = [*forwards.begin, call.duration]
    steps = tuple(
        _step(forwards, index, range(index, later), ends[later])
        for index, later in zip(indices, next_indices, strict=True)
    )
    return steps[:-1] if call.error else steps


def _step(forwards: Forwards, index: int, run: range, end: float) -> DecodeStep:
    """Return the step whose forwards, the draft's after it included, are those of `run`."""
    period = max(0.0, end - forwards.begin[index])
    return DecodeStep(
        sequences=forwards.sequences[index],
        tokens=forwards.tokens[index],
        context=forwards.cached[index] + forwards.tokens[index],
        forward=forwards.seconds(index),
        between=max(0.0, period - sum(map(forwards.seconds, run))),
        period=period,
    )


_Call = TypeVar("_Call")

CACHE_KINDS = {"DynamicCache": "dynamic", "StaticCache": "static"}
# Types and ids of what allocators raise; a host's is a RuntimeError, which may be anything else.
OUT_OF_MEMORY = frozenset({"OutOfMemoryError", "MemoryError", "out-of-memory"})


class _Shape(NamedTuple):
    """What calls of one cell share."""

    batch: int
    prompt: int
    beams: int
    cache_kind: str
    assisted: bool


def cells(calls: Iterable[GenerationCall]) -> tuple[GenerationCell, ...]:
    """Group calls by their shape and return a cell of each, in the order of their first calls.

    Calls with an assistant are apart from those without. None is warm-up: a program's first call is
    one of its calls. A call that failed before its cache was seen joins others of its size.
    """
    groups: dict[_Shape, list[GenerationCall]] = {}
    for call in calls:
        groups.setdefault(_shape(call, groups), []).append(call)
    return tuple(
        cell(
            group,
            batch=shape.batch,
            prompt=shape.prompt,
            beams=shape.beams,
            cache_kind=shape.cache_kind,
        )
        for shape, group in groups.items()
    )


def cell(
    calls: Sequence[GenerationCall],
    *,
    batch: int,
    prompt: int,
    beams: int,
    cache_kind: str,
    warmup: int = 0,
) -> GenerationCell:
    """Return the cell of calls of one shape, in their order; the first `warmup` are in no figure.

    Without a call that returned, the status is what ended the last one; the times of its forwards
    are kept where it was interrupted. Counted work and memory are not part of calls: they are None.
    """
    shape = GenerationCell(
        batch=batch,
        prompt=prompt,
        new_tokens=max((call.new_tokens for call in calls), default=0),
        beams=beams,
        cache_kind=cache_kind,
        calls=tuple(calls),
        warmup=warmup,
    )
    timed = shape.timed_calls
    status = "done" if timed else _status(calls)
    forward_calls = timed or [call for call in calls if call.interrupted]
    steps = [decode_steps(call) for call in forward_calls]
    return replace(
        shape,
        status=status,
        reason="" if timed else _reason(calls),
        error="" if timed else next((call.error for call in reversed(calls) if call.error), ""),
        ttft=_repeated(timed, lambda call: call.first_token),
        tpot=_repeated(timed, lambda call: call.per_token),
        end_to_end=_repeated(timed, lambda call: call.duration),
        prefill=_repeated(forward_calls, lambda call: call.prefill),
        step=_repeated(steps, lambda of_call: _median(step.forward for step in of_call)),
        between=_repeated(steps, lambda of_call: _median(step.between for step in of_call)),
        tokens_per_second=_repeated(timed, _tokens_per_second),
        prefill_tokens_per_second=_repeated(forward_calls, _prefill_tokens_per_second),
        cache=next((call.cache for call in reversed(timed) if call.cache is not None), None),
    )


def cache_kind(call: GenerationCall) -> str:
    """Return "dynamic", "static", "none", "unknown", or the name of another cache's class."""
    if call.cache is None:
        without = len(call.forwards) and not any(call.forwards.cached)
        return "none" if without else "unknown"
    return CACHE_KINDS.get(call.cache.kind, call.cache.kind)


def _shape(call: GenerationCall, groups: Iterable[_Shape]) -> _Shape:
    beams = max(1, call.sequences // max(1, call.batch))
    assisted = bool(call.forwards.indices("draft"))
    shape = _Shape(call.batch, call.prompt, beams, cache_kind(call), assisted)
    if call.error and call.cache is None:
        sizes = shape[:3]
        return next((other for other in groups if other[:3] == sizes), shape)
    return shape


def _repeated(
    calls: Iterable[_Call], value: Callable[[_Call], float | None]
) -> RepeatedTime | None:
    """Return the median of the calls' values with its interval; None where no call has one."""
    values = [number for call in calls if (number := value(call)) is not None]
    if not values:
        return None
    return RepeatedTime(
        value=statistics.median(values), interval=_interval(values), calls=len(values)
    )


def _interval(values: Sequence[float]) -> Interval | None:
    """Return the interval over calls of one process, wider where neighbours are alike."""
    interval = process_interval(values)
    return None if interval is None else replace(interval, scope="process")


def _median(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return statistics.median(numbers) if numbers else None


def _tokens_per_second(call: GenerationCall) -> float | None:
    if not call.new_tokens or call.duration <= 0:
        return None
    return call.batch * call.new_tokens / call.duration


def _prefill_tokens_per_second(call: GenerationCall) -> float | None:
    return call.batch * call.prompt / call.prefill if call.prefill else None


def _status(calls: Sequence[GenerationCall]) -> Status:
    if not calls:
        return "skipped"
    if calls[-1].interrupted:
        return "interrupted"
    return "out of memory" if calls[-1].error in OUT_OF_MEMORY else "failed"


def _reason(calls: Sequence[GenerationCall]) -> str:
    if not calls:
        return "it was not called"
    last = calls[-1]
    if last.interrupted:
        return f"it was interrupted after {len(last.forwards)} forwards"
    return f"it ended with {last.error}" if last.error else "every call is warm-up"


def bounded(
    work: StageWork, roofs: Roofs | None, dtype: str, seconds: float | None, *, tf32: bool = False
) -> StageWork:
    """Return the work with its lower bound, what sets that, and the share that `seconds` reach.

    The bound is the longer of two times: all operations at the peak of `dtype`, and all bytes.
    Weights and cache are read again by each forward, so they move at the bandwidth of a working set
    of their size; activations may stay in the nearest cache, and move at the highest. What sets the
    bound is None where neither moves nor computes anything. Nothing is known of it where a peak,
    a bandwidth or a part of the work is unknown, nor under roofs that were measured beside other
    work and that the time shows to be far too low.
    """
    compute = _compute_time(work, roofs, dtype, tf32)
    memory = _memory_time(work, roofs)
    if roofs is None or compute is None or memory is None:
        return replace(work, lower_bound=None, bound=None, reached=None)
    bound = max(compute, memory)
    if seconds and disturbed(roofs) and bound > IMPOSSIBLE * seconds:
        return replace(work, lower_bound=None, bound=None, reached=None)
    sets: Literal["compute", "memory"] = "compute" if compute > memory else "memory"
    return replace(
        work,
        lower_bound=bound,
        bound=sets if bound else None,
        reached=bound / seconds if seconds and bound else None,
    )


def _compute_time(work: StageWork, roofs: Roofs | None, dtype: str, tf32: bool) -> float | None:
    if roofs is None or work.flops is None:
        return None
    peak = roofs.peak(dtype, tf32=tf32)
    if peak:
        return work.flops / peak
    # Fewer operations than bytes are never what takes the time.
    return 0.0 if work.bytes is not None and work.flops <= work.bytes else None


def _memory_time(work: StageWork, roofs: Roofs | None) -> float | None:
    if roofs is None or work.weight_bytes is None or work.cache_bytes is None:
        return None
    stored_bytes = work.weight_bytes + work.cache_bytes
    far, near = roofs.bandwidth_at(stored_bytes), roofs.bandwidth_at(0)
    if not far or not near or work.activation_bytes is None:
        return None
    return stored_bytes / far + work.activation_bytes / near


def largest_batch(cells: Iterable[GenerationCell], capacity: int | None) -> LargestBatch | None:
    """Return the largest batch that is expected to fit into `capacity` bytes.

    Of the cells of one prompt, number of beams and kind of cache whose peak was measured at two
    batches at least: those of the longest prompt, of the most batches among these. The peak of the
    last step grows by so many bytes with each prompt of the batch: the line through the smallest
    and the largest batch, which a peak between them must not lie above. A batch that ran out of
    memory bounds it from above, one that was done from below. None where no two batches were
    measured, or a larger one takes no more.
    """
    cells = tuple(cells)
    rows: dict[tuple[int, int, str], dict[int, int]] = {}
    for cell in cells:
        if cell.done and cell.memory is not None and not cell.assisted:
            rows.setdefault(_row(cell), {})[cell.batch] = cell.memory.peak
    rows = {row: peaks for row, peaks in rows.items() if len(peaks) > 1}
    if not capacity or not rows:
        return None
    row = max(rows, key=lambda row: (row[0], len(rows[row])))
    peaks = rows[row]
    fixed, per_batch = _line(peaks)
    if per_batch < 1:
        return None
    row_cells = [cell for cell in cells if _row(cell) == row]
    done = max(cell.batch for cell in row_cells if cell.done)
    failed = min((c.batch for c in row_cells if c.status == "out of memory"), default=None)
    fits = max(0, (capacity - fixed) // per_batch)
    if failed is not None:
        fits = min(fits, failed - 1)
    prompt, beams, _ = row
    return LargestBatch(
        context=prompt + max(1, *(cell.new_tokens for cell in row_cells)) - 1,
        capacity=capacity,
        fixed=fixed,
        per_sequence=-(-per_batch // beams),
        largest=max(fits, done),
        done=done,
        failed=failed,
    )


def _row(cell: GenerationCell) -> tuple[int, int, str]:
    return cell.prompt, cell.beams, cell.cache_kind


def _line(peaks: dict[int, int]) -> tuple[int, int]:
    """Return (fixed, per batch) in whole bytes, so that no measured peak lies above the line."""
    low, high = min(peaks), max(peaks)
    per_batch = -(-(peaks[high] - peaks[low]) // (high - low))
    return max(0, *(peak - per_batch * batch for batch, peak in peaks.items())), per_batch
