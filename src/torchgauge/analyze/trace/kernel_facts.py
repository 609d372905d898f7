"""Kernels and copies of a trace: columns to group them by, and the record of a group.

Prefill and decode of inference servers, by the names that they give their steps.

vLLM: `execute_context_1(512)_generation_8(8)`, requests and in brackets tokens of either phase, in
older versions `execute_new_1_cached_8` with requests alone. SGLang: `step[EXTEND bs=2 toks=4096]`,
`step[DECODE bs=16]`. ATOM: `prefill[bs=2 tok=16384]`, `decode[bs=16]`.

Occupancy: a block is resident with all its warps, registers and shared memory, or not at all.
Sources: "Compute Capabilities" of the CUDA C++ Programming Guide (resident blocks, reserved shared
memory), the occupancy calculator of Nsight Compute (units of allocation). Registers are given to a
warp in units of 256, out of the quarter of the register file that its scheduler has; shared memory
to a block in units of 256 bytes (7.x and below) or 128, from 8.0 on with 1 KiB for the system.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, NamedTuple, cast

import numpy as np

from torchgauge.analyze.communication.communication_kernels import collective_of
from torchgauge.analyze.timeline.launches import KINDS, Launched, first_positions, is_graph_launch
from torchgauge.records.trace import breakdown
from torchgauge.records.trace.breakdown import Limiter
from torchgauge.records.trace.events import ABSENT, Coded, Codes, Events, Integers, Rows

_WORK: dict[str, breakdown.Work] = dict(zip(KINDS, ("kernel", "copy", "memory set"), strict=True))

HOST_PREFIX = "nccl:"


class Facts:
    """Facts about device work, by its place in `work`."""

    def __init__(self, events: Events, work: Launched) -> None:
        table, collectives = events.device_work, events.collectives
        self._work, self._table, self._durations = work, table, events.duration
        self.name = events.name.take(work.row)
        self.device = _entries(table.device, work.entry)
        self._category = events.category.take(work.row)
        self.stream = _entries(table.stream, work.entry)
        self.size = _entries(table.size, work.entry)
        message = first_positions(collectives.row, work.row)
        self.collective = _coded(collectives.name, message)
        self.copy_kind = _coded(table.kind, work.entry)
        self.dtype = _coded(collectives.dtype, message)
        self.elements = _entries(collectives.elements_in, message)
        self.elements_out = _entries(collectives.elements_out, message)
        self.group_size = _entries(collectives.group_size, message)
        self.group = _coded(collectives.group, message)
        self.group_ranks = _coded(collectives.ranks, message)
        self.split_in = _coded(collectives.split_in, message)
        self._limits: dict[int, Limits | None] = {
            device["id"]: limits(device)
            for device in events.metadata.devices
            if isinstance(device.get("id"), int)
        }
        self.is_kernel = self._category.where(lambda name: name == "kernel")
        self.is_set = self._category.where(lambda name: name == "gpu_memset")
        replayed = Coded(np.append(events.name.codes, ABSENT)[work.call], events.name.values)
        self.is_graph = _entries(table.graph_node, work.entry) > 0
        self.is_graph |= replayed.where(is_graph_launch)
        self.host_collective = _host_collectives(events, work)
        by_name = self.name.where(lambda name: collective_of(name) is not None)
        self.communicates = by_name | (message != ABSENT)

    def columns(self) -> list[Integers]:
        """Return the columns (integers) in which calls of one node of the tree are equal."""
        table, entry = self._table, self._work.entry
        return [
            self.name.codes,
            self._category.codes,
            self.device,
            *_entries(table.grid, entry).T,
            *_entries(table.block, entry).T,
            _entries(table.registers, entry),
            _entries(table.shared_memory, entry),
            self.is_graph,
            self._work.launched,
            self.collective.codes,
            self.dtype.codes,
            self.elements,
            self.group_size,
        ]

    def kernel(self, group: Rows) -> breakdown.Kernel:
        """Return the record of calls that have these columns in common."""
        first = int(group[0])
        work = _WORK[str(self._category[first])]
        occupied, limiter = self._occupancy(first)
        return breakdown.Kernel(
            durations=tuple(np.sort(self._durations[self._work.row[group]]).tolist()),
            work=work,
            device=_or_none(self.device[first]),
            streams=tuple(sorted(set(self.stream[group].tolist()) - {ABSENT})),
            grid=self._triple("grid", first),
            block=self._triple("block", first),
            registers=self._number("registers", first),
            shared_memory=self._number("shared_memory", first),
            occupancy=occupied,
            limiter=limiter,
            launched=bool(self._work.launched[first]),
            graph=bool(self.is_graph[first]),
            bytes=total_bytes(self.size[group]),
            pageable=pageable(f"{self.name[first]} {self.copy_kind[first]}")
            if work == "copy"
            else None,
            collective=self._message(first),
        )

    def _occupancy(self, index: int) -> tuple[float | None, breakdown.Limiter | None]:
        """Return occupancy and its limiter; the trace's own figure where no rule is known."""
        device = self._limits.get(int(self.device[index]))
        grid, block = self._triple("grid", index), self._triple("block", index)
        registers, shared = self._number("registers", index), self._number("shared_memory", index)
        if device and grid and block and registers is not None and shared is not None:
            computed = occupancy(device, math.prod(grid), math.prod(block), registers, shared)
            if computed is not None:
                return computed
        entry = self._work.entry[index]
        recorded = math.nan if entry == ABSENT else float(self._table.occupancy[entry])
        return (None if math.isnan(recorded) else recorded), None

    def _number(self, name: str, index: int) -> int | None:
        """Return a number of the table, None where the trace does not have it."""
        entry = self._work.entry[index]
        return None if entry == ABSENT else _or_none(getattr(self._table, name)[entry])

    def _triple(self, name: str, index: int) -> breakdown.Triple | None:
        entry = self._work.entry[index]
        if entry == ABSENT:
            return None
        x, y, z = getattr(self._table, name)[entry].tolist()
        return None if ABSENT in (x, y, z) else (x, y, z)

    def _message(self, index: int) -> breakdown.Collective | None:
        name = self.collective[index]
        if name is None:
            return None
        return breakdown.Collective(
            name=name,
            dtype=self.dtype[index],
            elements=_or_none(self.elements[index]),
            group_size=_or_none(self.group_size[index]),
        )


def _host_collectives(events: Events, work: Launched) -> Coded[str]:
    """Return the collective that the host names around each piece's launch (`nccl:all_to_all`).

    Recordings of before torch 2.1 have no arguments on communication kernels, and several kernels
    serve more than one collective: an all-to-all runs `ncclKernel_SendRecv`.
    """
    codes: Codes = np.full(len(work.row), ABSENT, np.int32)
    (rows,) = np.nonzero(events.name.where(lambda name: name.startswith(HOST_PREFIX)))
    spans = enclosing_spans(events, rows, work)
    inside = spans != ABSENT
    codes[inside] = events.name.codes[rows[spans[inside]]]
    return Coded(codes, events.name.values)


def enclosing_spans(events: Events, rows: Rows, work: Launched) -> Integers:
    """Return for each piece of work which of these host spans launched it, by position in `rows`.

    The spans of one thread must not overlap. ABSENT where none of them did.
    """
    spans: Integers = np.full(len(work.row), ABSENT)
    calls = np.where(work.launched, events.thread.codes[work.call], ABSENT)
    for thread in np.unique(events.thread.codes[rows]).tolist():
        positions = np.flatnonzero(events.thread.codes[rows] == thread)
        positions = positions[np.argsort(events.start[rows[positions]], kind="stable")]
        begin = events.start[rows[positions]]
        end = begin + events.duration[rows[positions]]
        (launches,) = np.nonzero(calls == thread)
        before = np.searchsorted(begin, work.time[launches], side="right") - 1
        inside = (before >= 0) & (work.time[launches] <= end[before])
        spans[launches[inside]] = positions[before[inside]]
    return spans


def total_bytes(sizes: Integers) -> int | None:
    """Return the sum of the sizes; None if any is unknown."""
    return sum(sizes.tolist()) if (sizes >= 0).all() else None  # no int64, which wraps around


def pageable(name: str) -> bool | None:
    """Return whether a copy is pageable by its name: "Memcpy HtoD (Pageable -> Device)"."""
    if "Pageable" in name:
        return True
    return False if "Pinned" in name or "DtoD" in name or "PtoP" in name else None


def _entries(column: Any, entry: Rows) -> Integers:
    """Return a column's entries, ABSENT where there is none."""
    absent = np.full((1, *column.shape[1:]), ABSENT, column.dtype)
    return cast("Integers", np.concatenate([column, absent])[entry])


def _coded(column: Coded[str], entry: Rows) -> Coded[str]:
    return Coded(_entries(column.codes, entry).astype(np.int32), column.values)


def _or_none(value: Any) -> int | None:
    return None if value == ABSENT else int(value)


_VLLM = re.compile(r"execute_context_(\d+)\((\d+)[^()]*\)_generation_(\d+)\((\d+)[^()]*\)")
_VLLM_BEFORE = re.compile(r"execute_new_(\d+)_cached_(\d+)")
_SGLANG = re.compile(r"step\[(\w+) bs=(\d+)(?: toks=(\d+))?[^\]]*\]")
_ATOM = re.compile(r"(prefill|decode)\[bs=(\d+)(?: toks?=(\d+))?[^\]]*\]")
_SGLANG_PHASES = {"EXTEND": "prefill", "DECODE": "decode", "MIXED": "mixed"}
_FIRST = ("prefill", "mixed", "decode")


class _Batch(NamedTuple):
    """What the name of a step says: its phase, its requests and the tokens that it computes."""

    phase: str
    requests: int
    tokens: int | None


def serving_phases(events: Events, work: Launched) -> tuple[breakdown.ServingPhase, ...]:
    """Return the phases of the server's steps that were recorded; none of other programs."""
    is_range = events.category.where(lambda category: category == "user_annotation")
    batches = {
        code: batch
        for code, name in enumerate(events.name.values)
        if (batch := _batch(str(name))) is not None
    }
    rows = np.flatnonzero(is_range & np.isin(events.name.codes, list(batches)))
    if not len(rows):
        return ()
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    step = enclosing_spans(events, rows, work)
    inside = step != ABSENT
    durations = events.duration[work.row]
    device = np.bincount(step[inside], durations[inside], minlength=len(rows)) * 1e-9
    host = events.duration[rows] * 1e-9
    distance = np.append(np.diff(events.start[rows]) * 1e-9, np.nan)
    steps = [batches[code] for code in events.name.codes[rows].tolist()]
    phase_of_step = np.array([batch.phase for batch in steps])
    return tuple(
        _phase(phase, steps, phase_of_step == phase, host, device, distance)
        for phase in sorted(set(phase_of_step.tolist()), key=_order)
    )


def _order(phase: str) -> tuple[int, str]:
    return _FIRST.index(phase) if phase in _FIRST else len(_FIRST), phase


def _phase(
    phase: str,
    steps: list[_Batch],
    chosen: np.ndarray,
    host: np.ndarray,
    device: np.ndarray,
    distance: np.ndarray,
) -> breakdown.ServingPhase:
    batches = [steps[index] for index in np.flatnonzero(chosen)]
    tokens = [batch.tokens for batch in batches]
    host, device, distance = host[chosen], device[chosen], distance[chosen]
    followed = distance[~np.isnan(distance)]
    return breakdown.ServingPhase(
        phase=phase,
        steps=len(batches),
        requests=sum(batch.requests for batch in batches),
        tokens=None if None in tokens else sum(count or 0 for count in tokens),
        host=float(host.sum()),
        device=float(device.sum()),
        step_host=float(np.median(host)),
        step_device=float(np.median(device)),
        distance=float(np.median(followed)) if len(followed) else None,
    )


def _batch(name: str) -> _Batch | None:
    """Return what the name of a step says; None of another name."""
    if match := _VLLM.match(name):
        new, new_tokens, running, running_tokens = map(int, match.groups())
        return _Batch(_vllm_phase(new, running), new + running, new_tokens + running_tokens)
    if match := _VLLM_BEFORE.match(name):
        new, running = map(int, match.groups())
        return _Batch(_vllm_phase(new, running), new + running, None)
    if match := _SGLANG.match(name):
        mode, requests, tokens = match.groups()
        phase = _SGLANG_PHASES.get(mode, mode.lower().replace("_", " "))
    elif match := _ATOM.match(name):
        phase, requests, tokens = match.groups()
    else:
        return None
    # A request in decode has one token a step.
    count = int(tokens) if tokens else int(requests) if phase == "decode" else None
    return _Batch(phase, int(requests), count)


def _vllm_phase(new: int, running: int) -> str:
    if new and running:
        return "mixed"
    return "prefill" if new else "decode"


_RESIDENT_BLOCKS = {
    (5, 0): 32, (5, 2): 32, (5, 3): 32, (6, 0): 32, (6, 1): 32, (6, 2): 32, (7, 0): 32, (7, 2): 32,
    (7, 5): 16, (8, 0): 32, (8, 6): 16, (8, 7): 16, (8, 9): 24, (9, 0): 32, (10, 0): 32,
    (10, 3): 32, (11, 0): 24, (12, 0): 24, (12, 1): 24,
}  # fmt: skip
_LIMITS = (
    "computeMajor",
    "computeMinor",
    "numSms",
    "maxThreadsPerMultiprocessor",
    "regsPerMultiprocessor",
    "sharedMemPerMultiprocessor",
)
_REGISTER_UNIT = 256
_SCHEDULERS = 4
_WARP = 32


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one multiprocessor holds, of `multiprocessors`; shared memory in bytes."""

    multiprocessors: int
    warps: int
    blocks: int
    registers: int
    shared_memory: int
    shared_unit: int
    shared_reserved: int


def limits(device: dict[str, Any]) -> Limits | None:
    """Return the limits of a device of a trace's header; None for AMD's and unknown ones."""
    values = [device.get(name) for name in _LIMITS]
    if device.get("warpSize") != _WARP or not all(isinstance(value, int) for value in values):
        return None
    major, minor, multiprocessors, threads, registers, shared = map(int, values)  # type: ignore[arg-type]
    blocks = _RESIDENT_BLOCKS.get((major, minor))
    if blocks is None or min(multiprocessors, threads, registers, shared) < 1:
        return None
    recent = major >= 8
    return Limits(
        multiprocessors=multiprocessors,
        warps=threads // _WARP,
        blocks=blocks,
        registers=registers,
        shared_memory=shared,
        shared_unit=128 if recent else 256,
        shared_reserved=1024 if recent else 0,
    )


def occupancy(
    device: Limits, grid: int, block: int, registers: int, shared_memory: int
) -> tuple[float, Limiter] | None:
    """Return resident warps ÷ what the device holds, and the limiter.

    `grid` in blocks, `block` in threads, `registers` per thread, `shared_memory` in bytes per
    block. Where the grid has fewer blocks than would fit, they are spread over all
    multiprocessors, as Kineto's "est. achieved occupancy %" has it. None for what cannot run.
    """
    if min(grid, block) < 1:
        return None
    warps = math.ceil(block / _WARP)
    unit = _rounded(registers * _WARP, _REGISTER_UNIT)
    used = _rounded(shared_memory + device.shared_reserved, device.shared_unit)
    fitting: dict[Limiter, int] = {"warps": device.warps // warps, "blocks": device.blocks}
    if unit:
        usable = device.registers // _SCHEDULERS // unit * _SCHEDULERS
        fitting["registers"] = usable // warps
    if used:
        fitting["shared memory"] = device.shared_memory // used
    limiter = min(fitting, key=fitting.__getitem__)  # of equal ones the first
    resident, available = fitting[limiter], grid / device.multiprocessors
    if not resident:
        return None
    if available < resident:
        return available * warps / device.warps, "grid"
    return resident * warps / device.warps, limiter


def _rounded(value: int, unit: int) -> int:
    return -(-value // unit) * unit
