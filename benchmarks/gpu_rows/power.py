"""What NVML tells while a model runs: the series, throttling, energy where it is counted."""

from __future__ import annotations

import importlib.util
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gpu_rows.line import Line, absent, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine
    from torchgauge.records.system import GpuSample, GpuUse

SECONDS = 6.0
# Two readings a second at least, or a phase of a second has no figure.
GOAL_RATE = 2.0
NEAR = 0.1


def energy(samples: Sequence[GpuSample]) -> float | None:
    """Return the joules under a series of power readings, by trapezoids; None without two."""
    known = [(one.time, one.power) for one in samples if one.power is not None]
    if len(known) < 2:
        return None
    return sum(
        (later - earlier) * (before + after) / 2
        for (earlier, before), (later, after) in itertools.pairwise(known)
    )


def lines(machine: Machine) -> Iterator[Line]:
    """Yield the series of one model under load, and its energy beside the counter's."""
    from gpu_rows.machine import call_of
    from torchgauge.device.load import gpu_metrics
    from torchgauge.measure.machine import system

    call = call_of(machine.model("ResNet-50"))

    def work() -> None:
        call()
        machine.synchronize()

    with gpu_metrics(machine.device) as gpus:
        if not gpus.names:
            yield absent("NVML", gpus.absent or "no GPU")
            return
        counter = Counter(machine)
        before = counter.joules()
        found = system.measure(work, gpus=gpus, duration=machine.seconds(SECONDS))
        after = counter.joules()
    (use,) = found.gpus
    yield from told(use, found.duration)
    spent = None if before is None or after is None else after - before
    yield energies(energy(use.samples), spent)
    if machine.recordings is not None:
        keep(machine, use)


def of_calls(machine: Machine) -> Iterator[Line]:
    """Yield the joules of a call of one model beside the counter's around calls by hand."""
    import torchgauge as tg
    from gpu_rows.machine import call_of

    if not machine.on_gpu or importlib.util.find_spec("zeus") is None:
        yield absent("energy of a call", "it needs a GPU and the package zeus")
        return
    placement = machine.model("ResNet-50")
    found = tg.measure_energy(placement.model, placement.inputs)
    ours = {counter.part: counter for counter in found.counters}["gpu"]
    call, counter, calls = call_of(placement), Counter(machine), 0
    before, end = counter.joules(), time.monotonic() + machine.seconds(3.0)
    while time.monotonic() < end:
        call()
        machine.synchronize()
        calls += 1
    after = counter.joules()
    by_hand = None if before is None or after is None else (after - before) / calls
    yield each(ours.joules, by_hand, ours.reason)


def each(ours: float | None, by_hand: float | None, reason: str = "") -> Line:
    """Return the line of a call's joules beside the counter's by hand."""
    if ours is None or not by_hand:
        why = reason or "the counter does not move"
        return Line("energy of a call", verdict="missed", note=why)
    return judged(
        "energy of a call",
        f"{ours:.4g} J",
        f"{by_hand:.4g} J by the counter",
        goal="within 10 %",
        met=abs(ours / by_hand - 1) <= NEAR,
        joules=ours,
        by_hand=by_hand,
    )


def told(use: GpuUse, duration: float) -> Iterator[Line]:
    """Yield how many readings there are of each figure, and the reasons for reduced clocks."""
    rate = len(use.samples) / duration
    missing = [name for name in ("utilization", "memory", "power", "clock")
               if getattr(use, name) is None]  # fmt: skip
    mean = use.utilization.mean if use.utilization else None
    yield judged(
        "series",
        f"{len(use.samples)} readings in {duration:.1f} s",
        f"{mean:.0%} busy" if mean is not None else "utilisation unknown",
        goal=f"≥ {GOAL_RATE:g} a second, all figures",
        met=rate >= GOAL_RATE and not missing,
        note="without " + ", ".join(missing) if missing else "",
        readings=len(use.samples),
        utilization=mean,
    )
    reasons = use.throttled
    yield judged(
        "throttling",
        "not told" if reasons is None else ", ".join(reasons) or "none",
        goal="told",
        met=reasons is not None,
    )


def energies(integral: float | None, counter: float | None) -> Line:
    """Return the line of the energy under the power readings beside the counter's."""
    if integral is None:
        return absent("energy", "no power readings")
    if counter is None:
        return judged("energy", f"{integral:,.0f} J", "the GPU has no counter", joules=integral)
    return judged(
        "energy",
        f"{integral:,.0f} J under the power readings",
        f"{counter:,.0f} J by the counter",
        goal="within 10 %",
        met=bool(counter) and abs(integral / counter - 1) <= NEAR,
        joules=integral,
        counter=counter,
    )


class Counter:
    """The GPU's counter of energy since the driver was loaded."""

    def __init__(self, machine: Machine, nvml: Any = None) -> None:
        self._nvml, self._handle = nvml, None
        if not machine.on_gpu:
            return
        import torch

        if nvml is None:
            import pynvml

            self._nvml = pynvml
        uuid = torch.cuda.get_device_properties(machine.device).uuid
        self._handle = self._nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")

    def joules(self) -> float | None:
        """Return the counter's joules; None where there is none."""
        if self._handle is None:
            return None
        try:
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) * 1e-3
        except self._nvml.NVMLError:
            return None


def keep(machine: Machine, use: GpuUse) -> None:
    """Write the readings as JSON lines into the folder of recordings."""
    assert machine.recordings is not None
    text = "".join(
        json.dumps({"time": s.time, "utilization": s.utilization, "memory": s.memory,
                    "power": s.power, "clock": s.clock}) + "\n"
        for s in use.samples
    )  # fmt: skip
    (machine.recordings / "nvml.jsonl").write_text(text)
