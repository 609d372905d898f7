"""Layer times against truth: a model of known durations, then one layer at a time on real models.

Truth of a real model's layer is its time where it alone is timed, in turns with all other ways:
torchgauge, a pair of hooks on every module, torch.profiler with a range per module, and
flops-profiler where it is installed (give the folder of peers as an argument).
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from torchgauge.measure import timeline
from torchgauge.measure.plan import opened
from torchgauge.model import tables
from torchgauge.target.load import load
from torchgauge.target.source import Source
from torchgauge.target.target import TargetRequest

DURATIONS = (5e-6, 2e-5, 1e-4, 5e-4, 2e-3, 5e-3)
MODELS = (
    "torchvision:resnet18",
    "hf:bert?num_hidden_layers=4",
    "hf:mixtral?num_hidden_layers=2&hidden_size=256&intermediate_size=512",
)
Times = dict[str, float]
Way = Callable[[nn.Module, Callable[[], Any], int], Times]


class Wait(nn.Module):
    """Takes as long as it is told."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.unused = nn.Parameter(torch.zeros(1))  # flops-profiler wants one

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Wait, busily."""
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        return x


def hooks(model: nn.Module, call: Callable[[], Any], rounds: int) -> Times:
    """Time every module with a pair of hooks."""
    found: dict[str, list[float]] = defaultdict(list)
    stack: list[float] = []
    handles = []
    for path, module in model.named_modules():
        handles.append(
            module.register_forward_pre_hook(lambda *_: stack.append(time.perf_counter()))
        )
        handles.append(
            module.register_forward_hook(
                lambda *_, path=path: found[path].append(time.perf_counter() - stack.pop())
            )
        )
    for _ in range(rounds):
        call()
    for handle in handles:
        handle.remove()
    return {path: statistics.median(times) for path, times in found.items()}


def profiler(model: nn.Module, call: Callable[[], Any], rounds: int) -> Times:
    """Time every module by a range in torch.profiler's recording, as it says it."""
    ranges: list[Any] = []

    def enter(path: str) -> None:
        ranges.append(record_function(f"layer::{path}"))
        ranges[-1].__enter__()

    handles = []
    for path, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(lambda *_, path=path: enter(path)))
        handles.append(
            module.register_forward_hook(lambda *_: ranges.pop().__exit__(None, None, None))
        )
    call()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        for _ in range(rounds):
            call()
    for handle in handles:
        handle.remove()
    found: dict[str, list[float]] = defaultdict(list)
    for event in recorded.events():
        if event.name.startswith("layer::"):
            found[event.name.removeprefix("layer::")].append(event.time_range.elapsed_us() * 1e-6)
    return {path: statistics.median(times) for path, times in found.items()}


def flops_profiler(model: nn.Module, call: Callable[[], Any], rounds: int) -> Times:
    """Time every module with flops-profiler."""
    from flops_profiler.profiler import FlopsProfiler

    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        one = FlopsProfiler(model)
        one.start_profile()
        call()
        for path, module in model.named_modules():
            found[path].append(getattr(module, "__duration__", 0.0))
        one.end_profile()
    return {path: statistics.median(times) for path, times in found.items() if any(times)}


def alone(module: nn.Module, call: Callable[[], Any], rounds: int) -> float:
    """Return the median time of one module's calls in a step, it alone being timed."""
    forward = module.forward
    taken: list[float] = []

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return forward(*args, **kwargs)
        finally:
            taken[-1] += time.perf_counter() - start

    module.forward = timed
    try:
        for _ in range(rounds):
            taken.append(0.0)
            call()
    finally:
        del module.forward
    return statistics.median(taken)


def torchgauge_times(source: Source) -> Times:
    """Measure with torchgauge; seconds in a step by path, of the layers that were called."""
    rows = tables.layers(timeline.measure(opened(source))).rows()
    found: Times = defaultdict(float)
    for row in rows:
        found[row["path"]] += row["host_time"] or 0.0
    return dict(found)


def main() -> None:
    """Print errors against truth, median and p90, by model and way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.peers:
        sys.path.append(str(options.peers))
    known()
    for spec in MODELS:
        real(spec, options.rounds)


def known() -> None:
    """Compare on a model whose layers take what they are told."""
    model = nn.Sequential(*(Wait(seconds) for seconds in DURATIONS * 5)).eval()
    x = torch.ones(1)
    source = Source.of_object(model, (x,))
    truth = {str(place): layer.seconds for place, layer in enumerate(model)}  # type: ignore[arg-type]
    call = lambda: model(x)  # noqa: E731
    print("busy-wait, 5 µs to 5 ms")
    found = {"torchgauge": torchgauge_times(source)}
    found |= {name: way(model, call, 20) for name, way in ways().items()}
    for name, times in found.items():
        say(name, truth, times)
        each = ", ".join(
            f"{1e6 * seconds:g} µs {statistics.median(per_layer(times, truth, seconds)):+.1%}"
            for seconds in DURATIONS
        )
        print(f"    {each}")


def per_layer(times: Times, truth: Times, seconds: float) -> list[float]:
    """Return the signed errors of the layers that take so long."""
    return [times[path] / true - 1 for path, true in truth.items() if true == seconds]


def real(spec: str, rounds: int) -> None:
    """Compare on a real model with what each layer takes when it alone is timed."""
    target = load(TargetRequest(spec, device="cpu"))
    model, inputs = target.model.eval(), target.inputs
    source = Source.of_object(model, inputs)

    def call() -> None:
        with torch.inference_mode():
            model(*inputs.args, **inputs.kwargs)

    for _ in range(3):
        call()
    found = {"torchgauge": torchgauge_times(source)}
    called = {path for path, seconds in found["torchgauge"].items() if path and seconds}
    modules = {path: one for path, one in model.named_modules() if path in called}
    halves: list[Times] = [{}, {}]
    for half in halves:  # before and after the others, for what truth itself varies by
        for path, module in modules.items():
            half[path] = alone(module, call, rounds)
        if half is halves[0]:
            for name, way in ways().items():
                with contextlib.suppress(ImportError):
                    found[name] = way(model, call, 2 * rounds)
    truth = {path: (halves[0][path] + halves[1][path]) / 2 for path in modules}
    print(f"{spec}: {len(truth)} layers")
    say("truth again", halves[0], halves[1])
    found["torchgauge, again"] = torchgauge_times(source)
    for name, times in found.items():
        say(name, truth, times)


def ways() -> dict[str, Way]:
    """Return the peers."""
    found: dict[str, Way] = {"hooks": hooks, "torch.profiler": profiler}
    with contextlib.suppress(ImportError):
        import flops_profiler as _  # noqa: F401

        found["flops-profiler"] = flops_profiler
    return found


def say(name: str, truth: Times, times: Times) -> None:
    """Print the median and the 90th percentile of the layers' errors."""
    errors = sorted(abs(times[path] / seconds - 1) for path, seconds in both(truth, times))
    middle, high = statistics.median(errors), errors[int(0.9 * len(errors))]
    print(f"  {name:18} median {middle:6.1%}   p90 {high:6.1%}   {len(errors)} layers", flush=True)


def both(truth: Times, times: Times) -> Iterator[tuple[str, float]]:
    """Yield the layers that both know, without the least, which no clock can tell."""
    for path, seconds in truth.items():
        if path in times and seconds > 2e-6:
            yield path, seconds


if __name__ == "__main__":
    main()
