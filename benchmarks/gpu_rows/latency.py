"""Latency by host clock and CUDA events, beside torch's timer and loops written by hand."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gpu_rows.line import Line, absent, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine

NEAR = 0.03


def near(ours: float, beside: float, tolerance: float = NEAR) -> bool:
    """Return whether two times differ by at most `tolerance` of the second."""
    return abs(ours / beside - 1) <= tolerance


def lines(machine: Machine, name: str) -> Iterator[Line]:
    """Yield the host's and the device's time of one model, each beside two other ways.

    The ways alternate, and each figure is the median of its rounds: a machine that becomes slower
    meets all of them.
    """
    import torchgauge as tg
    from gpu_rows.machine import call_of

    placement = machine.model(name)
    call = call_of(placement)
    ways: dict[str, Callable[[], float]] = {
        "timer": lambda: blocked(call, machine.seconds(0.5)),
        "loop": lambda: host_loop(call, machine.synchronize, machine.few(50)),
    }
    if machine.on_gpu:
        ways["events"] = lambda: event_loop(call, machine.few(50))
    times: dict[str, list[float]] = {way: [] for way in ("host", "device", *ways)}
    for _ in range(machine.few(3)):
        ours = tg.measure_latency(
            placement.model,
            placement.inputs,
            budget=machine.seconds(1.0),
            processes=1,
            progress=False,
        )
        times["host"].append(ours.median)
        if ours.device_time is not None:
            times["device"].append(ours.device_time)
        for way, measure in ways.items():
            times[way].append(measure())
    yield from compared(name, {way: statistics.median(t) for way, t in times.items() if t})


def compared(name: str, medians: dict[str, float]) -> Iterator[Line]:
    """Yield the lines of one model from the median seconds of each way."""
    host, loop, timer = medians["host"], medians["loop"], medians["timer"]
    yield judged(
        f"{name}, host clock",
        f"{host * 1e3:.4f} ms",
        f"{loop * 1e3:.4f} ms, a loop with synchronize",
        goal="within 3 %",
        met=near(host, loop),
        ours=host,
        loop=loop,
    )
    yield judged(
        f"{name}, torch.utils.benchmark",
        f"{host * 1e3:.4f} ms",
        f"{timer * 1e3:.4f} ms, calls queued without waiting",
        ours=host,
        timer=timer,
    )
    if "events" not in medians:
        yield absent(f"{name}, CUDA events", "no CUDA events without a GPU")
        return
    if "device" not in medians:
        yield Line(f"{name}, CUDA events", verdict="missed", note="device_time is unknown")
        return
    device, events = medians["device"], medians["events"]
    yield judged(
        f"{name}, CUDA events",
        f"{device * 1e3:.4f} ms",
        f"{events * 1e3:.4f} ms, a loop of events",
        goal="within 3 %",
        met=near(device, events),
        ours=device,
        events=events,
    )


def blocked(call: Callable[[], Any], seconds: float) -> float:
    """Return the median seconds of a call by torch's timer, which waits after each block."""
    from torch.utils.benchmark import Timer

    timer = Timer("call()", globals={"call": call})
    return float(timer.blocked_autorange(min_run_time=seconds).median)


def host_loop(call: Callable[[], Any], synchronize: Callable[[], None], count: int) -> float:
    """Return the median seconds of calls that are each waited for."""
    taken = []
    for _ in range(count):
        synchronize()
        start = time.perf_counter()
        call()
        synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def event_loop(call: Callable[[], Any], count: int, cuda: Any = None) -> float:
    """Return the median seconds between CUDA events around calls that are each waited for."""
    import torch

    cuda = cuda or torch.cuda
    taken = []
    for _ in range(count):
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        cuda.synchronize()
        begin.record()
        call()
        end.record()
        cuda.synchronize()
        taken.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(taken)
