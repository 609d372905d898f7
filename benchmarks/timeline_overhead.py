"""What instrumentation costs: instrumented ÷ bare, interleaved step by step.

Stamps are what layer times come from; the recording is torch.profiler with shapes and our ranges.
Beside them: torch.profiler with shapes and memory, as a user would run it, and hooks with ranges.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.recording.recording import record
from torchgauge.measure.timeline.ranges import Ranges
from torchgauge.measure.timeline.stamps import Stamps
from torchgauge.targets.loaders.load import load
from torchgauge.targets.target import TargetRequest

TINY = "200 tiny layers"
MODELS = ("torchvision:resnet18", "hf:gpt2?n_layer=6", TINY)


def built(spec: str) -> tuple[nn.Module, Callable[[], Any]]:
    """Return the model and its call."""
    if spec == TINY:
        model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(200))).eval()
        x = torch.ones(1, 8)
        return model, lambda: model(x)
    target = load(TargetRequest(spec, device="cpu"))
    model, inputs = target.model.eval(), target.inputs
    return model, lambda: model(*inputs.args, **inputs.kwargs)


def timed(call: Callable[[], Any], steps: int) -> float:
    """Return the seconds of a call, the median; the first is left out."""
    call()
    taken = []
    for _ in range(steps):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def stamped(model: nn.Module, call: Callable[[], Any], steps: int) -> float:
    """Time calls under stamps."""
    stamps = Stamps(model)
    with stamps.watching():
        return timed(call, steps)


def recorded(model: nn.Module, call: Callable[[], Any], steps: int) -> float:
    """Time calls under our recording."""
    taken = []
    with Ranges(model, Modules(model)).marking():
        record(lambda: taken.append(timed(call, steps)), shapes=True)
    return taken[0]


def torch_profiler(_model: nn.Module, call: Callable[[], Any], steps: int) -> float:
    """Time calls under torch.profiler."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True):
        return timed(call, steps)


def hooked(model: nn.Module, call: Callable[[], Any], steps: int) -> float:
    """Time calls under torch.profiler with a range per module from hooks."""
    ranges: list[Any] = []

    def enter(path: str) -> None:
        ranges.append(record_function(path))
        ranges[-1].__enter__()

    with contextlib.ExitStack() as stack:
        for path, module in model.named_modules():
            before = module.register_forward_pre_hook(lambda *_, path=path: enter(path))
            after = module.register_forward_hook(lambda *_: ranges.pop().__exit__(None, None, None))
            stack.callback(before.remove)
            stack.callback(after.remove)
        return torch_profiler(model, call, steps)


WAYS = {
    "stamps": stamped,
    "recording": recorded,
    "torch.profiler": torch_profiler,
    "torch.profiler + hooks": hooked,
}


def main() -> None:
    """Print ratios to the bare call, medians over rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    for spec in MODELS:
        model, call = built(spec)
        with torch.inference_mode():
            bare = timed(call, 5)
            steps = max(3, min(50, int(0.3 / bare)))
            ratios: dict[str, list[float]] = {name: [] for name in WAYS}
            for _ in range(options.rounds):
                for name, way in WAYS.items():
                    before = timed(call, steps)
                    ratio = way(model, call, steps)
                    ratios[name].append(2 * ratio / (before + timed(call, steps)))
        found = "   ".join(f"{name} {statistics.median(r):.3f}×" for name, r in ratios.items())
        print(f"{spec:22} {1e3 * bare:8.2f} ms   {found}", flush=True)


if __name__ == "__main__":
    main()
