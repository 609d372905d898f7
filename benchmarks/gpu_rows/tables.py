"""Operators and kernels beside torch.profiler's key_averages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_rows.line import Line, absent, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine

STEPS = 5
SAME_CALLS = 0.99
NEAR = 0.05


class Used(NamedTuple):
    """Calls and seconds of a step."""

    calls: float
    seconds: float


class Agreement(NamedTuple):
    """How two tables by name agree: counts of names, and the seconds of all together."""

    names: int
    same_calls: int
    differing: tuple[str, ...]
    ours: float
    beside: float

    @property
    def share(self) -> float:
        """The share of names with the same number of calls in both; of no names it is 0."""
        return self.same_calls / self.names if self.names else 0.0


def agreement(ours: Mapping[str, Used], beside: Mapping[str, Used]) -> Agreement:
    """Compare two tables; a name that only one has differs."""
    names = sorted(set(ours) | set(beside))
    none = Used(0, 0.0)
    differing = tuple(
        name
        for name in names
        if abs(ours.get(name, none).calls - beside.get(name, none).calls) > 1e-9
    )
    return Agreement(
        len(names),
        len(names) - len(differing),
        differing,
        sum(used.seconds for used in ours.values()),
        sum(used.seconds for used in beside.values()),
    )


def lines(machine: Machine, name: str) -> Iterator[Line]:
    """Yield the agreement of one model's tables."""
    import torchgauge as tg

    placement = machine.model(name)
    profile = tg.profile(
        placement.model,
        placement.inputs,
        processes=1,
        budget=machine.seconds(0.5),
        roofs=False,
        progress=False,
    )
    operators, kernels = averages(machine, placement, machine.few(STEPS))
    clock = "CUDA" if machine.on_gpu else "CPU"
    yield compared(f"{name}, operators", of_operators(profile, clock), operators)
    if machine.on_gpu:
        yield compared(f"{name}, kernels", of_kernels(profile), kernels)
    else:
        yield absent(f"{name}, kernels", "no kernels without a GPU")


def compared(of: str, ours: Mapping[str, Used], beside: Mapping[str, Used]) -> Line:
    """Return the line of two tables."""
    found = agreement(ours, beside)
    near = bool(found.beside) and abs(found.ours / found.beside - 1) <= NEAR
    return judged(
        of,
        f"{found.same_calls} of {found.names} with as many calls, {found.ours * 1e3:.3f} ms",
        f"{found.beside * 1e3:.3f} ms",
        goal="≥ 99 % of names, time within 5 %",
        met=found.share >= SAME_CALLS and near,
        note="differ: " + ", ".join(found.differing[:5]) if found.differing else "",
        share=found.share,
        ours=found.ours,
        beside=found.beside,
    )


def of_operators(profile: Any, clock: str) -> dict[str, Used]:
    """Return our table of operators by name."""
    rows = profile.table("operators").rows()
    return {row["Name"]: Used(row["# of Calls"], row.get(f"Self {clock}") or 0.0) for row in rows}


def of_kernels(profile: Any) -> dict[str, Used]:
    """Return our table of kernels by name, launch configurations together."""
    found: dict[str, Used] = {}
    for row in profile.table("kernels").rows():
        before = found.get(row["name"], Used(0, 0.0))
        found[row["name"]] = Used(before.calls + row["calls"], before.seconds + row["device_time"])
    return found


def averages(
    machine: Machine, placement: Any, steps: int
) -> tuple[dict[str, Used], dict[str, Used]]:
    """Return operators and kernels of a step by torch.profiler."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from gpu_rows.machine import call_of

    call = call_of(placement)
    machine.warm_up(call)
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * machine.on_gpu
    with profile(activities=activities) as recorded:
        for _ in range(steps):
            call()
        machine.synchronize()
    operators: dict[str, Used] = {}
    kernels: dict[str, Used] = {}
    for event in recorded.key_averages():
        on_device = event.device_type != torch.autograd.DeviceType.CPU
        seconds = event.self_device_time_total if machine.on_gpu else event.self_cpu_time_total
        if event.is_user_annotation:
            continue
        if on_device or event.key.startswith("aten::"):
            table = kernels if on_device else operators
            table[event.key] = Used(event.count / steps, seconds * 1e-6 / steps)
    return operators, kernels
