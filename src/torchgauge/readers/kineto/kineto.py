"""Read a Kineto trace: recorded bytes to columns, chunk by chunk, so that memory stays small."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import compress
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchgauge import units
from torchgauge.errors import InputError
from torchgauge.progress import Progress
from torchgauge.readers.columns import Numbers, Parts
from torchgauge.readers.dialects import etdump, rocprof
from torchgauge.readers.dialects.dialects import translated
from torchgauge.readers.kineto import categories
from torchgauge.readers.kineto.arguments import Arguments, Uncategorised
from torchgauge.readers.kineto.categories import OTHER_SPAN, TABLES, Heads
from torchgauge.readers.kineto.chunks import Chunks
from torchgauge.readers.kineto.damage import Damage
from torchgauge.readers.kineto.decoding import Event, Header
from torchgauge.readers.kineto.times import Times, nanoseconds
from torchgauge.readers.tables import Table
from torchgauge.readers.unpacking import open_trace, trace_text
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.trace.events import (
    ABSENT,
    Codes,
    Collectives,
    DeviceWork,
    Events,
    Flows,
    Integers,
    Launches,
    MemoryEvents,
    Operators,
    PythonCalls,
    RecordedWaits,
    Rows,
    ThreadId,
    TraceMetadata,
)

V = TypeVar("V")
_Since1970 = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]  # ns; times are added to it


class Names:
    """Names of processes and threads, from metadata events (`ph` M)."""

    def __init__(self) -> None:
        self.processes: dict[int | str, str] = {}
        self.labels: dict[int | str, str] = {}
        self.threads: dict[ThreadId, str] = {}

    def add(self, events: list[Event]) -> None:
        """Note the names in one chunk; a later one replaces an earlier one."""
        for event in events:
            arguments = event.args
            if arguments is None:
                continue
            if event.name == "process_labels" and arguments.labels is not None:
                self.labels[event.pid] = arguments.labels
            if arguments.name is None:
                continue
            if event.name == "process_name":
                self.processes[event.pid] = arguments.name
            elif event.name == "thread_name":
                self.threads[event.pid, event.tid] = arguments.name


def metadata(origin: int, headers: list[Header], names: Names) -> TraceMetadata:
    """Return the metadata; a value of an unexpected type is absent.

    Raises InputError `trace-merged` for a file that we made of several ranks.
    """
    if merged := _first(headers, "merged_ranks", list[int]):
        raise InputError(
            f"The trace holds {len(merged)} ranks in one file.",
            id="trace-merged",
            cause="It was merged for Perfetto: devices of several ranks have the same numbers.",
            remedy="Read the folder with the ranks' own files.",
        )
    devices = _first(headers, "devices", list[dict[str, Any]])
    distributed = _first(headers, "distributed", dict[str, Any])
    numbers = {field: _first(headers, field, int) for field in NUMBERED}
    recorder = _first(headers, "recorder", str)
    return TraceMetadata(
        origin=origin,
        base_time=_first(headers, "base_time", _Since1970),
        schema_version=_first(headers, "schema_version", int),
        display_time_unit=_first(headers, "display_time_unit", str),
        trace_name=_first(headers, "trace_name", str),
        # Of files that were translated.
        recorder=recorder if recorder in (etdump.RECORDER, rocprof.RECORDER) else None,
        devices=tuple(devices or ()),
        distributed=distributed,
        versions=dict(versions(numbers, distributed)),
        process_names=names.processes,
        process_labels=names.labels,
        thread_names=names.threads,
    )


def _first(headers: list[Header], name: str, kind: type[V]) -> V | None:
    for header in headers:
        text = getattr(header, name)
        if text:
            try:
                return msgspec.json.decode(text, type=kind)
            except (ValueError, RecursionError):
                continue
    return None


def _cuda(number: int) -> str:
    """Return 12.4 of 12040, as CUDA_VERSION in cuda.h has it."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _hip(number: int) -> str:
    """Return 6.4.43483 of 60443483, as HIP_VERSION in hip_version.h has it."""
    return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}"


# By the field of the header that has it.
NUMBERED: dict[str, tuple[str, Callable[[int], str]]] = {
    "cuda_runtime": ("CUDA", _cuda),
    "cuda_driver": ("CUDA driver", _cuda),
    "hip_runtime": ("HIP", _hip),
    "hip_driver": ("HIP driver", _hip),
}


def versions(
    numbers: Mapping[str, int | None], distributed: Mapping[str, Any] | None
) -> Iterator[tuple[str, str]]:
    """Yield name and version of each that is known; `numbers` has those of the header's fields."""
    for field, (name, text) in NUMBERED.items():
        number = numbers.get(field)
        if number is not None and number > 0:
            yield name, text(number)
    nccl = (distributed or {}).get("nccl_version")
    if isinstance(nccl, str) and nccl:
        yield "NCCL", nccl


_CHUNK = 1 << 18  # with what is decoded from it, it stays in a core's cache


def read_events(
    source: str | Path | bytes,
    *,
    python: categories.PythonDetail = "modules",
    launch_arrows: bool = True,
    partial: bool = False,
    memory_limit: int | None = None,
    chunk_size: int = _CHUNK,
    progress: Progress | None = None,
) -> Events:
    """Read a trace as torch.profiler exports it: .json, .json.gz, a .zip with one, or its bytes.

    `python`: which Python functions are kept of a trace with stacks, where they are most of the
    events; "modules" are the calls of nn.Modules. `launch_arrows`: whether arrows from launches to
    their work are kept: correlations say the same, and only writing the trace again needs them.
    Events that are not JSON are corrected or left out, with a warning `trace-damaged` that counts
    them; with `partial` also a file that is cut off gives what can be read.
    Of one that needs more than `memory_limit` bytes, analysis included, the first part that fits is
    read, and a warning `trace-memory-limit` says up to when; that takes a second pass.
    `chunk_size`: bytes of text decoded at once. `progress` is told how far it is.

    Raises InputError: `file-missing`, `file-not-regular`, `trace-directory`, `trace-archive`,
    `trace-too-large`, and for files that are no (whole) trace `trace-empty`, `trace-not-json`,
    `trace-no-events`, `trace-truncated`, `trace-malformed`, `trace-packing`; `memory-limit` where
    nothing fits.
    """

    def reading() -> AbstractContextManager[Chunks]:
        return _reading(source, partial=partial, chunk_size=chunk_size, progress=progress)

    fits = None
    if memory_limit is not None:
        with reading() as chunks:
            fits = categories.fitting(chunks, memory_limit, functions=python == "all")
    building = _Building(categories.Heads(python, launch_arrows=launch_arrows))
    with reading() as chunks:
        for events in chunks:
            building.add(events if fits is None else categories.before(events, fits.until))
        all_events = building.finish(chunks)
    if fits is None:
        return all_events
    return dataclasses.replace(all_events, warnings=(*all_events.warnings, _cut_short(fits)))


@contextlib.contextmanager
def _reading(
    source: str | Path | bytes, *, partial: bool, chunk_size: int, progress: Progress | None
) -> Iterator[Chunks]:
    name = "The recording" if isinstance(source, bytes) else str(source)
    with open_trace(source if isinstance(source, bytes) else Path(source)) as file:
        try:
            yield Chunks(trace_text(file, name, chunk_size, progress), name, partial=partial)
        except ValueError as error:
            raise InputError(
                f"{name} cannot be read as a Kineto trace.",
                id="trace-malformed",
                cause=f"The time of an event is invalid: {error}",
                remedy="Record it again with torch.profiler.",
            ) from error


def _cut_short(fits: categories.Fitting) -> MeasurementWarning:
    read, total = fits.until - fits.begin, fits.end - fits.begin
    return MeasurementWarning(
        id="trace-memory-limit",
        message=f"Only the first {units.time(read * 1e-9)} of {units.time(total * 1e-9)} are read.",
        cause=f"All of it needs about {units.size(fits.needed, 3)} of memory, more than the limit.",
        remedy="Give more, or cut out a part with --to chrome --from … --until ….",
    )


_HOURS = 11  # digits of microseconds: times since the machine's start or 1970, not from the first
_ZEROS = frozenset((b"0", b"0.0", b"0.00", b"0.000"))
_TIME = attrgetter("ts")


class _Building:
    """Sorts events by what they are, to the columns that are in the making."""

    def __init__(self, heads: categories.Heads) -> None:
        self._heads = heads
        self._spans = Spans(heads)
        self._memory = Allocations(heads)
        self._flows = Arrows(heads)
        self._names = Names()
        self._pairs = Pairs()
        self._waiting: list[Event] = []
        self._counts_from_first: bool | None = None
        self._at_zero = 0

    def add(self, events: list[Event]) -> None:
        # Without a time it cannot be placed.
        events = self._waiting + [e for e in events if e.ts or e.ph == "M"]
        self._waiting = []
        if self._counts_from_first is None:
            times = (bytes(e.ts) for e in events if e.ph != "M")
            first = next((time for time in times if time not in _ZEROS), None)
            if first is None:
                self._waiting = events
                return
            self._counts_from_first = len(first.strip(b'"').partition(b".")[0]) < _HOURS
        self._place(events)

    def _place(self, events: list[Event]) -> None:
        # Almost all chunks have none.
        if not self._counts_from_first and min(map(len, map(_TIME, events)), default=0) <= 5:
            timed = [e for e in events if e.ph == "M" or bytes(e.ts) not in _ZEROS]
            self._at_zero += len(events) - len(timed)
            events = timed
        heads = self._heads.code(events)
        kinds = self._heads.kinds(heads)

        def chosen(mask: NDArray[np.bool_]) -> tuple[list[Event], Codes]:
            return list(compress(events, mask.tolist())), heads[mask]

        self._spans.add(
            *chosen(kinds >= categories.OTHER_SPAN), kinds[kinds >= categories.OTHER_SPAN]
        )
        self._memory.add(*chosen(kinds == categories.MEMORY))
        self._flows.add(*chosen(kinds == categories.ARROW))
        self._names.add(chosen(kinds == categories.NAME)[0])
        self._pairs.add(chosen(kinds == categories.END)[0])

    def finish(self, chunks: Chunks) -> Events:
        self._counts_from_first = self._counts_from_first is not False
        self._place(self._waiting)
        if joined := self._pairs.spans():
            heads = self._heads.code(joined)
            is_span = self._heads.kinds(heads) >= categories.OTHER_SPAN
            kinds = self._heads.kinds(heads[is_span])
            self._spans.add(list(compress(joined, is_span.tolist())), heads[is_span], kinds)
        times = (self._spans.start, self._memory.time, self._flows.time)
        origin = min((t.earliest for t in times if t.earliest is not None), default=0)
        spans = self._spans.finish(origin)
        unsorted = spans.pop("unsorted")
        events = Events(
            **spans,
            memory=self._memory.finish(origin),
            flows=self._flows.finish(origin),
            metadata=metadata(origin, chunks.headers, self._names),
            warnings=tuple(self._warnings(chunks.damage)),
        )
        return translated(events, unsorted)

    def _warnings(self, damage: Damage) -> Iterator[MeasurementWarning]:
        if damage:
            kinds = (
                (damage.lost, f"{damage.lost:,} of its events could not be read"),
                (
                    damage.corrected,
                    f"{damage.corrected:,} of its events held what JSON forbids, now replaced",
                ),
                (damage.cut_off, "it is cut off"),
            )
            damaged = [words for is_so, words in kinds if is_so]
            yield MeasurementWarning(
                id="trace-damaged",
                message=f"The trace is damaged: {', '.join(damaged)}.",
                cause=damage.first,
                remedy="Copy or record it again.",
            )
        if self._at_zero:
            yield MeasurementWarning(
                id="trace-time-zero",
                message=f"{self._at_zero:,} events are left out of the trace.",
                cause="Their time is 0, hours before all others: the profiler lost it.",
                remedy="Record it again; figures of what they were are too low.",
            )
        if unpaired := self._pairs.unpaired:
            yield MeasurementWarning(
                id="trace-unpaired",
                message=f"{unpaired:,} events are left out of the trace.",
                cause="They are begins without an end, or ends without a begin (phases B and E).",
                remedy="Record it again, to its end.",
            )


_FASTEST = 1e15  # GB/s: no memory is as fast


class Spans:
    """Columns and tables of spans."""

    def __init__(self, heads: Heads) -> None:
        self._head_index = heads
        self._count = 0
        self.start = Times()
        self._duration = Parts(np.int64)
        self._heads = Parts(np.int32)
        self._tables = {
            "operators": Table(
                *("external_id", "index", "older_index", "sequence", "forward_thread"),
                *("dims", "strides", "types", "inputs", "modules", "layer_class"),
            ),
            "launches": Table("correlation", "external_id", "kernel"),
            "device_work": Table(
                *(
                    "device",
                    "stream",
                    "queue",
                    "correlation",
                    "external_id",
                    "grid",
                    "block",
                    "registers",
                ),
                *("shared_memory", "blocks_per_sm", "warps_per_sm", "occupancy", "graph_node"),
                *("copied", "bandwidth", "kind"),
            ),
            "recorded_waits": Table(
                *("correlation", "device", "stream", "awaited_stream", "awaited_record")
            ),
            "python": Table("id", "parent", "module"),
            "unsorted": Table(
                *("correlation_id", "kernel_details", "memcpy_details", "memset_details"),
                *("cuda_graph_node_id", "step_num"),
            ),
        }
        self._collectives = Table(
            *("collective", "dtype", "elements_in", "elements_out", "group"),
            *("group_description", "group_size", "ranks", "split_in"),
        )

    def add(self, events: list[Event], heads: Codes, kinds: NDArray[np.int8]) -> None:
        """Append the spans of one chunk."""
        self.start.add([e.ts for e in events])
        # Negative ones stand in traces of 2022 and before, and mean nothing.
        self._duration.append(np.maximum(nanoseconds([e.dur for e in events]), 0))
        self._heads.append(heads)
        self._add_arguments(kinds - (OTHER_SPAN + 1), events)
        self._count += len(events)

    def _add_arguments(self, tables: NDArray[np.int8], events: list[Event]) -> None:
        arguments = [e.args for e in events]
        for number, name in enumerate(TABLES):
            indices = [i for i in np.flatnonzero(tables == number).tolist() if arguments[i]]
            if name == "unsorted":
                indices = [i for i in indices if isinstance(arguments[i], Uncategorised)]
            if not indices:
                continue
            table_arguments: list[Any] = [arguments[i] for i in indices]
            rows = np.array(indices, dtype=np.intp) + self._count
            self._tables[name].append(table_arguments, rows)
            if name in ("operators", "device_work"):
                self._add_collectives(table_arguments, rows)

    def _add_collectives(self, arguments: Sequence[Arguments], rows: Rows) -> None:
        indices = [i for i, argument in enumerate(arguments) if argument.collective is not None]
        if indices:
            self._collectives.append([arguments[i] for i in indices], rows[indices])

    def finish(self, origin: int) -> dict[str, Any]:
        """Return the fields of Events that are about spans, and the table `unsorted`.

        Spans in it have no category. Raises ValueError for times beyond all reason.
        """
        heads, duration = self._heads.finish(), self._duration.finish()
        tables = {name: table.finish() for name, table in self._tables.items()}
        return {
            "start": self.start.finish_from(origin, float(duration.sum(dtype=np.float64))),
            "duration": duration,
            "name": self._head_index.column("name", heads),
            "category": self._head_index.column("cat", heads),
            "thread": self._head_index.threads(heads),
            "operators": _operators(tables["operators"]),
            "launches": Launches(**tables["launches"]),
            "device_work": _device_work(tables["device_work"]),
            "collectives": _collectives(self._collectives.finish()),
            "recorded_waits": RecordedWaits(**tables["recorded_waits"]),
            "python": PythonCalls(**tables["python"]),
            "unsorted": tables["unsorted"],
        }


def _operators(columns: dict[str, Any]) -> Operators:
    older = columns.pop("older_index")
    columns["index"] = np.where(columns["index"] == ABSENT, older, columns["index"])
    return Operators(**columns)


def _device_work(columns: dict[str, Any]) -> DeviceWork:
    columns["size"], queue = columns.pop("copied"), columns.pop("queue")
    columns["stream"] = np.where(columns["stream"] == ABSENT, queue, columns["stream"])
    rate = columns["bandwidth"]  # in GB/s
    columns["bandwidth"] = np.where(np.abs(rate) < _FASTEST, rate, np.nan) * 1e9
    percent = columns["occupancy"]
    columns["occupancy"] = np.where(percent > 0, percent / 100, np.nan)
    return DeviceWork(**columns)


def _collectives(columns: dict[str, Any]) -> Collectives:
    columns["name"] = columns.pop("collective")
    # A chunk's operators came before its kernels.
    order = np.argsort(columns["row"], kind="stable")
    for name, column in columns.items():
        columns[name] = column.take(order) if hasattr(column, "take") else column[order]
    return Collectives(**columns)


_ID = attrgetter("id")
_DIGITS = 18  # that an int64 holds
_DEEPEST = 1000  # how far up an end is looked for: files of strangers may have any


class Allocations:
    """Columns of `[memory]` events."""

    def __init__(self, heads: Heads) -> None:
        self._head_index = heads
        self.time = Times()
        self._heads = Parts(np.int32)
        self._table = Table(
            "address", "allocation", "allocated", "reserved", "device_type", "allocator", "index"
        )

    def add(self, events: list[Event], heads: Codes) -> None:
        """Append the allocations of one chunk; one without a size is left out."""
        sized = [i for i, e in enumerate(events) if e.args is not None and e.args.allocation]
        sized_events = [events[i] for i in sized]
        self._table.append([e.args for e in sized_events], np.zeros(0, dtype=np.intp))  # type: ignore[misc]
        self.time.add([e.ts for e in sized_events])
        self._heads.append(heads[sized])

    def finish(self, origin: int) -> MemoryEvents:
        """Return them, their times from the origin on."""
        columns = self._table.finish()
        del columns["row"]  # they are no spans
        return MemoryEvents(
            time=self.time.finish_from(origin),
            thread=self._head_index.threads(self._heads.finish()).codes,
            size=columns.pop("allocation"),
            device=columns.pop("allocator"),
            **columns,
        )


class Arrows:
    """Columns of the flow events that are understood."""

    def __init__(self, heads: Heads) -> None:
        self._head_index = heads
        self.time = Times()
        self._heads = Parts(np.int32)
        self._id = Numbers(np.int64)

    def add(self, events: list[Event], heads: Codes) -> None:
        """Append the arrow ends of one chunk whose ids are numbers."""
        for event in events:
            if isinstance(event.id, str):  # as torch_npu writes them
                event.id = _number(event.id)
        numbered = [i for i, e in enumerate(events) if type(e.id) is int]
        try:
            ids = _ids([events[i] for i in numbered])
        except OverflowError:
            numbered = [i for i in numbered if -(2**63) <= events[i].id < 2**63]  # type: ignore[operator]
            ids = _ids([events[i] for i in numbered])
        self.time.add([events[i].ts for i in numbered])
        self._heads.append(heads[numbered])
        self._id.append(ids)

    def finish(self, origin: int) -> Flows:
        """Return them, their times from the origin on."""
        heads = self._heads.finish()
        return Flows(
            time=self.time.finish_from(origin),
            thread=self._head_index.threads(heads).codes,
            id=self._id.finish(),
            category=self._head_index.column("cat", heads),
            begins=self._head_index.column("ph", heads).where(lambda phase: phase == "s"),
        )


class Pairs:
    """Spans whose begin and end are events of their own (phases B and E), as tlparse writes them.

    An end belongs to the latest open begin of its name on its thread, or without a name to the
    latest of all.
    """

    def __init__(self) -> None:
        self._open: defaultdict[tuple[int | str, int | str], list[Event]] = defaultdict(list)
        self._begins: list[Event] = []
        self._ends: list[Event] = []
        self._lost = 0

    def add(self, events: list[Event]) -> None:
        """Join the begins and ends of one chunk with those before."""
        for event in events:
            stack = self._open[event.pid, event.tid]
            if event.ph == "B":
                stack.append(event)
                continue
            for back, begin in enumerate(stack[: -_DEEPEST - 1 : -1], 1):
                if event.name in ("", begin.name):
                    self._begins.append(stack.pop(-back))
                    self._ends.append(event)
                    break
            else:
                self._lost += 1

    @property
    def unpaired(self) -> int:
        """How many begins and ends have no other."""
        return self._lost + sum(map(len, self._open.values()))

    def spans(self) -> list[Event]:
        """Return the spans as events of their own, with the arguments of their ends."""
        begin = nanoseconds([event.ts for event in self._begins])
        length = np.maximum(nanoseconds([event.ts for event in self._ends]) - begin, 0)
        for event, end, duration in zip(self._begins, self._ends, length.tolist(), strict=True):
            event.ph, event.args = "X", end.args or event.args
            event.dur = msgspec.Raw(b"%d.%03d" % divmod(duration, 1000))
        return self._begins


def _number(text: str) -> int | str:
    """Return the number that a text is, else the text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else text


def _ids(events: list[Event]) -> Integers:
    return np.fromiter(map(_ID, events), np.int64, len(events))
