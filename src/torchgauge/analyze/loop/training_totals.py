"""Sums over the steps of a training: times, waits, samples, tokens and FLOPs, and what they make.

Source of the utilization: PaLM (arXiv 2204.02311, appendix B), from sums: the FLOPs of the counted
steps over the time of these steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from torchgauge.analyze.work.utilization import (
    UNKNOWN_CONTENTS,
    ModelShape,
    Products,
    StepContents,
    StepTime,
    utilization,
)
from torchgauge.records.record import Interval
from torchgauge.records.work.utilization import PeakUsed, Utilization

NO_PRODUCTS = Products(0, 0, {})


class Step(NamedTuple):
    """One step: ns, of which it waited for data `wait`; batches, and what these hold if known."""

    duration: int
    wait: int = 0
    batches: int = 1
    samples: int | None = None
    tokens: int | None = None
    products: Products | None = None


@dataclasses.dataclass
class TrainingTotals:
    """Sums over steps; `counted…` over the steps whose FLOPs are known.

    Samples and tokens are None once a step does not say them. `contents` are those of a counted
    step, `equal_contents` whether all of them hold as much.
    """

    steps: int = 0
    time: int = 0
    wait: int = 0
    batches: int = 0
    samples: int | None = 0
    tokens: int | None = 0
    counted: int = 0
    counted_time: int = 0
    products: Products = NO_PRODUCTS
    contents: StepContents | None = None
    equal_contents: bool = True

    def add(self, step: Step) -> None:
        """Add a step."""
        self.steps += 1
        self.time += step.duration
        self.wait += step.wait
        self.batches += step.batches
        self.samples = _plus(self.samples, step.samples)
        self.tokens = _plus(self.tokens, step.tokens)
        if step.products is None:
            return
        contents = StepContents(step.samples, step.tokens)
        self.equal_contents = self.equal_contents and self.contents in (None, contents)
        self.contents = contents
        self.counted += 1
        self.counted_time += step.duration
        self.products = summed((self.products, step.products))

    def figures(self, peak: PeakUsed | None, devices: int = 1) -> dict[str, float]:
        """Return the known figures of a mean step, for a trainer's log: seconds, rates, shares."""
        if not self.time:
            return {}
        seconds = self.time * 1e-9
        figures: dict[str, float | None] = {
            "step_time": seconds / self.steps,
            "data_wait": self.wait / self.time,
            "tokens_per_second": None if self.tokens is None else self.tokens / seconds,
            "samples_per_second": None if self.samples is None else self.samples / seconds,
        }
        used = self.utilization(peak, devices=devices)
        if used is not None:
            figures |= {"mfu": used.mfu, "hfu": used.hfu}
        return {name: value for name, value in figures.items() if value is not None}

    def utilization(
        self,
        peak: PeakUsed | None,
        shape: ModelShape | None = None,
        interval: Interval | None = None,
        *,
        devices: int = 1,
    ) -> Utilization | None:
        """Return the utilization of a mean counted step; None where no FLOPs are known.

        `devices` do the work of a batch together. `interval` is that of a mean step in seconds,
        given where all steps are counted.
        """
        if not self.counted:
            return None
        contents = (
            self.contents if self.equal_contents and self.contents is not None else UNKNOWN_CONTENTS
        )
        return utilization(
            mean(self.products, self.counted),
            StepTime(
                self.counted_time * 1e-9 / self.counted,
                interval if self.equal_contents else None,
                average="mean",
            ),
            peak,
            devices=devices,
            contents=contents,
            shape=shape,
        )


def summed(parts: Iterable[Products]) -> Products:
    """Return the products of several calls together."""
    model = executed = attention = 0
    by_dtype: dict[str, int] = {}
    at_least = False
    for part in parts:
        model, executed = model + part.model, executed + part.executed
        attention += part.attention
        at_least = at_least or part.at_least
        for dtype, flops in part.by_dtype.items():
            by_dtype[dtype] = by_dtype.get(dtype, 0) + flops
    return Products(model, executed, by_dtype, attention, at_least=at_least)


def mean(total: Products, count: int) -> Products:
    """Return the products of a mean step, of `count` steps in all, to the next whole FLOP."""
    return total._replace(
        model=round(total.model / count),
        executed=round(total.executed / count),
        attention=round(total.attention / count),
        by_dtype={dtype: round(flops / count) for dtype, flops in total.by_dtype.items()},
    )


def _plus(total: int | None, amount: int | None) -> int | None:
    return None if total is None or amount is None else total + amount
