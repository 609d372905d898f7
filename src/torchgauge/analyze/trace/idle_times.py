"""For what a device waits: where the time of its window goes, and of its streams'."""

from __future__ import annotations

import numpy as np

from torchgauge.analyze.timeline.device_time import union
from torchgauge.analyze.trace.device_work import COMMUNICATION, COMPUTE, COPY, Activities
from torchgauge.records.trace.breakdown import Breakdown, DeviceTime, Idle, LatePiece, StreamTime
from torchgauge.records.trace.events import ABSENT, Coded, Integers

# What a device takes from one kernel to the next that waits already, in ns: Ampere and Hopper some
# 1 µs, MI300 up to 5 µs.
BACK_TO_BACK = 5_000
# What a host takes at most from one launch to the next, profiled and with stacks, in ns. Whatever
# takes longer is something else: loading data, waiting, collecting garbage.
BETWEEN_LAUNCHES = 500_000
HOST_WAIT, KERNEL_WAIT, OTHER, UNKNOWN = range(4)


def device_times(activities: Activities, names: Coded[str]) -> tuple[DeviceTime, ...]:
    """Return the breakdown of each device that did anything, and of its streams.

    `names` are those of the activities.
    """
    return tuple(
        DeviceTime(
            device=None if number == ABSENT else number,
            breakdown=_breakdown(on_device, on_device.window),
            streams=tuple(
                StreamTime(
                    stream=None if stream == ABSENT else stream,
                    breakdown=_breakdown(on_stream, on_device.window),
                )
                for stream, on_stream in on_device.by(on_device.stream)
            ),
            longest_other=_longest_other(on_device, names.take(activities.device == number)),
        )
        for number, on_device in activities.by(activities.device)
    )


def _longest_other(activities: Activities, names: Coded[str]) -> LatePiece | None:
    """Return the work before which the device waited longest for something other than the host."""
    _, length, cause, ended_by = gaps(activities)
    length[cause != OTHER] = 0
    if not length.any():
        return None
    last = int(ended_by[np.argmax(length)])
    begin, launch = int(activities.begin[last]), int(activities.launch[last])
    on_stream = activities.stream == activities.stream[last]
    return LatePiece(
        name=str(names[last]),
        begin=(begin - activities.window[0]) * 1e-9,
        idle=int(length.max()) * 1e-9,
        delay=(begin - launch) * 1e-9,
        first_of_stream=bool(activities.begin[on_stream].min() == begin),
    )


def _breakdown(activities: Activities, window: tuple[int, int]) -> Breakdown:
    of_kind = [activities.kind == kind for kind in (COMPUTE, COMMUNICATION, COPY)]
    compute, communication, copies = (
        union(activities.begin[rows], activities.end[rows], window) for rows in of_kind
    )
    exposed = communication.outside(compute)
    exposed_copies = copies.outside(compute).outside(communication)
    return Breakdown(
        window=(window[1] - window[0]) * 1e-9,
        compute=compute.length * 1e-9,
        communication=communication.length * 1e-9,
        copies=copies.length * 1e-9,
        exposed_communication=exposed.length * 1e-9,
        exposed_copies=exposed_copies.length * 1e-9,
        idle=_idle(activities, window),
        activities=len(activities),
    )


def _idle(activities: Activities, window: tuple[int, int]) -> Idle:
    _, length, cause, _ = gaps(activities)
    sums = np.bincount(cause, length, minlength=UNKNOWN + 1).astype(np.int64)
    first, last = activities.window
    outside = first - window[0] + window[1] - last
    host, kernel, other, unknown = (sums * 1e-9).tolist()
    short = length[(cause == HOST_WAIT) & (length <= BETWEEN_LAUNCHES)].sum()
    return Idle(
        host_wait=host,
        kernel_wait=kernel,
        other=other,
        unknown=unknown,
        outside=outside * 1e-9,
        between_launches=float(short) * 1e-9,
    )


def gaps(activities: Activities) -> tuple[Integers, Integers, Integers, Integers]:
    """Return the pauses between activities: begin, length (ns), cause, and who ended each.

    The cause follows from the activity that ends the pause: of several that begin at once, the
    one that was launched last, since all of them were waited for. Until it was due the device
    waited for the host, and then for something else: a pause of both is two.
    """
    order = np.lexsort((activities.launch, activities.begin))
    ordered = activities.take(order)
    reach = np.maximum.accumulate(ordered.end)
    pauses = np.flatnonzero(ordered.begin[1:] > reach[:-1])
    begin, end = reach[pauses], ordered.begin[pauses + 1]
    last = np.searchsorted(ordered.begin, end, side="right") - 1
    due = ordered.due[last]
    until = np.clip(np.maximum(due, ordered.launch[last]), begin, end)
    afterwards = np.where(end - until <= BACK_TO_BACK, KERNEL_WAIT, OTHER)
    afterwards[due == ABSENT] = UNKNOWN
    cause = np.stack([np.full(len(pauses), HOST_WAIT), afterwards], axis=1).ravel()
    begin, end = (np.stack(pair, axis=1).ravel() for pair in ((begin, until), (until, end)))
    lasts = end > begin
    return begin[lasts], (end - begin)[lasts], cause[lasts], np.repeat(order[last], 2)[lasts]
