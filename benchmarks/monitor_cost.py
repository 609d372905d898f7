"""What a monitor adds to a call: beside hooks, prometheus_client and OpenTelemetry's SDK, in turn.

    python benchmarks/monitor_cost.py [--rounds 15] [--calls 20000]

Of a call of `nn.Identity` the CPU time of the calling thread: what is added is alone in it. Each
round measures all of them, and the best round counts, since whatever else runs can only add. The
others time with `perf_counter` around a module's own call, as a monitor does, and observe the
duration. Then calls of models of about 1 ms, bare, bare again and monitored, one after the other in
an order drawn for each round, with the same weights, so that no place in memory is better: the
median difference to the first of the round with its 95 % interval by ranks. Such a model evicts
from the core's caches what Python needs for the next call, the monitor's part with it. Last,
quantiles of the histogram against all samples, and what a busy series and a tick take.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import torchgauge as tg
from torchgauge.monitoring.problems import Problems
from torchgauge.monitoring.series import FULL, Series
from torchgauge.records.monitoring.window import Window

CALLS = 10_000
CLOCK = time.perf_counter


def per_call(model: nn.Module) -> float:
    """Return the ns of the thread that one call of many takes."""
    x = torch.zeros(1)
    begin = time.thread_time_ns()
    for _ in range(CALLS):
        model(x)
    return (time.thread_time_ns() - begin) / CALLS


def hooked() -> nn.Module:
    """Return a module with two hooks that time it into a list."""
    model, began, durations = nn.Identity(), [], []
    model.register_forward_pre_hook(lambda *_: began.append(CLOCK()))

    def after(*_: Any) -> None:
        durations.append(CLOCK() - began.pop())
        if len(durations) > FULL:
            durations.clear()

    model.register_forward_hook(after)
    return model


def observed(observe: Callable[[float], object]) -> nn.Module:
    """Return a module whose forward is timed and handed to another library."""
    model = nn.Identity()
    inner = model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        begin = CLOCK()
        try:
            return inner(*args, **kwargs)
        finally:
            observe(CLOCK() - begin)

    model.forward = forward
    return model


def monitored(every: int) -> nn.Module:
    """Return a monitored module; its monitor ends with the process."""
    model = nn.Identity()
    tg.monitor(model, every=every, name=f"every-{every}")
    return model


def candidates() -> dict[str, nn.Module]:
    """Return the modules to compare, by what times them."""
    models = {
        "bare": nn.Identity(),
        "monitor, every call": monitored(1),
        "monitor, 1 in 100": monitored(100),
        "two hooks and a list": hooked(),
    }
    try:
        import prometheus_client

        models["prometheus_client Histogram"] = observed(
            prometheus_client.Histogram("call_seconds", "Time of a call").observe
        )
    except ImportError:
        print("prometheus_client is not installed", file=sys.stderr)
    try:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View

        view = View(instrument_name="*", aggregation=ExponentialBucketHistogramAggregation())
        provider = MeterProvider([InMemoryMetricReader()], views=[view])
        histogram = provider.get_meter("benchmark").create_histogram("call", unit="s")
        models["OpenTelemetry exponential"] = observed(histogram.record)
    except ImportError:
        print("opentelemetry-sdk is not installed", file=sys.stderr)
    return models


def call_costs(rounds: int) -> None:
    """Print what each adds to a call."""
    models = candidates()
    best = dict.fromkeys(models, float("inf"))
    for _ in range(rounds):
        for name, model in models.items():
            best[name] = min(best[name], per_call(model))
    bare = best.pop("bare")
    reference = best["monitor, every call"] - bare
    print(f"a bare call of nn.Identity takes {bare:.0f} ns; of it and what is added:")
    for name, cost in best.items():
        ratio = (cost - bare) / reference
        print(f"  {name:28} +{cost - bare:5.0f} ns  {ratio:5.2f} × the monitor's")


class Millisecond(nn.Module):
    """Some layers, about 1 ms on one core."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the last layer."""
        return self.layers(x)


def model_change(rounds: int, layers: nn.Module, name: str) -> None:
    """Print by how much the median call of a model of 1 ms changes."""
    torch.set_num_threads(1)
    models = [Millisecond(layers).eval() for _ in range(3)]
    tg.monitor(models[2], name="millisecond")
    x = torch.randn(batch_of_a_millisecond(models[0]), 256)
    times = np.empty((3, rounds))
    generator = np.random.default_rng(1)
    with torch.inference_mode():
        for number in range(rounds):
            for which in generator.permutation(3):
                model = models[which]
                begin = CLOCK()
                model(x)
                times[which, number] = CLOCK() - begin
    median = np.median(times[0])
    print(f"p50 of a model with {name}: {median * 1e3:.3f} ms; {rounds:,} rounds")
    # The median of independent differences lies between these ranks in 95 % of experiments.
    ranks = [int(rounds / 2 + sign * 0.98 * math.sqrt(rounds)) for sign in (-1, 1)]
    for which, what in ((1, "another bare one"), (2, "the monitored one")):
        differences = np.sort(times[which] - times[0])
        low, high = differences[ranks] / median
        print(
            f"  {what:18} {np.median(differences) * 1e6:+.2f} µs, "
            f"{np.median(differences) / median:+.3%} (95 %: {low:+.3%} to {high:+.3%})"
        )


def batch_of_a_millisecond(model: nn.Module) -> int:
    """Return the batch at which a call takes about 1 ms."""
    batch = 1
    while batch < 4096:
        x = torch.randn(batch, 256)
        with torch.inference_mode():
            begins = []
            for _ in range(20):
                begin = CLOCK()
                model(x)
                begins.append(CLOCK() - begin)
        if min(begins) > 0.9e-3:
            break
        batch = int(batch * 1.2) + 1
    return batch


def histogram_facts() -> None:
    """Print the cost of a value, the error of quantiles, and the memory of a series."""
    values = np.random.default_rng(0).lognormal(-6, 1, 300_000)
    series = Series(Window(series="latency", begin=0.0, end=0.0), Problems("m"))
    begin = time.thread_time_ns()
    for value in values.tolist():
        series.add(value)
    window = series.state(1.0)
    cost = (time.thread_time_ns() - begin) / len(values)
    errors = [
        abs(window.histogram.quantile(q) / np.quantile(values, q, method="inverted_cdf") - 1)
        for q in np.linspace(0.001, 0.999, 500)
    ]
    buffer = FULL * 8 * 9 / 8
    print(
        f"a value added to a series {cost:.0f} ns; its quantiles are off by at most "
        f"{max(errors):.2%} of {len(values):,} samples; a series takes "
        f"{(buffer + series._counts.nbytes) / 1000:.0f} kB"
    )


def tick_cost() -> None:
    """Print what a tick and a closed window take the process's thread, with 50 layers."""
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(50)))
    monitor = tg.monitor(model, name="deep", layers=1, interval=3600.0, window=3600.0)
    for _ in range(3000):
        model(torch.ones(1, 4))
    ticks, windows = [], []
    for _ in range(10):
        begin = time.thread_time()
        monitor.tick(time.time())
        ticks.append(time.thread_time() - begin)
        model(torch.ones(1, 4))
        begin = time.thread_time()
        monitor.close_windows(time.time())
        windows.append(time.thread_time() - begin)
    print(
        f"a tick with {len(monitor.totals())} series takes {min(ticks) * 1e3:.2f} ms of CPU, "
        f"once a second; to close their windows {min(windows) * 1e3:.2f} ms, once a minute"
    )
    monitor.close()


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=20_000, help="of each model of 1 ms")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHGAUGE_STATE"] = folder
        call_costs(options.rounds)
        linear = nn.Linear(256, 256)
        model_change(options.calls, nn.Sequential(*[linear] * 8), "weights of 0.26 MB")
        several = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))
        model_change(options.calls, several, "weights of 2.1 MB")
        histogram_facts()
        tick_cost()
        sys.stdout.flush()


if __name__ == "__main__":
    main()
