"""What a recorded step costs beside the bare one: torchgauge's recording and torch.profiler's."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gpu_rows.line import Line, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine

STEPS = 20
ROUNDS = 5
GOAL = 1.1


def ratio(rounds: Sequence[tuple[float, float, float]]) -> float:
    """Return recorded ÷ bare, the median of rounds of (bare before, recorded, bare after)."""
    return statistics.median(2 * recorded / (before + after) for before, recorded, after in rounds)


def lines(machine: Machine, name: str) -> Iterator[Line]:
    """Yield both ratios of one model."""
    from torch import nn

    from gpu_rows.latency import host_loop
    from gpu_rows.machine import call_of

    placement = machine.model(name)
    call = call_of(placement)
    assert isinstance(placement.model, nn.Module)

    def timed() -> float:
        call()
        return host_loop(call, machine.synchronize, machine.few(STEPS))

    ways = {"ours": in_recording(machine, placement.model), "torch": in_profiler(machine)}
    rounds: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
    for _ in range(machine.few(ROUNDS)):
        for way, recorded in ways.items():
            rounds[way].append((timed(), recorded(timed), timed()))
    yield compared(name, ratio(rounds["ours"]), ratio(rounds["torch"]))


def compared(name: str, ours: float, beside: float) -> Line:
    """Return the line of two ratios to the bare step."""
    return judged(
        name,
        f"{ours:.3f}× the bare step",
        f"{beside:.3f}× under torch.profiler with shapes",
        goal="≤ 1.1 × torch.profiler's",
        met=ours <= GOAL * beside,
        ours=ours,
        beside=beside,
    )


def in_recording(machine: Machine, model: Any) -> Callable[[Callable[[], float]], float]:
    """Return what runs a timing inside of torchgauge's recording."""
    from torchgauge.measure.recording.modules import Modules
    from torchgauge.measure.recording.recording import record
    from torchgauge.measure.timeline.ranges import Ranges

    def recorded(timed: Callable[[], float]) -> float:
        times: list[float] = []
        with Ranges(model, Modules(model)).marking():
            record(lambda: times.append(timed()), shapes=True, device=machine.device)
        return times[0]

    return recorded


def in_profiler(machine: Machine) -> Callable[[Callable[[], float]], float]:
    """Return what runs a timing under torch.profiler, as its tutorial does."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * machine.on_gpu

    def recorded(timed: Callable[[], float]) -> float:
        with profile(activities=activities, record_shapes=True):
            return timed()

    return recorded
