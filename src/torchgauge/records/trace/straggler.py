"""Ranks that come late to their collectives, and what differs between them and the others."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import Interval, Record

Differing = Literal[
    "kernels", "copies", "waiting for the host", "input", "synchronisations", "host"
]


class RankDifference(Record, frozen=True, kw_only=True):
    """What a rank has more of than the median of the ranks that are not late.

    The time of one may be inside that of another: a synchronisation is inside of what the host did.

    Attributes:
        aspect: The kernels that compute, copies, the device's idle time in which it waits for the
            host, the host's time in the input pipeline or in synchronisations, or the `host`'s own
            time in one operator.
        extra_time: Seconds more, over the whole window.
        name: What it is mostly, "aten::item"; empty where it has no name.
    """

    aspect: Differing
    extra_time: float
    name: str = ""


class Straggler(Record, frozen=True, kw_only=True):
    """A rank that comes last far more often than chance would have it.

    Where there are several, each is compared with the others without those named before it.

    Attributes:
        rank: Its number.
        lost: Seconds that the middle one of the others waits for it.
        interval: The 95 % interval of `lost` in as many units, by resampling them.
        last: In how many units it was the last.
        units: In how many units of its groups any rank was late.
        unit: What counts as one: a marked step, or a call of a collective where few are marked.
        differences: What it has more of than the ranks that are not late, most first.
    """

    rank: int
    lost: float
    interval: Interval
    last: int
    units: int
    unit: Literal["step", "call"]
    differences: tuple[RankDifference, ...] = ()


class LateCall(Record, frozen=True, kw_only=True):
    """A call of a collective in which the others waited long for one rank.

    Attributes:
        name: The collective.
        bytes: Those of the message.
        number: Of the calls of this collective and size, from 0.
        time: When the last rank began, in seconds after the first collective.
        rank: The last one.
        late: Seconds that the middle one of the others waited for it.
    """

    name: str
    bytes: int | None
    number: int
    time: float
    rank: int
    late: float
