"""Layer times against truth: a model of known durations, then one layer at a time on real models.

In turns, each the median over rounds: the layers' times in torchgauge's tree, a pair of hooks on
every module, torch.profiler with a range per module, and flops-profiler where it is installed (give
the folder of peers). Truth of a layer that waits is what its bare call takes, and what it was told;
of a real layer what its call takes in its place, with `nn.Module.__call__`, when no layer in it or
around it is timed, less what the clock takes around a call of nothing.

On a machine with other work use `--thread-time`: the clock is then the thread's CPU time, in which
others have no part but by caches, for torchgauge, hooks and truth alike. Set OMP_NUM_THREADS=1.
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

from small_models import SMALL
from torchgauge.clock import Clock, SystemClock
from torchgauge.measure.plan import opened
from torchgauge.measure.timeline import timeline
from torchgauge.targets.builds.source import Source
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.loaders.load import load
from torchgauge.targets.target import TargetRequest

DURATIONS = (5e-6, 2e-5, 1e-4, 5e-4, 2e-3, 5e-3)
MODELS = (
    "torchvision:resnet18",
    "torchvision:efficientnet_b0",
    "hf:bert?num_hidden_layers=4",
    "hf:t5?num_layers=2&num_decoder_layers=2&d_model=256&d_ff=1024",
    "hf:mixtral?num_hidden_layers=2&hidden_size=256&intermediate_size=512",
)
LONG = 50e-6  # seconds: layers below it are mostly Python's calls
CALLS = 6  # of each level in a round; the first is not used
Times = dict[str, float]
Call = Callable[[], Any]
Way = Callable[[nn.Module, Call], Times]


class ThreadTime:
    """The thread's CPU time, a clock."""

    now = staticmethod(time.thread_time_ns)


clock: Clock = SystemClock()


class Wait(nn.Module):
    """Takes as long as it is told."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.unused = nn.Parameter(torch.zeros(1))  # flops-profiler wants one

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Wait, busily."""
        end = clock.now() + self.seconds * 1e9
        while clock.now() < end:
            pass
        return x


def torchgauge(model: nn.Module, inputs: Inputs) -> Times:
    """Return each layer's time in the tree, by path."""
    placement = opened(Source.of_object(model, inputs, training=False))
    tree = timeline.measure(placement, operators=False, clock=clock)
    found: Times = defaultdict(float)
    for node in tree.match("*"):
        found[node.row.path] += node.host_time or 0.0
    return found


def hooks(model: nn.Module, call: Call) -> Times:
    """Time every module with a pair of hooks, in the second of two steps."""
    found: Times = defaultdict(float)
    stack: list[int] = []
    now = clock.now

    def leave(path: str) -> None:
        found[path] += (now() - stack.pop()) * 1e-9

    with contextlib.ExitStack() as handles:
        for path, module in model.named_modules():
            begin = module.register_forward_pre_hook(lambda *_: stack.append(now()))
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


class Timed:
    """Stands in a module's place, and times its calls; small, so that it displaces no cache."""

    __slots__ = ("calls", "module", "now", "taken")

    def __init__(self, module: Callable[..., Any]) -> None:
        self.module, self.now = module, clock.now
        self.taken = self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module, and nothing of this class's own."""
        module, now = self.module, self.now
        start = now()
        try:
            return module(*args, **kwargs)
        finally:
            self.taken += now() - start
            self.calls += 1

    def __getattr__(self, name: str) -> Any:
        """Return what the module has."""
        return getattr(self.module, name)

    def reading(self, own: float) -> float:
        """Return the seconds since the last time, less `own` for each call."""
        seconds = self.taken * 1e-9 - own * self.calls
        self.taken = self.calls = 0
        return seconds


class Nothing:
    """Takes no time but to be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""


def own_time(calls: int = 1000) -> float:
    """Return the seconds that `Timed` reads too much of a call: of one of nothing, less that."""
    nothing, found = Nothing(), []
    for _ in range(9):
        start = clock.now()
        for _ in range(calls):
            pass
        loop = clock.now() - start
        start = clock.now()
        for _ in range(calls):
            nothing()
        bare = clock.now() - start - loop
        timed = Timed(nothing)
        for _ in range(calls):
            timed()
        found.append((timed.taken - bare) / calls)
    return statistics.median(found) * 1e-9


def level_by_level(model: nn.Module, call: Call) -> Times:
    """Time the calls of one level of the tree of modules after the other: none is in another."""
    own = own_time()
    levels: dict[int, list[str]] = defaultdict(list)
    for path in called(model, call):
        if path:
            levels[path.count(".")].append(path)
    found: Times = {}
    for paths in levels.values():
        with in_place(model, paths) as timed:
            steps = []
            for _ in range(CALLS):
                call()
                steps.append({path: one.reading(own) for path, one in timed.items()})
        found |= {path: statistics.median(one[path] for one in steps[1:]) for path in paths}
    return {path: seconds for path, seconds in found.items() if seconds > 0}


def called(model: nn.Module, call: Call) -> list[str]:
    """Return the paths of the modules that are called: of others their parents need the content."""
    found: dict[str, None] = {}
    with contextlib.ExitStack() as handles:
        for path, module in model.named_modules():
            hook = module.register_forward_pre_hook(lambda *_, path=path: found.setdefault(path))
            handles.callback(hook.remove)
        call()
    return list(found)


@contextlib.contextmanager
def in_place(model: nn.Module, paths: list[str]) -> Iterator[dict[str, Timed]]:
    """Put what times their calls into the modules' places until the block ends."""
    timed, back = {}, []
    for path in paths:
        above, _, name = path.rpartition(".")
        children, module = model.get_submodule(above)._modules, model.get_submodule(path)
        back.append((children, name, module))
        timed[path] = Timed(module)
    for (children, name, _), path in zip(back, paths, strict=True):
        children[name] = timed[path]
    try:
        yield timed
    finally:
        for children, name, module in back:
            children[name] = module


def bare_calls(model: nn.Module, _: Call) -> Times:
    """Time the calls of a sequence's layers from outside, with nothing attached."""
    x, found = torch.ones(1), {}
    for path, layer in model.named_children():
        start = clock.now()
        layer(x)
        found[path] = (clock.now() - start) * 1e-9
    return found


def ways(inputs: Inputs, *, thread_time: bool) -> dict[str, Way]:
    """Return torchgauge and its peers, those with a clock of their own only beside that."""
    found: dict[str, Way] = {
        "torchgauge": lambda model, _: torchgauge(model, inputs),
        "hooks": hooks,
    }
    if thread_time:
        return found
    found["torch.profiler"] = profiler
    with contextlib.suppress(ImportError):
        import flops_profiler as _  # noqa: F401

        found["flops-profiler"] = flops_profiler
    return found


def interleaved(
    model: nn.Module, call: Call, rounds: int, truth: Way, others: dict[str, Way]
) -> dict[str, Times]:
    """Return medians over rounds, of the truth twice: what it varies by, no way can beat."""
    for _ in range(3):
        call()
    runs: dict[str, list[Times]] = defaultdict(list)
    for _ in range(rounds):
        for name, way in {"truth": truth, **others, "truth again": truth}.items():
            runs[name].append(way(model, call))
    return {
        name: {
            path: statistics.median(one[path] for one in found if path in one) for path in found[0]
        }
        for name, found in runs.items()
    }


def main() -> None:
    """Print errors against truth, median and p90, by model and way."""
    global clock
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--thread-time", action="store_true")
    parser.add_argument("--model", action="append", help="instead of all")
    options = parser.parse_args()
    if options.peers:
        sys.path.append(str(options.peers))
    if options.thread_time:
        clock = ThreadTime()
    print(f"what the truth's clock takes around a call, taken off: {1e9 * own_time():.0f} ns")
    if not options.model:
        known(options.rounds, thread_time=options.thread_time)
        for name, made in SMALL.items():
            model, tensors = made()
            inputs = Inputs.of(tensors)
            real(name, model, inputs, options.rounds, thread_time=options.thread_time)
    for spec in options.model or MODELS:
        target = load(TargetRequest(spec, device="cpu"))
        model = target.model.eval()
        real(spec, model, target.inputs, options.rounds, thread_time=options.thread_time)


def known(rounds: int, *, thread_time: bool) -> None:
    """Compare on a model whose layers take what they are told."""
    model = nn.Sequential(*(Wait(seconds) for seconds in DURATIONS * 5)).eval()
    x = torch.ones(1)
    told = {str(place): layer.seconds for place, layer in enumerate(model)}  # type: ignore[arg-type]
    others = ways(Inputs.of(x), thread_time=thread_time)
    found = interleaved(model, lambda: model(x), rounds, bare_calls, others)
    truth = found.pop("truth")
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


def real(name: str, model: nn.Module, inputs: Inputs, rounds: int, *, thread_time: bool) -> None:
    """Compare on a model with what each layer's call takes in its place."""

    def call() -> None:
        with torch.inference_mode():
            model(*inputs.args, **inputs.kwargs)

    others = ways(inputs, thread_time=thread_time)
    found = interleaved(model, call, rounds, level_by_level, others)
    truth = found.pop("truth")
    print(f"{name}: {len(truth)} layers")
    for way, times in found.items():
        say(way, truth, times)


def say(name: str, truth: Times, times: Times) -> None:
    """Print the median and the 90th percentile of the layers' errors, of the long ones and all."""
    parts = []
    for what, least in (("all", 2e-6), (f"over {1e6 * LONG:g} µs", LONG)):
        errors = [times[path] / seconds - 1 for path, seconds in both(truth, times, least)]
        sizes = sorted(map(abs, errors))
        if sizes:
            middle, high = statistics.median(sizes), sizes[int(0.9 * len(sizes))]
            parts.append(
                f"{what} ({len(sizes):3}): median {middle:6.1%} p90 {high:6.1%} "
                f"signed {statistics.median(errors):+6.1%}"
            )
    print(f"  {name:15} " + "   ".join(parts), flush=True)


def both(truth: Times, times: Times, least: float) -> Iterator[tuple[str, float]]:
    """Yield the layers of at least so many seconds that both know."""
    for path, seconds in truth.items():
        if path in times and seconds > least:
            yield path, seconds


if __name__ == "__main__":
    main()
