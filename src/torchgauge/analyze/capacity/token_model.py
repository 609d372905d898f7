"""A server of a language model with continuous batching, by the fits of its forwards."""

from __future__ import annotations

import dataclasses
import functools
import heapq
import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

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


class StageCost(NamedTuple):
    """Seconds of a forward: fixed + per_token × tokens + per_pair × pairs.

    Pairs are positions that are computed times the positions that each attends to.
    """

    fixed: float
    per_token: float
    per_pair: float

    def seconds(self, tokens: float, pairs: float) -> float:
        """Return what one forward takes."""
        return self.fixed + self.per_token * tokens + self.per_pair * pairs


class Limits(NamedTuple):
    """What an iteration may compute, and how much the cache holds.

    Attributes:
        sequences: Sequences in the batch at most.
        tokens: Positions that an iteration computes at most, of answers and prompts together.
        positions: Positions that the cache holds, reserved when a sequence joins.
    """

    sequences: int
    tokens: int
    positions: float = math.inf


class Streams(NamedTuple):
    """When the first token of each request came and when the last, and what it took.

    `busy` are the seconds in which an iteration ran, `steps` how many did, `sequence_steps` the sum
    of their sequences.
    """

    first: Floats
    last: Floats
    busy: float
    steps: int
    sequence_steps: float


def simulate_tokens(
    arrivals: Floats,
    shapes: Sequence[tuple[int, int]],
    prefill: StageCost,
    decode: StageCost,
    limits: Limits,
) -> Streams:
    """Return the streams of requests on one worker; `shapes` are prompt and answer in tokens.

    Between two iterations requests join in their order while there is room. An iteration computes a
    token of every sequence that has its first, and of prompts, in order, as much as the budget
    leaves; it takes a decode step and a prefill of that. The end of a prompt is the first token.
    """
    worker = _Worker(arrivals.tolist(), shapes, prefill, decode, limits)
    while worker.answered < len(arrivals):
        worker.iterate()
    return Streams(
        np.array(worker.first), np.array(worker.last), worker.busy, worker.steps, worker.sequences
    )


class _Worker:
    """The state between two iterations."""

    def __init__(
        self,
        arrivals: list[float],
        shapes: Sequence[tuple[int, int]],
        prefill: StageCost,
        decode: StageCost,
        limits: Limits,
    ) -> None:
        self.arrivals, self.shapes, self.limits = arrivals, shapes, limits
        self.prefill, self.decode = prefill, decode
        self.clock, self.busy = 0.0, 0.0
        self.first, self.last = [0.0] * len(arrivals), [0.0] * len(arrivals)
        self.next = 0  # the first request that has not joined
        self.answered = 0
        self.prompts: deque[list[int]] = deque()  # request and computed positions of its prompt
        self.running: list[tuple[int, int]] = []  # a heap: the decode step of its end, the request
        self.step = 0  # decode steps since the beginning
        self.context = 0.0  # positions of all running sequences
        self.reserved = 0
        self.steps, self.sequences = 0, 0.0

    def iterate(self) -> None:
        """Let requests join, then compute an iteration, or several alike ones in which none can."""
        if not self.prompts and not self.running:
            self.clock = max(self.clock, self.arrivals[self.next])
        joined = self._join()
        if self.prompts:
            self._mixed()
        else:
            self._decode_steps(waiting=joined)

    def _join(self) -> bool:
        """Let requests join; return whether the next one only has to arrive."""
        while self.next < len(self.arrivals):
            positions = sum(self.shapes[self.next])
            room = len(self.prompts) + len(self.running) < self.limits.sequences
            fits = self.reserved + positions <= self.limits.positions
            if not room or not fits:
                return False
            if self.arrivals[self.next] > self.clock:
                return True
            self.prompts.append([self.next, 0])
            self.reserved += positions
            self.next += 1
        return False

    def _mixed(self) -> None:
        """Compute a token of every running sequence, and of prompts what the budget leaves."""
        sequences, seconds = len(self.running), 0.0
        if sequences:
            seconds = self.decode.seconds(sequences, self.context + sequences)
        budget, tokens, pairs = max(1, self.limits.tokens - sequences), 0, 0.0
        ended: list[int] = []
        while self.prompts and tokens < budget:
            request, computed = self.prompts[0]
            part = min(self.shapes[request][0] - computed, budget - tokens)
            tokens += part
            pairs += part * computed + part * (part + 1) / 2
            if computed + part == self.shapes[request][0]:
                self.prompts.popleft()
                ended.append(request)
            else:
                self.prompts[0][1] += part
        seconds += self.prefill.seconds(tokens, pairs)
        self.sequences += len(ended)
        self._advance(seconds, 1 if sequences else 0)
        self.steps += not sequences
        for request in ended:
            self._begin_answer(request)

    def _begin_answer(self, request: int) -> None:
        self.first[request] = self.clock
        prompt, answer = self.shapes[request]
        if answer > 1:
            heapq.heappush(self.running, (self.step + answer - 1, request))
            self.context += prompt
        else:
            self._answer(request)

    def _answer(self, request: int) -> None:
        self.last[request] = self.clock
        self.reserved -= sum(self.shapes[request])
        self.answered += 1

    def _decode_steps(self, *, waiting: bool) -> None:
        """Compute decode steps until a sequence ends, or until the next request may join."""
        sequences = len(self.running)
        count = self.running[0][0] - self.step
        # A step takes `first`, and each one `growth` more than the one before.
        first = self.decode.seconds(sequences, self.context + sequences)
        growth = self.decode.per_pair * sequences
        if waiting:
            until = self.arrivals[self.next] - self.clock
            count = min(count, _steps_until(until, first, growth))
        self._advance(first * count + growth * count * (count - 1) / 2, count)

    def _advance(self, seconds: float, steps: int) -> None:
        """Let time pass in which every running sequence makes `steps` tokens."""
        sequences = len(self.running)
        self.clock += seconds
        self.busy += seconds
        self.step += steps
        self.steps += steps
        self.sequences += steps * sequences
        self.context += steps * sequences
        while self.running and self.running[0][0] <= self.step:
            request = heapq.heappop(self.running)[1]
            prompt, answer = self.shapes[request]
            self.context -= prompt + answer - 1
            self._answer(request)


def _steps_until(seconds: float, first: float, growth: float) -> int:
    """Return the fewest steps, 1 or more, that take as long; each takes `growth` more."""
    if first <= 0:
        return 1
    if growth <= 0:
        return max(1, math.ceil(seconds / first))
    half = first - growth / 2  # count × half + count² × growth / 2 is what `count` steps take
    root = math.sqrt(half * half + 2 * growth * max(0.0, seconds))
    return max(1, math.ceil((root - half) / growth))
