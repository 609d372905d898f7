"""How much of the device's time torchgauge gives to layers and to buckets that have a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_rows.line import Line, absent, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine
    from torchgauge.records.timeline.tree import Tree

GOAL = 0.99


class Shares(NamedTuple):
    """Seconds on the device in a step, and the shares of them in layers and in named buckets."""

    device: float
    layers: float
    buckets: float

    @property
    def attributed(self) -> float:
        """The share that has a place."""
        return self.layers + self.buckets


def shares(tree: Tree) -> Shares | None:
    """Return where a tree's device time is; None where it has none.

    What ran outside the model, or was launched before the recording, has no place in it.
    """
    from torchgauge.analyze.timeline.device_time import BEFORE
    from torchgauge.analyze.timeline.tree import OUTSIDE_MODEL

    whole = tree.root.device_time
    if not whole:
        return None
    of_bucket = {
        node.name: node.device_time or 0.0 for node in tree.root.children if node.kind == "bucket"
    }
    named = sum(time for name, time in of_bucket.items() if name not in (BEFORE, OUTSIDE_MODEL))
    in_layers = whole - sum(of_bucket.values())
    return Shares(whole, in_layers / whole, named / whole)


def lines(machine: Machine, name: str, mode: str) -> Iterator[Line]:
    """Yield the share of one model in one mode, and its sum beside torch.profiler's."""
    import torchgauge as tg

    placement = machine.model(name)
    model = in_mode(placement.model, mode, tiny=machine.tiny)
    budget = machine.seconds(1.0)
    profile = tg.profile(
        model, placement.inputs, processes=1, budget=budget, roofs=False, progress=False
    )
    of = f"{name}, {mode}"
    if failures := [warning.message for warning in profile.all_warnings if warning.failed]:
        yield Line(f"{of}: probes", verdict="failed", note="; ".join(failures))
    if not machine.on_gpu:
        yield absent(of, "no device time without a GPU")
        return
    found = None if profile.tree is None else shares(profile.tree)
    yield from compared(of, found, kernel_seconds(machine, model, placement.inputs))


def compared(of: str, found: Shares | None, beside: float) -> Iterator[Line]:
    """Yield the line of the shares, and of their sum beside torch.profiler's seconds."""
    if found is None:
        yield Line(of, verdict="missed", note="no device time was recorded")
        return
    yield judged(
        of,
        f"{found.attributed:.2%} of {found.device * 1e3:.3f} ms ({found.layers:.2%} in layers)",
        "",
        goal=f"≥ {GOAL:.0%}",
        met=found.attributed >= GOAL,
        **found._asdict(),
    )
    yield judged(
        f"{of}: all device time",
        f"{found.device * 1e3:.3f} ms",
        f"{beside * 1e3:.3f} ms in torch.profiler's key_averages",
        goal="within 5 %",
        met=bool(beside) and abs(found.device / beside - 1) <= 0.05,
        ours=found.device,
        beside=beside,
    )


def in_mode(model: Any, mode: str, *, tiny: bool) -> Any:
    """Return the model eager, compiled, or compiled into CUDA graphs."""
    import torch

    if mode == "eager":
        return model
    if tiny:
        return torch.compile(model, backend="eager")
    return torch.compile(model, mode="reduce-overhead" if mode == "CUDA graphs" else None)


def kernel_seconds(machine: Machine, model: Any, inputs: Any, steps: int = 5) -> float:
    """Return the device's seconds per call by torch.profiler alone."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    def call() -> None:
        with torch.inference_mode():
            model(*inputs.args, **inputs.kwargs)

    machine.warm_up(call)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for _ in range(steps):
            call()
        machine.synchronize()
    return device_seconds(recorded.key_averages(), torch.autograd.DeviceType.CPU) / steps


def device_seconds(averages: Iterable[Any], host: object) -> float:
    """Return the seconds of all device work in key_averages.

    Operators have the time of their kernels as well, and ranges that of what is in them.
    """
    return sum(
        event.self_device_time_total * 1e-6
        for event in averages
        if event.device_type != host and not event.is_user_annotation
    )
