"""Sequences of kernels that repeat on a stream: the layers of a model, as its device sees them.

A sequence of length p repeats where each kernel is the one that ran p before it. Lengths to try are
the distances between one call of a kernel and its next, those of most time first. Of all repeating
sequences the one is taken that explains most of the time by the least: its time without one
repetition. What it covers is left out, and the rest is searched again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.trace.device_work import Activities
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.records.trace.breakdown import KernelSequence
from torchgauge.records.trace.events import ABSENT, Integers

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
            _record(repeated, work, device, stream, total, facts.name.values)
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


def _record(
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
