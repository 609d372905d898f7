"""A server of a language model with continuous batching, by the fits of its forwards."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from torchgauge.analyze.capacity.continuous_batching import (
    Limits,
    StageCost,
    Streams,
    simulate_tokens,
)
from torchgauge.analyze.capacity.server_model import Outcome
from torchgauge.analyze.capacity.simulation import Floats, Workers
from torchgauge.errors import InputError
from torchgauge.records.serving.capacity_plan import ServiceTimes, TokenTimes

# Batches that a worker computes, one after the other, to find its highest rate.
FULL_BATCHES = 24
# An iteration of a batch takes longer than a batch of requests, and a request has several.
EFFORT = 0.1


@dataclasses.dataclass(frozen=True)
class TokenModel:
    """The seconds of prefills and decode steps, and the simulation of workers that have them.

    Requests go to the workers in turn: each has its own batch.

    Attributes:
        prefill: Seconds of a prefill.
        decode: Seconds of a decode step.
        shapes: Prompt and answer of requests in tokens, each as frequent as the others.
        token_budget: Positions that an iteration computes at most.
        overhead: Seconds of a request outside of the forwards.
        largest_batch: The largest that was measured.
        factors: By which prefill and decode take longer than their fits.
    """

    prefill: TokenTimes
    decode: TokenTimes
    shapes: tuple[tuple[int, int], ...]
    token_budget: int
    overhead: float = 0.0
    largest_batch: int = 1
    factors: tuple[float, float] = (1.0, 1.0)

    @classmethod
    def from_times(
        cls, times: ServiceTimes, shapes: Sequence[tuple[int, int]], token_budget: int
    ) -> TokenModel:
        """Return the model of a record's fits. Raises InputError `request-too-long`."""
        by_stage = {part.stage: part for part in times.tokens}
        model = cls(
            by_stage["prefill"],
            by_stage["decode"],
            tuple(shapes or times.shapes),
            token_budget,
            times.overhead,
            times.max_batch or 1,
        )
        longest = max(map(sum, model.shapes))
        if longest > model.positions:
            raise InputError(
                f"A request of {longest:,} tokens does not fit into a cache of "
                f"{model.positions:,.0f} positions.",
                id="request-too-long",
                remedy="Give shorter ones, such as --tokens 128:64, or a device with more memory.",
            )
        window = model.decode.window
        if window is not None and longest > window:
            raise InputError(
                f"A request of {longest:,} tokens is longer than the window of {window:,} "
                "positions that the model attends to.",
                id="request-too-long",
                cause="The simulation has no windows.",
                remedy="Give shorter ones, such as --tokens 128:64.",
            )
        return model

    def effort(self, workers: Workers) -> float:  # noqa: ARG002 - as every model has it
        """Return how many requests can be simulated in the time of one of a batch."""
        return EFFORT

    @property
    def uncertain(self) -> bool:
        """Whether the fits say how far another measurement lies from them."""
        return min(self.prefill.noise, self.decode.noise) > 0

    @property
    def positions(self) -> float:
        """Positions that the cache of a worker holds; infinite where that is unknown."""
        if not self.decode.cache or self.decode.memory is None:
            return math.inf
        return self.decode.memory // self.decode.cache

    def run(self, arrivals: Floats, workers: Workers, seed: int) -> Outcome:
        """Simulate requests that arrive at these seconds; `seed` shuffles their shapes."""
        picks = np.arange(len(arrivals)) % len(self.shapes)
        order = np.random.default_rng(seed).permutation(picks) if len(self.shapes) > 1 else picks
        shapes = [self.shapes[pick] for pick in order]
        first, last = np.empty(len(arrivals)), np.empty(len(arrivals))
        busy, steps, sequences = 0.0, 0, 0.0
        for number in range(workers.count):
            part = slice(number, None, workers.count)
            streams = self.streams(arrivals[part], shapes[part], workers.max_batch)
            first[part], last[part] = streams.first, streams.last
            busy, steps = busy + streams.busy, steps + streams.steps
            sequences += streams.sequence_steps
        later = np.array([answer - 1 for _, answer in shapes])
        several = later > 0
        return Outcome(
            last - arrivals + self.overhead,
            busy,
            # Requests over batches is the mean batch: so many sequences an iteration has.
            len(arrivals) * steps / sequences if sequences else 0.0,
            ttft=first - arrivals + self.overhead,
            tpot=(last - first)[several] / later[several],
        )

    def streams(self, arrivals: Floats, shapes: Sequence[tuple[int, int]], batch: int) -> Streams:
        """Return what one worker makes of requests."""
        prefill, decode = (
            StageCost(part.fixed * factor, part.per_token * factor, part.per_pair * factor)
            for part, factor in zip((self.prefill, self.decode), self.factors, strict=True)
        )
        limits = Limits(batch, self.token_budget, self.positions)
        return simulate_tokens(arrivals, shapes, prefill, decode, limits)

    def highest_rate(self, workers: Workers) -> float:
        """Return the requests per second of workers that always have enough to do."""
        return workers.count * _full_rate(self, workers.max_batch)

    def resampled(self, generator: np.random.Generator) -> TokenModel:
        """Return the model with fits as far off as shapes lay from them."""
        noises = (self.prefill.noise, self.decode.noise)
        first, second = (math.exp(noise * generator.standard_normal()) for noise in noises)
        return dataclasses.replace(self, factors=(first, second))


@functools.lru_cache(maxsize=256)
def _full_rate(model: TokenModel, batch: int) -> float:
    count = FULL_BATCHES * max(batch, len(model.shapes))
    shapes = [model.shapes[index % len(model.shapes)] for index in range(count)]
    ends = np.sort(model.streams(np.zeros(count), shapes, batch).last)
    # Neither while the batch fills nor while it empties.
    begin, end = count // 4, 3 * count // 4
    seconds = float(ends[end] - ends[begin])
    return (end - begin) / seconds if seconds > 0 else math.inf
