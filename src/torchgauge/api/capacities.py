"""Plan how many workers a rate needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.errors import InputError
from torchgauge.records.serving.capacity_plan import CapacityPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchgauge.analyze.capacity.capacity_options import CapacityOptions
    from torchgauge.analyze.capacity.record_plans import Planned


def plan_capacity(
    record: Planned | str | Path,
    *,
    rate: float | None = None,
    arrivals: str = "poisson",
    schedule: Sequence[float] = (),
    goals: str = "",
    max_batch: int | None = None,
    max_delay: float | None = None,
    workers: int | None = None,
    failures: int = 0,
    tune: bool = False,
    price: float | None = None,
    tokens: Sequence[tuple[int, int]] = (),
    token_budget: int = 2048,
    seed: int = 0,
    progress: bool | None = None,
) -> CapacityPlan:
    """Estimate how many workers meet the goals at a rate, by simulation of measured service times.

    Nothing runs but the simulation. Of a record of load the plan also has predictions beside its
    own levels, and none at all where these contradict one queue in order.

    Args:
        record: A sweep over batches, a record of load whose server says how long it computes, a
            generation, a profile, or the path of one.
        rate: Requests per second; None: that of `schedule`.
        arrivals: "poisson", "constant", or "gamma:CV" with the coefficient of variation of gaps.
        schedule: Seconds of recorded requests in ascending order, in place of `arrivals`.
        goals: What must hold, such as "p99<100ms"; empty: the queue stays finite.
        max_batch: Requests computed at once; None: as the server was set, or the most measured.
        max_delay: Seconds that a batch waits to fill; None: as the server was set, or 0.
        workers: How many; None: as many as it takes.
        failures: Workers that may fail while the goals are met.
        tune: Try batches and delays too.
        price: Of a worker and hour.
        tokens: Prompt and answer of each request of a language model, in turn.
        token_budget: Positions that an iteration of a language model computes at most.
        seed: Of what is drawn.
        progress: Show progress; None does so on a terminal.

    Raises InputError `goal-invalid`, `goal-unfit`, `option-invalid`, `rate-missing`,
    `no-service-times`, `batch-unmeasured`, `request-too-long`, `not-plannable`; of a path as `load`.

    Examples:
        >>> import torch, torchgauge as tg
        >>> profile = tg.profile(torch.nn.Linear(8, 8), torch.ones(1, 8), effort="quick")
        >>> plan = tg.plan_capacity(profile, rate=100, goals="p99<1s")
        >>> plan.needed.workers
        1
    """
    from torchgauge.analyze.capacity.capacity_options import CapacityOptions
    from torchgauge.analyze.serving.goals import parse_goals

    options = CapacityOptions(
        rate=rate, arrivals=arrivals, recorded=tuple(schedule), goals=parse_goals(goals) if goals.strip() else (),
        max_batch=max_batch, max_delay=max_delay, workers=workers, failures=failures, tune=tune,
        price=price, tokens=tuple(tokens), token_budget=token_budget, seed=seed,
    )  # fmt: skip
    return capacity_request(record, options, progress=progress)


def capacity_request(
    record: Planned | str | Path, options: CapacityOptions, *, progress: bool | None = None
) -> CapacityPlan:
    """Plan with options. Raises as `plan_capacity`."""
    from torchgauge.analyze.capacity.record_plans import plan
    from torchgauge.progress import showing

    planned = _plannable(record)
    with showing(progress) as display:
        display.start("simulating")
        return plan(planned, options, display.update)


def _plannable(record: Planned | str | Path) -> Planned:
    """Return the record that is given or lies at a path. Raises InputError `not-plannable`."""
    from torchgauge.records import codec
    from torchgauge.records.generation.generation import Generation
    from torchgauge.records.profile import Profile
    from torchgauge.records.serving.serving import Serving
    from torchgauge.records.sweep import Sweep

    loaded = codec.load(Path(record)) if isinstance(record, str | Path) else record
    if isinstance(loaded, Serving | Sweep | Generation | Profile):
        return loaded
    raise InputError(
        f"A {type(loaded).__name__} has no service times.",
        id="not-plannable",
        remedy="Give a record of `torchgauge sweep`, `load`, `generate` or `profile`.",
    )
