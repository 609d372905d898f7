"""Checks of a GPU: power and clock limits, throttling, other processes, persistence mode."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from torchgauge import units
from torchgauge.device.checks.check import Looking, Observation, check
from torchgauge.device.checks.readings import GpuState, Readings
from torchgauge.records.finding import Finding

# Figures that not every GPU reports, and without which no fault is missed.
OPTIONAL = ("application_clock",)


@check("gpu", "GPU")
def gpu(now: Readings) -> Looking:
    """Look for limits on a GPU, for others on it, and for a driver that unloads."""
    gpus = now.gpus
    if gpus is None:
        return Observation(unknown="not asked")
    if gpus.unknown:
        return Observation(unknown=gpus.unknown)
    if not gpus.states:
        return Observation("no NVIDIA GPU")
    for state in gpus.states:
        yield from state_findings(state)
    missing = sorted({name for state in gpus.states for name in unknown_figures(state)})
    unknown = f"the driver does not report: {', '.join(missing)}" if missing else ""
    return Observation(", ".join(state.name for state in gpus.states), unknown)


def unknown_figures(state: GpuState) -> list[str]:
    """Return the figures that the driver does not report for this GPU."""
    names = [field.name for field in dataclasses.fields(state) if field.name not in OPTIONAL]
    return [name.replace("_", " ") for name in names if getattr(state, name) is None]


def state_findings(state: GpuState) -> Iterator[Finding]:
    """Yield what is wrong with one GPU."""
    yield from _power(state)
    yield from _clocks(state)
    yield from _sharing(state)
    if state.persistent is False:
        yield Finding(
            id="gpu-persistence",
            severity="warning",
            title=f"GPU {state.index}: persistence mode is off",
            evidence="The driver unloads when no process uses the GPU; the first call then waits "
            "seconds, and clocks start from idle.",
            remedy=f"sudo nvidia-smi -i {state.index} -pm 1",
        )


def _power(state: GpuState) -> Iterator[Finding]:
    limit, default = state.limit, state.default_limit
    if limit is not None and default is not None and limit < default:
        yield Finding(
            id="gpu-power-limit",
            severity="warning",
            title=f"GPU {state.index}: the power limit is lowered",
            evidence=f"{limit:.0f} W of {default:.0f} W.",
            remedy=f"sudo nvidia-smi -i {state.index} -pl {default:.0f}",
        )
    if state.throttled:
        yield Finding(
            id="gpu-throttled",
            severity="serious",
            title=f"GPU {state.index}: its clocks are reduced now",
            evidence=f"Reasons: {', '.join(state.throttled)}.",
            remedy="Let it cool down, and check its power and cooling.",
        )


def _clocks(state: GpuState) -> Iterator[Finding]:
    fixed, highest = state.application_clock, state.highest_clock
    if fixed is not None and highest is not None and fixed < highest:
        yield Finding(
            id="gpu-clocks",
            severity="info",
            title=f"GPU {state.index}: application clocks are below the highest",
            evidence=f"{fixed / 1e6:.0f} of {highest / 1e6:.0f} MHz.",
            remedy="Good for comparisons. For the highest speed: "
            f"sudo nvidia-smi -i {state.index} -rac",
        )


def _sharing(state: GpuState) -> Iterator[Finding]:
    if not state.other_processes:
        return
    busy = f", {units.percent(state.utilization)} busy" if state.utilization is not None else ""
    used = f", {units.size(state.used, 3)} in use" if state.used is not None else ""
    yield Finding(
        id="gpu-shared",
        severity="serious" if state.utilization else "warning",
        title=f"GPU {state.index}: other processes are on it",
        evidence=f"{state.other_processes} of them{busy}{used}.",
        remedy="Stop them (nvidia-smi names them), or choose another GPU.",
    )
