"""What one rank sends to each other one in all-to-alls."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from torchgauge.analyze.trace.collectives import item_bytes, message
from torchgauge.analyze.trace.device_work import COMMUNICATION, Activities
from torchgauge.analyze.trace.kernel_facts import Facts

_NAMES = ("alltoall", "alltoallv")
_integers = msgspec.json.Decoder(tuple[int, ...]).decode


def sent_to_ranks(activities: Activities, facts: Facts) -> dict[int, int]:
    """Return the bytes that a rank sends in all-to-alls, by the rank that gets them.

    Nothing where any of them does not tell its sizes or the ranks of its group: the sum of the rest
    would be taken for the whole.
    """
    calls: Counter[tuple[str | None, str | None, int, str | None]] = Counter()
    for index in np.flatnonzero(activities.kind == COMMUNICATION).tolist():
        if message(facts, index)[0] in _NAMES:
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
