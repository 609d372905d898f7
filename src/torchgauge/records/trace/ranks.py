"""What the ranks of a job show together, and for whom they wait."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.exported import Exported
from torchgauge.records.record import Interval, MeasurementWarning, Record
from torchgauge.records.timeline.loop import LoopVerdict

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


SCHEMA = "torchgauge.ranks/1"


class RankTime(Record, frozen=True, kw_only=True):
    """The recorded steps of one rank, in seconds of a typical step.

    Attributes:
        number: The rank.
        steps: How many steps were recorded.
        step: `work` + `waiting`.
        work: The time in which the rank did something itself.
        waiting: The time in which it only waited for communication.
        communication: All communication that was under way, overlapping with other work or not.
        mfu: The utilization of its device at its bare steps; None where it is not known.
    """

    number: int
    steps: int
    step: float
    work: float
    waiting: float
    communication: float
    mfu: float | None = None


class Ranks(Exported, frozen=True, kw_only=True):
    """The ranks of one job, in order of number.

    Attributes:
        missing: Ranks without a record.
        straggler: The rank that works longest in undisturbed steps, in older records in recorded
            ones; None where the ranks do not differ by more than chance.
        lost: Seconds of a step that the others wait for the straggler, the median.
        share: The part of a step in which communication was under way, over all ranks.
        exposed: The part of a step in which a rank only waited for communication, over all ranks.
        verdict: What bounds the job; None where the records do not have the times of steps.
    """

    schema: str = SCHEMA
    world: int
    ranks: tuple[RankTime, ...]
    missing: tuple[int, ...] = ()
    straggler: int | None = None
    lost: float | None = None
    share: float | None = None
    exposed: float | None = None
    verdict: LoopVerdict | None = None
    warnings: tuple[MeasurementWarning, ...] = ()
