"""The load, the limits and the workers of a plan of capacity."""

from __future__ import annotations

import dataclasses
import itertools
import math

from torchgauge.analyze.serving.arrival_kinds import arrival_kind, unknown_arrivals
from torchgauge.errors import InputError, option_invalid
from torchgauge.records.serving.capacity_plan import Queues
from torchgauge.records.serving.level import Arrivals
from torchgauge.records.serving.requests import Goal

MOST_WORKERS, LARGEST = 10_000, 1e12


@dataclasses.dataclass(frozen=True)
class CapacityOptions:
    """The load, the limits, and how workers may be set.

    Attributes:
        rate: Requests per second; None: that of `recorded`.
        arrivals: "poisson", "constant", or "gamma:CV" with the coefficient of variation of gaps.
        recorded: Seconds of a recorded schedule in place of that, repeated; `file` is its name.
        file: Likewise.
        goals: What must hold.
        max_batch: Requests at once; None: as the server was set, or the largest that was measured.
        max_delay: Seconds that a batch waits to fill; None: as the server was set, or 0.
        workers: How many; None: as many as it takes.
        failures: Workers that may fail while the goals are still met.
        tune: Whether batches and delays are tried too.
        price: Of a worker and hour.
        tokens: Prompt and answer of each request, in turn, of a language model.
        token_budget: Positions that an iteration of a language model computes at most.
        row: Settings of a sweep's row to plan for, such as "bf16"; empty: the fastest.
        seed: Of what is drawn.
        queues: From which queues workers take; None: as measured, or unknown.
        effort: How much is simulated: 1 is usual.

    Raises InputError `option-invalid`, `arrivals-unknown`, `rate-missing`, `goal-unfit`.
    """

    rate: float | None = None
    arrivals: str = "poisson"
    recorded: tuple[float, ...] = ()
    file: str = ""
    goals: tuple[Goal, ...] = ()
    max_batch: int | None = None
    max_delay: float | None = None
    workers: int | None = None
    failures: int = 0
    tune: bool = False
    price: float | None = None
    tokens: tuple[tuple[int, int], ...] = ()
    token_budget: int = 2048
    row: str = ""
    seed: int = 0
    queues: Queues | None = None
    effort: float = 1.0

    def __post_init__(self) -> None:
        if self.rate is None and not self.recorded:
            raise InputError(
                "There is no rate to plan for.",
                id="rate-missing",
                remedy="Give requests per second, such as --rate 500, or a schedule by --arrivals.",
            )
        # Each is above zero, a whole number where it counts.
        for name in ("rate", "price", "max_batch", "workers", "token_budget", "effort"):
            value = getattr(self, name)
            limit = MOST_WORKERS if name == "workers" else LARGEST
            if value is not None and not 0 < value <= limit:
                raise _invalid(name, value, f"above 0 and at most {limit:,g}")
        if self.max_delay is not None and not 0 <= self.max_delay < math.inf:
            raise _invalid("max_delay", self.max_delay, "0 or above")
        if not 0 <= self.failures < (self.workers or math.inf):
            raise _invalid("failures", self.failures, "0 or above and fewer than the workers")
        if any(min(pair) < 1 for pair in self.tokens):
            raise _invalid("tokens", self.tokens, "pairs of 1 or above")
        pairs = itertools.pairwise(self.recorded)
        ascending = all(-math.inf < early <= late < math.inf for early, late in pairs)
        if self.recorded and not (ascending and self.recorded[0] < self.recorded[-1]):
            raise _invalid("recorded", self.file or "it", "two or more seconds in ascending order")
        for goal in self.goals:
            if goal.metric in ("errors", "itl"):
                raise InputError(
                    f"A simulation does not show {goal.metric}.",
                    id="goal-unfit",
                    remedy="Plan with limits on latency, ttft or tpot; measure others by "
                    "`torchgauge load`.",
                )
        _ = self.load  # its kind

    @property
    def load(self) -> Arrivals:
        """The arrivals as records have them."""
        if self.recorded:
            return Arrivals(kind="file", rate=self.offered, file=self.file, seed=self.seed)
        parsed = arrival_kind(self.arrivals)
        if parsed is None:
            raise unknown_arrivals(self.arrivals)
        kind, variation = parsed
        return Arrivals(kind=kind, variation=variation, rate=self.offered, seed=self.seed)

    @property
    def offered(self) -> float:
        """The requests per second."""
        if self.rate is not None:
            return self.rate
        return (len(self.recorded) - 1) / (self.recorded[-1] - self.recorded[0])


def _invalid(name: str, value: object, expected: str) -> InputError:
    return option_invalid(
        f"{name} is {value}, which is not {expected}.",
        "Give another; docs/capacity.md has them all.",
    )
