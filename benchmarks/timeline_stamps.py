"""Layer times as stamps read them, and less what the stamps cost, against truth, in one process.

Steps of each kind take turns: with one level of the layers timed from outside (the truth of
timeline_accuracy.py), bare, with stamps, with two stamps at each call. Of all the same quantile is
compared, a low one by default: what other work on the machine interrupts is in the others.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from small_models import SMALL, Sized
from timeline_accuracy import called, clock, in_place, own_time, say
from torchgauge.analyze.timeline.call_tree import Call, CallTree, place
from torchgauge.analyze.timeline.residual import FREE, StampCost, scaled_to_steps, stamp_cost
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.timeline.stamps import Stamps, calibrated

SETTLING = 6  # steps
TIMED = 6
Seconds = dict[str, list[float]]
Work = Callable[[], Any]


class Turns:
    """The steps of each kind, by turns."""

    def __init__(self, model: nn.Module, work: Work) -> None:
        self.model, self.work = model, work
        self.modules = Modules(model)
        self.tree = CallTree(self.modules.table, self.modules.name)
        self.stamps = Stamps(model, self.modules)
        self.around = Stamps(model, self.modules)
        self.truth: tuple[Seconds, Seconds] = (defaultdict(list), defaultdict(list))
        self.bare: list[float] = []
        self.stamped: list[float] = []
        self.calls: list[list[Call]] = []
        self.inner: list[list[Call]] = []
        self.outer: list[list[Call]] = []
        self.levels: dict[int, list[str]] = defaultdict(list)
        for path in filter(None, called(model, work)):
            self.levels[path.count(".")].append(path)

    def run(self, half: int) -> None:
        """Run some steps of each kind; the truth goes to one of two halves."""
        own = own_time(100)
        for paths in self.levels.values():
            with in_place(self.model, paths) as timed:
                self.settle()
                for one in timed.values():
                    one.reading(own)
                for _ in range(TIMED):
                    self.work()
                    for path, one in timed.items():
                        self.truth[half][path].append(one.reading(own))
        self.settle()
        self.bare += [self.step() for _ in range(TIMED)]
        with self.stamps.watching():
            self.settle()
            for _ in range(TIMED):
                self.stamped.append(self.step())
                self.calls.append(self.stamps.take_calls())
        with self.stamps.watching(), self.around.watching():
            self.settle()
            for _ in range(TIMED):
                self.work()
                self.inner.append(self.stamps.take_calls())
                self.outer.append(self.around.take_calls())

    def settle(self) -> None:
        """Run steps that are in no figure."""
        for _ in range(SETTLING):
            self.work()
        self.stamps.take_calls()
        self.around.take_calls()

    def step(self) -> float:
        """Return the seconds of a step."""
        start = clock.now()
        self.work()
        return (clock.now() - start) * 1e-9

    def layers(self, cost: StampCost) -> Seconds:
        """Return each layer's seconds with those in it, less what stamps cost, by path."""
        found: Seconds = defaultdict(list)
        for calls in self.calls:
            placed = place(calls, self.tree)
            times = [float(call.end - call.start) for call in calls]
            for number, one in enumerate(placed):
                times[number] -= cost.within(one.layer)
                above = one.around
                while above >= 0:
                    times[above] -= cost.within(one.layer) + cost.around(one.layer)
                    above = placed[above].around
            step: dict[str, float] = defaultdict(float)
            for one, nanoseconds in zip(placed, times, strict=True):
                step[self.tree.layers[one.layer].path] += nanoseconds * 1e-9
            for path, seconds in step.items():
                found[path].append(seconds)
        return found


def main() -> None:
    """Print errors by model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--quantile", type=float, default=0.2)
    parser.add_argument("--torchvision", action="append", help="a model's name, instead of all")
    options = parser.parse_args()

    def at(samples: Sequence[float]) -> float:
        return float(np.quantile(samples, options.quantile))

    models = dict(SMALL)
    if options.torchvision:
        models = {name: functools.partial(vision, name) for name in options.torchvision}
    for name, made in models.items():
        model, inputs = made()
        turns = run(model, inputs, options.seconds)
        halves = [{path: at(times) for path, times in half.items()} for half in turns.truth]
        truth = {path: at(turns.truth[0][path] + turns.truth[1][path]) for path in halves[0]}
        in_place_cost = stamp_cost(turns.inner, turns.outer, turns.tree, calibrated(clock.now))
        bare = at(turns.bare)
        print(
            f"{name}: bare {1e6 * bare:.0f} µs, stamped {at(turns.stamped) / bare:.3f}×, "
            f"a stamp {in_place_cost.median:.0f} ns"
        )
        say("truth, halves", *halves)
        lengths = [[1e9 * one for one in steps] for steps in (turns.bare, turns.stamped)]
        shown = scaled_to_steps(in_place_cost, turns.calls, turns.tree, *lengths)
        costs = {"as read": FREE, "of pairs": in_place_cost, "as steps show": shown}
        for what, cost in costs.items():
            times = {path: at(seconds) for path, seconds in turns.layers(cost).items()}
            say(what, truth, times)
            print(f"    the model ÷ bare step {times[''] / bare:.3f}")


def vision(name: str) -> Sized:
    """Return a model of torchvision and a small image."""
    import torchvision

    return torchvision.models.get_model(name).eval(), (torch.randn(1, 3, 64, 64),)


def run(model: nn.Module, inputs: tuple[torch.Tensor, ...], seconds: float) -> Turns:
    """Return the turns of so many seconds."""

    def work() -> None:
        with torch.inference_mode():
            model(*inputs)

    for _ in range(SETTLING):
        work()
    turns = Turns(model, work)
    end = time.monotonic() + seconds
    half = 0
    while time.monotonic() < end or half < 2:
        turns.run(half % 2)
        half += 1
    return turns


if __name__ == "__main__":
    main()
