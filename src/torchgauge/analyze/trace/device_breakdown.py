"""Time of each device and stream by kind of work and cause of idleness; the sum is the window."""

from __future__ import annotations

import numpy as np

from torchgauge.analyze.timeline.time_intervals import Intervals, union
from torchgauge.analyze.trace.device_work import COMMUNICATION, COMPUTE, COPY, Activities
from torchgauge.records.trace.breakdown import Breakdown, DeviceTime, Idle, StreamTime
from torchgauge.records.trace.events import ABSENT, Integers

# What a device takes from one kernel to the next that waits already, in ns: Ampere and Hopper some
# 1 µs, MI300 up to 5 µs.
BACK_TO_BACK = 5_000
# What a host takes at most from one launch to the next, profiled and with stacks, in ns. Whatever
# takes longer is something else: loading data, waiting, collecting garbage.
BETWEEN_LAUNCHES = 500_000
HOST_WAIT, KERNEL_WAIT, OTHER, OUTSIDE = range(4)


def device_times(
    activities: Activities, *, back_to_back: int = BACK_TO_BACK
) -> tuple[DeviceTime, ...]:
    """Return the breakdown of each device that did anything, and of its streams.

    `back_to_back` is the longest pause in ns between two kernels that counts as the device's own.
    """
    device_records = []
    for number, on_device in activities.by(activities.device):
        window = on_device.window
        streams = tuple(
            StreamTime(
                stream=None if stream == ABSENT else stream,
                breakdown=_breakdown(on_stream, window, back_to_back),
            )
            for stream, on_stream in on_device.by(on_device.stream)
        )
        device_records.append(
            DeviceTime(
                device=None if number == ABSENT else number,
                breakdown=_breakdown(on_device, window, back_to_back),
                streams=streams,
            )
        )
    return tuple(device_records)


def _breakdown(activities: Activities, window: tuple[int, int], back_to_back: int) -> Breakdown:
    kinds = [_covered(activities, window, kind) for kind in (COMPUTE, COMMUNICATION, COPY)]
    compute, communication, copies = kinds
    exposed = communication.outside(compute)
    exposed_copies = copies.outside(compute).outside(communication)
    return Breakdown(
        window=(window[1] - window[0]) * 1e-9,
        compute=compute.length * 1e-9,
        communication=communication.length * 1e-9,
        copies=copies.length * 1e-9,
        exposed_communication=exposed.length * 1e-9,
        exposed_copies=exposed_copies.length * 1e-9,
        idle=_idle(activities, window, back_to_back),
        activities=len(activities),
    )


def _covered(activities: Activities, window: tuple[int, int], kind: int) -> Intervals:
    chosen = activities.kind == kind
    return union(activities.begin[chosen], activities.end[chosen], window)


def _idle(activities: Activities, window: tuple[int, int], back_to_back: int) -> Idle:
    _, length, cause, _ = gaps(activities, back_to_back)
    sums = np.bincount(cause, length, minlength=OUTSIDE + 1).astype(np.int64)
    first, last = activities.window
    outside = first - window[0] + window[1] - last
    host, kernel, other, _ = (sums * 1e-9).tolist()
    short = length[(cause == HOST_WAIT) & (length <= BETWEEN_LAUNCHES)].sum()
    return Idle(
        host_wait=host,
        kernel_wait=kernel,
        other=other,
        outside=outside * 1e-9,
        between_launches=float(short) * 1e-9,
    )


def gaps(
    activities: Activities, back_to_back: int = BACK_TO_BACK
) -> tuple[Integers, Integers, Integers, Integers]:
    """Return the pauses between activities: begin, length (ns), cause, and who ended each.

    The cause follows from the activity that ends the pause: of several that begin at once, the
    one that was launched last, since all of them were waited for.
    """
    order = np.lexsort((activities.launch, activities.begin))
    ordered = activities.take(order)
    reach = np.maximum.accumulate(ordered.end)
    length = ordered.begin[1:] - reach[:-1]
    pauses = np.flatnonzero(length > 0)
    begin, length = reach[pauses], length[pauses]
    last = np.searchsorted(ordered.begin, ordered.begin[pauses + 1], side="right") - 1
    launch = ordered.launch[last]
    cause = np.where(length <= back_to_back, KERNEL_WAIT, OTHER)
    cause[launch > begin] = HOST_WAIT
    cause[launch == ABSENT] = OTHER
    return begin, length, cause, order[last]
