"""The calls of one shape, and what is fitted to those of several."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.generation.call import CacheSize, GenerationCall
from torchgauge.records.memory.memory import Memory
from torchgauge.records.record import How, Interval, Record
from torchgauge.records.work.energy import Energy
from torchgauge.records.work.roofline import Bound


class Coefficient(Record, frozen=True, kw_only=True):
    """One coefficient of a fit in seconds per unit, with its 95 % interval."""

    value: float
    interval: Interval | None = None


class StageFit(Record, frozen=True, kw_only=True):
    """Seconds of a forward = fixed + per_token × tokens + per_context × pairs.

    Tokens are the positions that the forward computes, of all sequences; pairs are these times the
    positions that each attends to (of a prefill on average half the prompt). Without a cache a
    decode step computes all positions, as a prefill does.

    Attributes:
        stage: "prefill", or "decode" with its time between forwards.
        cache_kind: That of the cells that it is fitted to.
        fixed: Seconds of any forward.
        per_token: Seconds of a token.
        per_context: Seconds of a pair.
        spread: Relative standard deviation of a cell around the fit, for another measurement.
        interpolated: The same of a cell among others where what these differ from the fit by is
            interpolated; None where that is no nearer than the fit.
        extrapolated: The same of the cells of most sequences or of the longest context, as a fit to
            the other cells says them; None where these are too few.
        quantile: That of Student's t for its 95 % intervals; None where cells are too few.
        covariance: Of the coefficients, in rows; what intervals of predictions are made from.
        cells: Shapes (sequences, context) that it is fitted to, with the seconds measured.
        window: Positions that every layer attends to at most; None where a layer attends to all.
        reason: Why there is no interval, or why the fit should be doubted; empty otherwise.
    """

    stage: Literal["prefill", "decode"]
    cache_kind: str
    fixed: Coefficient
    per_token: Coefficient
    per_context: Coefficient
    spread: float
    interpolated: float | None = None
    extrapolated: float | None = None
    quantile: float | None = None
    covariance: tuple[tuple[float, ...], ...] = ()
    cells: tuple[tuple[int, int, float], ...] = ()
    window: int | None = None
    reason: str = ""
    how: How = "estimated"


class GenerationPrediction(Record, frozen=True, kw_only=True):
    """What the fits say of a shape that was not measured; all times are seconds.

    `interval`s hold one measurement of that shape in 95 % of cases, as it would be in the same run.
    `extrapolated` lies outside of what was measured.
    """

    batch: int
    prompt: int
    new_tokens: int
    cache_kind: str
    ttft: float
    tpot: float
    ttft_interval: Interval | None = None
    tpot_interval: Interval | None = None
    cache_bytes: int | None = None
    extrapolated: bool = False
    how: How = "estimated"

    @property
    def tokens_per_second(self) -> float | None:
        """New tokens of all prompts per second of the call."""
        seconds = self.ttft + max(self.new_tokens - 1, 0) * self.tpot
        return self.batch * self.new_tokens / seconds if seconds > 0 else None


Status = Literal["done", "out of memory", "failed", "interrupted", "skipped"]


class RepeatedTime(Record, frozen=True, kw_only=True):
    """A time in seconds, or a rate in 1/s, over the calls of a cell.

    `value` is the median of the calls' own values. `interval` is that of the geometric mean of
    `calls` calls, by Student's t on their logarithms; None below three.
    """

    value: float
    interval: Interval | None = None
    calls: int = 1
    how: How = "measured"


class StageWork(Record, frozen=True, kw_only=True):
    """What one forward of a stage has to do, counted, and the least time that takes.

    Attributes:
        stage: "prefill": the whole prompt; "decode": one step.
        cached: Positions in the cache before it.
        flops: Floating-point operations.
        matmul_flops: Those of matrix products and attention.
        weight_bytes: Bytes of weights that it reads, each once: no embedding table unless it is
            the output layer's too, of experts those that were used.
        cache_bytes: Bytes of the cache that it reads and writes.
        activation_bytes: Bytes of all else that operators read and write at least.
        at_least: Whether an operator without a formula is missing from it.
        experts: Experts of a layer that tokens were sent to, on average; None without experts.
        lower_bound: Seconds it takes at least under the device's roofs; None without these.
        bound: What sets that: "memory" is bandwidth.
        reached: The lower bound over the measured time.
    """

    stage: Literal["prefill", "decode"]
    cached: int
    flops: int | None = None
    matmul_flops: int | None = None
    weight_bytes: int | None = None
    cache_bytes: int | None = None
    activation_bytes: int | None = None
    at_least: bool = False
    experts: float | None = None
    lower_bound: float | None = None
    bound: Bound | None = None
    reached: float | None = None
    how: How = "counted"

    @property
    def bytes(self) -> int | None:
        """Bytes that it reads and writes at least; None where a part is unknown."""
        parts = (self.weight_bytes, self.cache_bytes, self.activation_bytes)
        sizes = [part for part in parts if part is not None]
        return sum(sizes) if len(sizes) == len(parts) else None


class GenerationCell(Record, frozen=True, kw_only=True):
    """The calls of one shape, or in `reason` why there are none.

    Attributes:
        batch: Prompts.
        prompt: Tokens of each, padding included.
        new_tokens: Tokens that each call made: the most, if calls differ.
        beams: Sequences per prompt.
        cache_kind: "dynamic", "static", "none", "unknown", or another cache's class.
        status: Whether it was measured.
        reason: Why not, in a sentence.
        error: The id or type of the error behind that.
        calls: Every call, in order; the first of a shape is warm-up where `warmup` says so.
        warmup: Calls at the start that are in no figure.
        ttft: Time to the first token.
        tpot: Time per token after the first.
        end_to_end: Time of a call.
        prefill: Time of the forwards before the first token.
        step: Time of a decode forward.
        between: Time from one decode forward to the next.
        tokens_per_second: New tokens of all prompts per second of a call.
        prefill_tokens_per_second: Tokens of the prompts per second of prefill.
        cache: What the cache takes at the end of a call.
        memory: The peak of the last decode step.
        work: Of the prefill and of the first and last decode step.
        energy: Joules of a call; None where they were not asked for.
        prefill_energy: Joules of a call that makes one token, by tokens of the prompts.
    """

    batch: int
    prompt: int
    new_tokens: int
    beams: int = 1
    cache_kind: str = "dynamic"
    status: Status = "done"
    reason: str = ""
    error: str = ""
    calls: tuple[GenerationCall, ...] = ()
    warmup: int = 0
    ttft: RepeatedTime | None = None
    tpot: RepeatedTime | None = None
    end_to_end: RepeatedTime | None = None
    prefill: RepeatedTime | None = None
    step: RepeatedTime | None = None
    between: RepeatedTime | None = None
    tokens_per_second: RepeatedTime | None = None
    prefill_tokens_per_second: RepeatedTime | None = None
    cache: CacheSize | None = None
    memory: Memory | None = None
    work: tuple[StageWork, ...] = ()
    energy: Energy | None = None
    prefill_energy: Energy | None = None

    @property
    def done(self) -> bool:
        """True where its times are known."""
        return self.status == "done"

    @property
    def decode_energy(self) -> tuple[float, float] | None:
        """Joules of a token after the first, and half their interval, by the calls' difference."""
        energy, prefill = self.energy, self.prefill_energy
        tokens = self.batch * (self.new_tokens - 1)
        if energy is None or prefill is None or tokens < 1:
            return None
        if energy.joules is None or prefill.joules is None:
            return None
        if energy.interval is None or prefill.interval is None:
            return None
        half = energy.interval.half_width + prefill.interval.half_width
        return (energy.joules - prefill.joules) / tokens, half / tokens

    @property
    def timed_calls(self) -> tuple[GenerationCall, ...]:
        """The calls that its figures are of."""
        return tuple(call for call in self.calls[self.warmup :] if not call.error)

    @property
    def shape(self) -> dict[str, int | str]:
        """All that tells it from other shapes; calls of equal ones can be compared."""
        return {
            "batch": self.batch,
            "prompt": self.prompt,
            "new": self.new_tokens,
            "beams": self.beams,
            "cache": self.cache_kind + "-assisted" * self.assisted,
        }

    @property
    def assisted(self) -> bool:
        """Whether an assistant drafted its tokens."""
        return any(call.forwards.indices("draft") for call in self.calls)

    @property
    def label(self) -> str:
        """Its shape in words: "batch 4, prompt 128, static cache"."""
        return f"{self.size_label}, {self.kind}"

    @property
    def size_label(self) -> str:
        """Its size in words: "batch 4, prompt 128"."""
        return f"batch {self.batch}, prompt {self.prompt:,}"

    @property
    def kind(self) -> str:
        """Beams and cache in words: "2 beams, static cache"."""
        beams = f"{self.beams} beams, " if self.beams > 1 else ""
        cache = "no cache" if self.cache_kind == "none" else f"{self.cache_kind} cache"
        return f"{beams}{cache}{', assisted' * self.assisted}"

    def work_of(self, stage: Literal["prefill", "decode"]) -> StageWork | None:
        """Return the work of the prefill, or of the last decode step; None where not counted."""
        return next((work for work in reversed(self.work) if work.stage == stage), None)
