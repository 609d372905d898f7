"""Layer times against truth: a model of known durations, then one layer at a time on real models.

In turns, each the median over rounds: torchgauge's stamps, a pair of hooks on every module,
torch.profiler with a range per module, and flops-profiler where it is installed (give the folder of
peers). Truth of a layer that waits is what its bare call takes, and what it was told; of a real
layer what its call takes in its place when it alone is timed, and what its forward takes, without
the module call around it.
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

from torchgauge.measure.stamps import Stamps
from torchgauge.target.load import load
from torchgauge.target.target import TargetRequest

DURATIONS = (5e-6, 2e-5, 1e-4, 5e-4, 2e-3, 5e-3)
MODELS = (
    "torchvision:resnet18",
    "hf:bert?num_hidden_layers=4",
    "hf:mixtral?num_hidden_layers=2&hidden_size=256&intermediate_size=512",
)
Times = dict[str, float]
Call = Callable[[], Any]
Way = Callable[[nn.Module, Call], Times]


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


def stamped(model: nn.Module, call: Call) -> Times:
    """Time every module with torchgauge's stamps, in the second of two steps."""
    stamps = Stamps(model)
    with stamps.watching():
        call()
        stamps.taken()
        call()
    found: Times = defaultdict(float)
    for one in stamps.taken():
        found[stamps.modules.table[one.module].paths[0]] += (one.end - one.start) * 1e-9
    return found


def hooks(model: nn.Module, call: Call) -> Times:
    """Time every module with a pair of hooks, in the second of two steps."""
    found: Times = defaultdict(float)
    stack: list[float] = []

    def leave(path: str) -> None:
        found[path] += time.perf_counter() - stack.pop()

    with contextlib.ExitStack() as handles:
        for path, module in model.named_modules():
            begin = module.register_forward_pre_hook(lambda *_: stack.append(time.perf_counter()))
            end = module.register_forward_hook(lambda *_, path=path: leave(path))
            handles.callback(begin.remove)
            handles.callback(end.remove)
        call()
        found.clear()
        call()
    return found


def profiler(model: nn.Module, call: Call) -> Times:
    """Time every module by a range in torch.profiler's recording, as it says it."""
    ranges: list[Any] = []

    def enter(path: str) -> None:
        ranges.append(record_function(f"layer::{path}"))
        ranges[-1].__enter__()

    with contextlib.ExitStack() as handles:
        for path, module in model.named_modules():
            begin = module.register_forward_pre_hook(lambda *_, path=path: enter(path))
            end = module.register_forward_hook(lambda *_: ranges.pop().__exit__(None, None, None))
            handles.callback(begin.remove)
            handles.callback(end.remove)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
            call()
            with record_function("second"):
                call()
    events = recorded.events()
    second = next(event.time_range.start for event in events if event.name == "second")
    found: Times = defaultdict(float)
    for event in events:
        if event.name.startswith("layer::") and event.time_range.start >= second:
            path = event.name.removeprefix("layer::")
            found[path] += event.time_range.elapsed_us() * 1e-6
    return found


def flops_profiler(model: nn.Module, call: Call) -> Times:
    """Time every module with flops-profiler, in the second of two steps."""
    from flops_profiler.profiler import FlopsProfiler

    one = FlopsProfiler(model)
    one.start_profile()
    call()
    one.reset_profile()
    call()
    found = {path: getattr(module, "__duration__", 0.0) for path, module in model.named_modules()}
    one.end_profile()
    return {path: seconds for path, seconds in found.items() if seconds}


class Timed(nn.Module):
    """Stands in a module's place, and times its calls."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        vars(self).update(module=module, taken=0.0)  # not registered: nothing else may see it

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module, and nothing of this class's own."""
        start = time.perf_counter()
        try:
            return self.module(*args, **kwargs)
        finally:
            self.taken += time.perf_counter() - start

    def __getattr__(self, name: str) -> Any:
        """Return what the module has."""
        return getattr(vars(self)["module"], name)


def call_alone(model: nn.Module, path: str, call: Call) -> float:
    """Return the seconds of one module's calls in a step, it alone being timed."""
    above, _, name = path.rpartition(".")
    children, module = model.get_submodule(above)._modules, model.get_submodule(path)
    children[name] = timed = Timed(module)
    try:
        call()
    finally:
        children[name] = module
    return timed.taken


def forward_alone(model: nn.Module, path: str, call: Call) -> float:
    """Return the seconds of one module's forward in a step, it alone being timed."""
    module = model.get_submodule(path)
    forward = module.forward
    taken = 0.0

    def timed(*args: Any, **kwargs: Any) -> Any:
        nonlocal taken
        start = time.perf_counter()
        try:
            return forward(*args, **kwargs)
        finally:
            taken += time.perf_counter() - start

    module.forward = timed
    try:
        call()
    finally:
        del module.forward
    return taken


def one_by_one(alone: Callable[[nn.Module, str, Call], float]) -> Way:
    """Return what times one module after the other."""

    def every(model: nn.Module, call: Call) -> Times:
        called = {path for path, seconds in stamped(model, call).items() if path and seconds}
        paths = [path for path, _ in model.named_modules() if path in called]
        return {path: alone(model, path, call) for path in paths}

    return every


def bare_calls(model: nn.Module, _: Call) -> Times:
    """Time the calls of a sequence's layers from outside, with nothing attached."""
    x, found = torch.ones(1), {}
    for path, layer in model.named_children():
        start = time.perf_counter()
        layer(x)
        found[path] = time.perf_counter() - start
    return found


def ways() -> dict[str, Way]:
    """Return torchgauge and its peers."""
    found: dict[str, Way] = {"torchgauge": stamped, "hooks": hooks, "torch.profiler": profiler}
    with contextlib.suppress(ImportError):
        import flops_profiler as _  # noqa: F401

        found["flops-profiler"] = flops_profiler
    return found


def interleaved(
    model: nn.Module, call: Call, rounds: int, truths: dict[str, Way]
) -> dict[str, Times]:
    """Return medians over rounds, of truths twice: what they vary by, no way can beat."""
    for _ in range(3):
        call()
    runs: dict[str, list[Times]] = defaultdict(list)
    for _ in range(rounds):
        again = {f"{name} again": truth for name, truth in truths.items()}
        for name, way in {**truths, **again, **ways()}.items():
            runs[name].append(way(model, call))
    return {
        name: {
            path: statistics.median(one[path] for one in found if path in one) for path in found[0]
        }
        for name, found in runs.items()
    }


def main() -> None:
    """Print errors against truth, median and p90, by model and way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    if options.peers:
        sys.path.append(str(options.peers))
    known(options.rounds)
    for spec in MODELS:
        real(spec, options.rounds)


def known(rounds: int) -> None:
    """Compare on a model whose layers take what they are told."""
    model = nn.Sequential(*(Wait(seconds) for seconds in DURATIONS * 5)).eval()
    x = torch.ones(1)
    told = {str(place): layer.seconds for place, layer in enumerate(model)}  # type: ignore[arg-type]
    found = interleaved(model, lambda: model(x), rounds, {"call": bare_calls})
    truth = found.pop("call")
    print("busy-wait, 5 µs to 5 ms, beside bare calls; in brackets beside what was told")
    for name, times in found.items():
        say(name, truth, times)
        each = []
        for seconds in DURATIONS:
            paths = [path for path in told if told[path] == seconds]
            by_call = statistics.median(times[path] / truth[path] - 1 for path in paths)
            by_told = statistics.median(times[path] / seconds - 1 for path in paths)
            each.append(f"{1e6 * seconds:g} µs {by_call:+.1%} ({by_told:+.1%})")
        print("    " + ", ".join(each))


def real(spec: str, rounds: int) -> None:
    """Compare on a real model with what each layer takes when it alone is timed."""
    target = load(TargetRequest(spec, device="cpu"))
    model, inputs = target.model.eval(), target.inputs

    def call() -> None:
        with torch.inference_mode():
            model(*inputs.args, **inputs.kwargs)

    truths = {"call": one_by_one(call_alone), "forward": one_by_one(forward_alone)}
    found = interleaved(model, call, rounds, truths)
    by_call, by_forward = found.pop("call"), found.pop("forward")
    for what, truth in {"call": by_call, "forward": by_forward}.items():
        print(f"{spec}: {len(truth)} layers, beside their {what} alone")
        for name, times in found.items():
            if not name.endswith("again") or name.startswith(what):
                say(name, truth, times)


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
