"""The record of one rank's trace: every figure that its events give.

Kernels that may communicate are those of unknown names on streams that else communicate. A stream
has a role: torch gives each process group one of its own. A kernel there whose name no library of
communication is known to give may still be one (a library that is not known here). It counts as
computation, as any kernel does, and is listed, so that nobody takes it for granted.

A sequence of length p repeats where each kernel is the one that ran p before it. Lengths to try are
the distances between one call of a kernel and its next, those of most time first. Of all repeating
sequences the one is taken that explains most of the time by the least: its time without one
repetition. What it covers is left out, and the rest is searched again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from torchgauge.analyze.communication.collectives import (
    Calls,
    collectives,
    exposed_last,
    rank_calls,
    sent_to_ranks,
)
from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.host.host_delays import caused_by_waits, host_delays, host_pauses
from torchgauge.analyze.lanes.recorded_lanes import Recorded, timeline
from torchgauge.analyze.timeline.attribution import Spans
from torchgauge.analyze.timeline.host_work import OUTSIDE, HostWork, operators
from torchgauge.analyze.timeline.launches import Launched, launched
from torchgauge.analyze.timeline.module_calls import Modules
from torchgauge.analyze.trace import device_work
from torchgauge.analyze.trace.copies import copies, packed
from torchgauge.analyze.trace.critical_path import Segment, critical_path, summary
from torchgauge.analyze.trace.dependencies import (
    Dependencies,
    dependencies,
    operator,
    synchronisations,
    waits,
)
from torchgauge.analyze.trace.device_work import Activities
from torchgauge.analyze.trace.graph_captures import joined
from torchgauge.analyze.trace.idle_times import device_times
from torchgauge.analyze.trace.kernel_facts import Facts, serving_phases
from torchgauge.analyze.trace.recording import contents, devices, not_recorded, origin, window
from torchgauge.analyze.work.event_costs import event_costs, on_device
from torchgauge.analyze.work.recorded_products import recorded_products
from torchgauge.analyze.work.roof_quality import implausible_recording
from torchgauge.analyze.work.utilization import Products, StepTime, peak_used, utilization
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.breakdown import CriticalPath, KernelSequence, UnknownRole
from torchgauge.records.trace.events import ABSENT, Events, Integers
from torchgauge.records.trace.trace import GraphReplays, MemoryUse, Queue, RankTrace
from torchgauge.records.work.roofline import Roofs
from torchgauge.records.work.utilization import Utilization

MAX_POINTS = 1000  # points of a timeline
_CPU = 0  # torch's number


def memory_uses(events: Events, begin: int) -> Iterator[MemoryUse]:
    """Yield the memory of the host, then that of each device, from `begin` (ns) on.

    Left out is an allocator that reported no totals, as those of old traces.
    """
    memory = events.memory
    pairs = set(zip(memory.device_type.tolist(), memory.device.tolist(), strict=True))
    for kind, device in sorted(pairs):
        on_device = (memory.device_type == kind) & (memory.device == device)
        rows = np.flatnonzero(on_device & (memory.allocated != ABSENT))
        if not len(rows) or not memory.allocated[rows].any():
            continue
        rows = rows[np.lexsort((memory.index[rows], memory.time[rows]))]
        size = memory.size[rows].astype(np.int64)
        before = int(memory.allocated[rows[0]] - size[0])
        if before > memory.allocated[rows].max():  # the first event is a free, from the peak
            rows = np.insert(rows, 0, rows[0])
        allocated, reserved = memory.allocated[rows].astype(np.int64), memory.reserved[rows]
        if len(rows) > len(size):
            allocated[0] = before
        has_reserved = (reserved != ABSENT) & bool((reserved > 0).any())
        time = (memory.time[rows] - begin) * 1e-9
        peak = int(allocated.argmax())
        yield MemoryUse(
            device=None if kind == _CPU else device,
            before=before,
            peak=int(allocated[peak]),
            peak_at=float(time[peak]),
            after=int(allocated[-1]),
            reserved=int(reserved.max()) if has_reserved.any() else None,
            allocations=int((size > 0).sum()),
            allocated=int(size[size > 0].sum()),
            timeline=tuple(
                (
                    float(time[point]),
                    int(allocated[point]),
                    int(reserved[point]) if has_reserved[point] else None,
                )
                for point in _sampled_points(allocated).tolist()
            ),
        )


def _sampled_points(levels: Integers) -> Integers:
    """Return the places of the ends, and of equal stretches the highest and the lowest."""
    count = len(levels)
    if count <= MAX_POINTS:
        return np.arange(count)
    stretches = np.array_split(np.arange(count), (MAX_POINTS - 2) // 2)
    extremes = [
        stretch[offset]
        for stretch in stretches
        for offset in (levels[stretch].argmin(), levels[stretch].argmax())
    ]
    return np.unique(np.array([0, *extremes, count - 1]))


# Of the kernels whose role is known; a few tensors are cast and copied on such streams.
COMMUNICATES = 0.9
MIN_COLLECTIVES = 2
# Names that torch, its compilers and the libraries of mathematics give to what they compute.
_COMPUTES = re.compile(
    r"at::(native|cuda|sparse)|at_cuda_detail|cutlass|gemm|cublas|cudnn|\btriton_|cub::|thrust::"
    r"|elementwise|splitK|Cijk_|nvjet|flash|fmha|miopen|ck::|rocprim|hipcub|\bmultimem_copy",
    re.IGNORECASE,
)


def unknown_roles(activities: device_work.Activities, facts: Facts) -> tuple[UnknownRole, ...]:
    """Return the kernels of unknown role by name and stream, most time first."""
    communicates = activities.kind == device_work.COMMUNICATION
    if not communicates.any():
        return ()
    computes = facts.name.where(lambda name: _COMPUTES.search(name) is not None) & ~communicates
    unknown = facts.is_kernel & ~communicates & ~computes
    # One number for device and stream, neither of which is below ABSENT.
    stream = (activities.device - ABSENT) * (1 + activities.stream.max() - ABSENT)
    stream += activities.stream - ABSENT
    _, of_stream = np.unique(stream, return_inverse=True)
    collectives = np.bincount(of_stream, communicates)
    known_kernels = collectives + np.bincount(of_stream, computes & facts.is_kernel)
    has_role = (collectives >= MIN_COLLECTIVES) & (collectives >= COMMUNICATES * known_kernels)
    listed = np.flatnonzero(unknown & has_role[of_stream])
    groups: dict[tuple[int, int, int], list[int]] = {}
    for index in listed.tolist():
        key = (
            int(facts.name.codes[index]),
            int(activities.device[index]),
            int(activities.stream[index]),
        )
        groups.setdefault(key, []).append(index)
    records = [
        UnknownRole(
            name=str(facts.name[group[0]]),
            device=None if device == ABSENT else device,
            stream=None if stream_number == ABSENT else stream_number,
            count=len(group),
            time=int((activities.end[group] - activities.begin[group]).sum()) * 1e-9,
        )
        for (_, device, stream_number), group in groups.items()
    ]
    return tuple(sorted(records, key=lambda record: -record.time))


_BEHIND = "no critical path: the device was still at work of before this part when it was launched"


def rank_trace(
    events: Events, file: str, part: str = "", *,
    behind_others: bool = False, timeline_bytes: int = 0, roofs: Roofs | None = None,
    captures: Sequence[Events] = (),
) -> tuple[RankTrace, Calls]:  # fmt: skip
    """Return the record of one file's events, and its collectives; `file` is its name.

    `part` names the part of it that they are; `behind_others`: work waited for work outside of it.
    `roofs` are the devices', `timeline_bytes` the most that events for the page's timeline may be.
    `captures` are recordings of the capture of CUDA graphs that the events replay.
    """
    with_operators, graphs = joined(events, captures)
    record, recorded, calls = _record(with_operators, file, part, behind_others, roofs, events)
    missing = (*record.missing, *_unjoined(graphs, captures))
    warnings = (*record.warnings, *implausible_recording(record.tree, roofs))
    record = msgspec.structs.replace(record, graphs=graphs, missing=missing, warnings=warnings)
    record = msgspec.structs.replace(record, findings=findings(record))
    return _with_timeline(record, recorded, timeline_bytes), calls


def _record(
    events: Events, file: str, part: str, behind_others: bool, roofs: Roofs | None, in_file: Events
) -> tuple[RankTrace, Recorded, Calls]:
    """Return the record without findings, what its timeline needs, and the collectives."""
    # The tree needs the most for itself, and comes first.
    modules, spans, work, tree, products = _tree(events)
    facts = Facts(events, work)
    activities = device_work.device_activities(events, work, facts)
    host_waits = waits(events)
    thread = np.where(work.launched, events.thread.codes[work.call], ABSENT)
    delays, pauses = host_delays(events, spans, work, host_pauses(activities, thread))
    steps = device_work.launched_in_steps(events, activities)
    (begin, end), duration = window(events), activities.end - activities.begin
    recorded_waits = dependencies(events, activities, facts, host_waits)
    segments = critical_path(activities, thread, host_waits, begin, recorded_waits)
    path = () if behind_others else tuple(segments)
    record = RankTrace(
        file=file,
        rank=events.metadata.rank,
        world=events.metadata.world,
        window=(end - begin) * 1e-9,
        contents=contents(in_file, modules),
        devices=tuple(devices(events)),
        versions=events.metadata.versions,
        accelerator=events.metadata.accelerator,
        part=part,
        times=device_times(activities, facts.name),
        tree=tree,
        roofs=roofs,
        device_time=int(duration.sum()) * 1e-9,
        launched_before=int(duration[~work.launched].sum()) * 1e-9,
        copies=copies(activities, facts),
        collectives=collectives(activities, facts),
        sent=sent_to_ranks(activities, facts),
        exposed_last=exposed_last(activities, steps),
        unknown_roles=unknown_roles(activities, facts),
        queues=_queues(activities),
        synchronisations=synchronisations(
            events, spans, modules.tree, host_waits, caused_by_waits(host_waits, pauses)
        ),
        host_delays=delays,
        sequences=kernel_sequences(activities, facts),
        serving=serving_phases(events, work),
        critical_path=_critical(events, spans, work, path, recorded_waits),
        utilization=_utilization(products, (end - begin) * 1e-9, activities, roofs),
        memory=tuple(memory_uses(events, begin)),
        missing=(*not_recorded(events, modules), *(_BEHIND for _ in range(behind_others))),
        warnings=events.warnings,
    )
    recorded = Recorded(
        events, spans, modules.tree, work, activities, (begin, end), path, called=record.called
    )
    return record, recorded, rank_calls(activities, facts, origin(events), steps)


def _unjoined(graphs: GraphReplays | None, captures: Sequence[Events]) -> Iterator[str]:
    if captures and not (graphs and graphs.launches):
        yield "no launch of a CUDA graph: the recording of a capture has nothing to join"
    elif graphs and graphs.joined < graphs.work:
        remedy = "no recorded capture fits" if captures else "--capture FILE takes its recording"
        count = f"{graphs.work - graphs.joined:,} kernels and copies of CUDA graphs"
        yield f"no operators of {count}, which their capture has: {remedy}"


def _tree(events: Events) -> tuple[Modules, Spans, Launched, Tree, Products]:
    """Return modules, spans, launches, the tree, and the products of the whole recording."""
    modules, spans = device_work.attributed(events)
    work = launched(events, spans)
    costs = event_costs(events, spans)
    if len(work.row):
        costs = on_device(costs, spans, work.span)
    tree = device_work.tree_of(events, modules, spans, costs)
    (products,) = recorded_products(events, spans, costs)
    uncounted = any(row.unknown for row in tree.rows if row.kind == "kernel")
    return modules, spans, work, tree, products._replace(at_least=products.at_least or uncounted)


def _utilization(
    products: Products, seconds: float, activities: device_work.Activities, roofs: Roofs | None
) -> Utilization | None:
    """Return the MFU over the window, of all the products that were recorded."""
    return utilization(
        products,
        StepTime(seconds, clock="recorded"),
        peak_used(products, roofs, None),
        devices=max(1, len(np.unique(activities.device))),
    )


def _with_timeline(record: RankTrace, recorded: Recorded, max_bytes: int) -> RankTrace:
    if not max_bytes:
        return record
    tree = msgspec.structs.replace(record.tree, timeline=timeline(recorded, max_bytes=max_bytes))
    return msgspec.structs.replace(record, tree=tree)


def _critical(
    events: Events,
    spans: Spans,
    work: Launched,
    path: Sequence[Segment],
    recorded_waits: Dependencies,
) -> CriticalPath | None:
    thread = np.where(work.launched, events.thread.codes[work.call], ABSENT)
    host = HostWork(events, spans, np.unique(thread))
    names, codes = events.name.take(spans.row), packed(events.name.codes[work.row])
    of_code = [str(name) for name in events.name.values]
    is_operator = operators(events)

    def named(segment: Segment) -> Iterable[tuple[str, int]]:
        if segment.link == "host":
            return host.between(segment.begin, segment.end)
        length = segment.end - segment.begin
        if segment.link == "launch":
            around = operator(names, spans, int(work.span[segment.activity]), is_operator)
            return ((around or OUTSIDE, length),)
        return ((of_code[codes[segment.activity]], length),)

    return summary(path, named, waits_are_known=bool((recorded_waits.transfer != ABSENT).any()))


def _queues(activities: device_work.Activities) -> tuple[Queue, ...]:
    """Return the queue of each stream that has work whose launch was recorded.

    The two clocks differ by some microseconds: what seems to begin before its launch began with it.
    """
    return tuple(_stream_queues(activities.take(activities.launch != ABSENT)))


def _stream_queues(activities: device_work.Activities) -> Iterator[Queue]:
    streams = (
        (device, *stream_activities)
        for device, on_device in activities.by(activities.device)
        for stream_activities in on_device.by(on_device.stream)
    )
    for device, stream, on_stream in streams:
        begin = np.maximum(on_stream.begin, on_stream.launch)
        delay = begin - on_stream.launch
        time = np.concatenate([on_stream.launch, begin])
        change = np.repeat([1, -1], len(on_stream))
        order = np.lexsort((-change, time))  # launched before it begins
        time, change = time[order], change[order]
        length = np.cumsum(change)
        duration = int(time[-1] - time[0])
        waiting = float((length[:-1] * np.diff(time)).sum())
        yield Queue(
            device=None if device == ABSENT else device,
            stream=None if stream == ABSENT else stream,
            mean=waiting / duration if duration else 0.0,
            max_length=int(length.max()),
            empty=float((length[change < 0] == 0).mean()),
            delay_median=float(np.median(delay)) * 1e-9,
            delay_p99=float(np.quantile(delay, 0.99)) * 1e-9,
        )


LENGTHS_TRIED = 16
LONGEST = 2_000  # kernels
FEWEST_REPEATS = 3
MOST_SEQUENCES = 5
LEAST_SHARE = 0.01  # of all device time


class _Stream(NamedTuple):
    """Device work of a stream as it ran: names as codes, times in ns."""

    codes: Integers
    begin: Integers
    duration: Integers


class _Sequence(NamedTuple):
    """A sequence by its codes, and where its repetitions begin, by uninterrupted series."""

    codes: Integers
    starts: list[Integers]

    def gain(self, duration: Integers) -> int:
        """Return the ns of all repetitions but one."""
        offsets = np.arange(len(self.codes))
        time = sum(int(duration[begins[:, None] + offsets].sum()) for begins in self.starts)
        repeats = sum(map(len, self.starts))
        return time * (repeats - 1) // repeats


def kernel_sequences(activities: Activities, facts: Facts) -> tuple[KernelSequence, ...]:
    """Return the sequences that repeat, most time first; none shorter than two kernels."""
    total = int((activities.end - activities.begin).sum())
    sequences = []
    for device, stream, rows in _streams(activities):
        order = rows[np.argsort(activities.begin[rows], kind="stable")]
        work = _Stream(
            facts.name.codes[order],
            activities.begin[order],
            (activities.end - activities.begin)[order],
        )
        sequences += [
            _sequence_record(repeated, work, device, stream, total, facts.name.values)
            for repeated in _repeating(work, total)
        ]
    return tuple(sorted(sequences, key=lambda sequence: -sequence.time)[:MOST_SEQUENCES])


def _streams(activities: Activities) -> Iterator[tuple[int | None, int | None, Integers]]:
    keys = np.stack([activities.device, activities.stream], axis=1).astype(np.int64)
    streams, inverse = np.unique(keys, axis=0, return_inverse=True)
    for index, (device, stream) in enumerate(streams.tolist()):
        yield (
            None if device == ABSENT else device,
            None if stream == ABSENT else stream,
            np.flatnonzero(inverse.reshape(-1) == index),
        )


def _repeating(work: _Stream, total: int) -> Iterator[_Sequence]:
    """Yield the sequences of a stream that explain most, each without what those before cover."""
    codes = work.codes.astype(np.int64)
    for _ in range(MOST_SEQUENCES):
        candidates = [
            sequence
            for length in _lengths(codes, work.duration)
            for sequence in _of_length(length, codes)
        ]
        if not candidates:
            return
        best = max(candidates, key=lambda sequence: sequence.gain(work.duration))
        covered = np.concatenate(best.starts)[:, None] + np.arange(len(best.codes))
        if int(work.duration[covered].sum()) < LEAST_SHARE * total:
            return
        yield best
        codes[covered.reshape(-1)] = -1 - covered.reshape(-1)  # equal to nothing else


def _lengths(codes: Integers, duration: Integers) -> list[int]:
    """Return the distances between calls of the same kernel that have most of the time."""
    order = np.argsort(codes, kind="stable")
    repeats_name = codes[order][1:] == codes[order][:-1]
    distance = np.diff(order)[repeats_name]
    weight = duration[order][1:][repeats_name]
    fits = (distance >= 2) & (distance <= LONGEST)
    values, inverse = np.unique(distance[fits], return_inverse=True)
    weights = np.bincount(inverse, weights=weight[fits], minlength=len(values))
    return [int(value) for value in values[np.argsort(-weights, kind="stable")][:LENGTHS_TRIED]]


def _of_length(length: int, codes: Integers) -> list[_Sequence]:
    """Return what repeats with this length, in one where a series begins elsewhere in the same."""
    if len(codes) < FEWEST_REPEATS * length:
        return []
    equal = np.concatenate([[False], codes[length:] == codes[:-length], [False]])
    change = np.flatnonzero(np.diff(equal.astype(np.int8)))
    begins, ends = change[::2], change[1::2]
    long = ends - begins >= (FEWEST_REPEATS - 1) * length
    sequences: list[_Sequence] = []
    for begin, end in zip(begins[long].tolist(), ends[long].tolist(), strict=True):
        unit = codes[begin : begin + length]
        if _is_repetition(unit):
            continue
        shifts = ((earlier, _shift(unit, earlier.codes)) for earlier in sequences)
        sequence, shift = next(
            ((earlier, shift) for earlier, shift in shifts if shift is not None), (None, 0)
        )
        repeats = (end + length - begin - shift) // length
        starts = begin + shift + length * np.arange(repeats)
        if sequence is None:
            sequences.append(_Sequence(unit.copy(), [starts]))
        else:
            sequence.starts.append(starts)
    return sequences


def _is_repetition(unit: Integers) -> bool:
    """Whether it repeats a shorter one: that is the sequence then."""
    parts = (part for part in range(1, len(unit) // 2 + 1) if len(unit) % part == 0)
    return any(np.array_equal(unit[part:], unit[:-part]) for part in parts)


def _shift(unit: Integers, other: Integers) -> int | None:
    """Return where the other sequence begins in repetitions of this; None where it does not."""
    doubled = np.concatenate([unit, unit])
    for shift in np.flatnonzero(unit == other[0]).tolist():
        if np.array_equal(doubled[shift : shift + len(unit)], other):
            return int(shift)
    return None


def _sequence_record(
    repeated: _Sequence, work: _Stream, device: int | None, stream: int | None, total: int,
    names: tuple[str, ...],
) -> KernelSequence:  # fmt: skip
    positions = np.concatenate(repeated.starts)[:, None] + np.arange(len(repeated.codes))
    durations = work.duration[positions]
    spans = np.concatenate([np.diff(work.begin[starts]) for starts in repeated.starts])
    time = int(durations.sum())
    return KernelSequence(
        device=device,
        stream=stream,
        names=tuple(str(names[code]) for code in repeated.codes.tolist()),
        durations=tuple((np.median(durations, axis=0) * 1e-9).tolist()),
        repeats=len(positions),
        runs=len(repeated.starts),
        time=time * 1e-9,
        share=time / total,
        span=float(np.median(spans)) * 1e-9,
    )
