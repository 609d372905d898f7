"""Collective communication by kind and size: how long, how fast, how much of it exposed.

Bus bandwidth as nccl-tests defines it (doc/PERFORMANCE.md there): bytes of the message ÷ time × the
share of it that passes the slowest link.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import msgspec
import numpy as np

from torchgauge.analyze.communication.communication_kernels import collective_name
from torchgauge.analyze.timeline.device_time import Intervals, union
from torchgauge.analyze.trace.device_work import COMMUNICATION, COMPUTE, Activities
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.records.trace.events import ABSENT, Integers
from torchgauge.records.trace.trace import Collectives

_BYTES = {
    "double": 8, "long": 8, "int64": 8, "float": 4, "int": 4, "int32": 4, "half": 2, "bfloat16": 2,
    "short": 2, "char": 1, "byte": 1, "bool": 1, "uint8": 1, "float8": 1, "complexfloat": 8,
}  # fmt: skip


def item_bytes(dtype: str | None) -> int | None:
    """Return the bytes of an element of a type as NCCL's metadata names it ("BFloat16")."""
    if dtype is None:
        return None
    name = dtype.lower()
    return 1 if name.startswith("float8") else _BYTES.get(name)


def bus_share(name: str, ranks: int) -> float | None:
    """Return the share of a message that passes the slowest link; None for unknown collectives."""
    if ranks < 1:
        return None
    if name == "allreduce":
        return 2 * (ranks - 1) / ranks
    if name in ("allgather", "reducescatter", "alltoall", "alltoallv"):
        return (ranks - 1) / ranks
    return 1.0 if name in ("broadcast", "reduce", "send", "recv", "sendrecv") else None


def exposed(activities: Activities) -> Integers:
    """Return for each activity the ns of it in which nothing computed on its device."""
    result = np.zeros(len(activities), np.int64)
    for device in np.unique(activities.device).tolist():
        indices = np.flatnonzero(activities.device == device)
        on_device = activities.take(indices)
        compute = on_device.take(on_device.kind == COMPUTE)
        busy: Intervals = union(compute.begin, compute.end, on_device.window)
        overlapped = busy.before(on_device.end) - busy.before(on_device.begin)
        result[indices] = on_device.end - on_device.begin - overlapped
    return result


def collectives(activities: Activities, facts: Facts) -> tuple[Collectives, ...]:
    """Return the collectives of one rank by kind, type, size and group, most time first."""
    indices = np.flatnonzero(activities.kind == COMMUNICATION)
    exposed_time = exposed(activities)
    groups: dict[tuple[str, str | None, int | None, int | None], list[int]] = {}
    for index in indices.tolist():
        groups.setdefault(message(facts, index), []).append(index)
    records = []
    for (name, dtype, size, ranks), group in groups.items():
        time = int((activities.end[group] - activities.begin[group]).sum()) * 1e-9
        share = bus_share(name, ranks) if ranks is not None else None
        has_bandwidth = size is not None and share is not None and time > 0
        records.append(
            Collectives(
                name=name,
                dtype=dtype,
                bytes=size,
                group=ranks,
                calls=len(group),
                time=time,
                exposed=int(exposed_time[group].sum()) * 1e-9,
                bus_bandwidth=size * share * len(group) / time if has_bandwidth else None,  # type: ignore[operator]
            )
        )
    return tuple(sorted(records, key=lambda record: -record.time))


def exposed_last(activities: Activities, steps: Integers | None) -> float | None:
    """Return the seconds in which nothing computes beside the last collective of each step.

    `steps` are the numbers of the marked steps that launched the activities. None where fewer than
    two hold a collective.
    """
    if steps is None:
        return None
    (indices,) = np.nonzero((activities.kind == COMMUNICATION) & (steps != ABSENT))
    indices = indices[np.lexsort((activities.begin[indices], steps[indices]))]
    is_last = np.append(np.diff(steps[indices]) != 0, [True] * bool(len(indices)))
    last = indices[is_last.astype(np.bool_)]
    if len(last) < 2:
        return None
    return int(exposed(activities)[last].sum()) * 1e-9


def message(facts: Facts, index: int) -> tuple[str, str | None, int | None, int | None]:
    """Return name, element type, bytes and group size of a communication activity."""
    recorded_name = facts.collective[index] or facts.host_collective[index]
    name = collective_name(recorded_name, str(facts.name[index]))
    dtype, ranks = facts.dtype[index], int(facts.group_size[index])
    elements = max(int(facts.elements[index]), int(facts.elements_out[index]))
    width = item_bytes(dtype)
    size = elements * width if elements >= 0 and width is not None else None
    return name, dtype, size, ranks if ranks > 0 else None


# Not every rank of a group has these, and they do not end together.
_ONE_SIDED = ("send", "recv", "sendrecv", "put", "get")
_EXCHANGES = ("alltoall", "alltoallv")
_integers = msgspec.json.Decoder(tuple[int, ...]).decode


class Message(NamedTuple):
    """Key of matching calls: the collective, and the group it ran in.

    Groups of one size are told apart by `group` and `ranks`, as the trace names them: a name alone
    may be that of several, and the list of a large group is cut short.
    """

    name: str
    dtype: str | None
    bytes: int | None
    size: int | None
    group: str | None = None
    ranks: str | None = None

    def members(self) -> Collection[int]:
        """Return the ranks of the group, none where the trace does not list all of them."""
        try:
            return frozenset(msgspec.json.decode(self.ranks or "[]", type=list[int]))
        except msgspec.MsgspecError:
            return ()


@dataclasses.dataclass(frozen=True, eq=False)
class Calls:
    """Begin and end of each call in ns of the rank's clock, by message, in order of begin.

    `steps` are the numbers of the marked steps that launched the calls, ABSENT outside of them; a
    message without an entry has none.
    """

    by_message: dict[Message, tuple[Integers, Integers]]
    steps: dict[Message, Integers] = dataclasses.field(default_factory=dict)


def rank_calls(
    activities: Activities, facts: Facts, origin: int, steps: Integers | None = None
) -> Calls:
    """Return the calls of all collectives that a whole group takes part in.

    `origin` is what the times of `activities` count from, in ns of the rank's clock; `steps` are
    the numbers of their marked steps, None where none is marked.
    """
    groups: dict[Message, list[int]] = {}
    indices = np.flatnonzero(activities.kind == COMMUNICATION)
    for index in indices[np.argsort(activities.begin[indices], kind="stable")].tolist():
        key = Message(*message(facts, index), facts.group[index], facts.group_ranks[index])
        if key.name not in _ONE_SIDED:
            groups.setdefault(key, []).append(index)
    return Calls(
        {
            key: (activities.begin[group] + origin, activities.end[group] + origin)
            for key, group in groups.items()
        },
        {} if steps is None else {key: steps[group] for key, group in groups.items()},
    )


def sent_to_ranks(activities: Activities, facts: Facts) -> dict[int, int]:
    """Return the bytes that a rank sends in all-to-alls, by the rank that gets them.

    Nothing where any of them does not tell its sizes or the ranks of its group: the sum of the rest
    would be taken for the whole.
    """
    calls: Counter[tuple[str | None, str | None, int, str | None]] = Counter()
    for index in np.flatnonzero(activities.kind == COMMUNICATION).tolist():
        if message(facts, index)[0] in _EXCHANGES:
            ranks, split = facts.group_ranks[index], facts.split_in[index]
            calls[ranks, split, int(facts.elements[index]), facts.dtype[index]] += 1
    sent: Counter[int] = Counter()
    for (ranks, split, elements, dtype), count in calls.items():
        members, shares = _listed(ranks), _listed(split)
        width = item_bytes(dtype)
        if not members or shares is None or elements < 0 or width is None:
            return {}
        rows = shares or (1,) * len(members)
        if len(rows) != len(members) or min(rows) < 0 or (elements and not sum(rows)):
            return {}
        for member, share in zip(members, rows, strict=True):
            sent[member] += count * width * (elements * share // sum(rows) if share else 0)
    return dict(sorted(sent.items()))


def _listed(text: str | None) -> tuple[int, ...] | None:
    """Return a list of numbers, None where it is absent or cut short."""
    try:
        return None if text is None else _integers(text)
    except msgspec.MsgspecError:
        return None
