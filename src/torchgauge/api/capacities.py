"""Plan how many workers a rate needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.errors import InputError
from torchgauge.records.serving.capacity_plan import CapacityPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Literal

    from torchgauge.analyze.capacity.capacity_options import CapacityOptions
    from torchgauge.analyze.capacity.verification import Planned


def plan_capacity(
    record: Planned | str | Path, *,
    rate: float | None = None, arrivals: str = "poisson", schedule: Sequence[float] = (),
    goals: str = "", max_batch: int | None = None, max_delay: float | None = None,
    workers: int | None = None, failures: int = 0, tune: bool = False, price: float | None = None,
    tokens: Sequence[tuple[int, int]] = (), token_budget: int = 2048, row: str = "", seed: int = 0,
    verify: Callable[..., Any] | str | None = None, inputs: Any = None,
    load: Mapping[str, Any] | None = None, progress: bool | None = None,
    queues: Literal["one", "bound", "random"] | None = None,
) -> CapacityPlan:  # fmt: skip
    """Estimate how many workers meet the goals at a rate, by simulation of measured service times.

    Nothing runs but the simulation, and the load of `verify`. Of a record of load the plan has
    predictions beside its levels too, and none where these contradict one queue in order.

    Args:
        record: A sweep, a load, a generation, a profile; or its path.
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
        token_budget: Positions that an iteration computes at most.
        row: Settings of the row of a sweep to plan for, such as "bf16"; empty: the fastest.
        seed: Of what is drawn.
        verify: A model, or a server's URL with the planned workers, to load afterwards.
        inputs: Those of a request to that model.
        load: More of that load, as of `measure_serving`: `{"body": "request.json"}`, and by
            `{"arrivals": "times.txt"}` the file of `schedule`, in whose place it is Poisson.
        progress: Show progress; None does so on a terminal.
        queues: "one" of all workers, connections "bound" to each, "random"; None: as measured.

    Raises InputError `goal-invalid`, `goal-unfit`, `option-invalid`, `arrivals-unknown`,
    `rate-missing`, `no-service-times`, `row-unknown`, `row-missing`, `batch-unmeasured`,
    `request-too-long`, `not-plannable`, and as `load`. What hinders `verify` is a warning.

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
        rate=rate, arrivals=arrivals, recorded=tuple(schedule), max_batch=max_batch, seed=seed,
        goals=parse_goals(goals) if goals.strip() else (), max_delay=max_delay, workers=workers,
        failures=failures, tune=tune, price=price, tokens=tuple(tokens), row=row,
        token_budget=token_budget, queues=queues,
    )  # fmt: skip
    plan = capacity_request(record, options, progress=progress)
    if verify is None:
        return plan
    from torchgauge.api.verifying import verified_by_load

    return verified_by_load(
        plan, verify, inputs, load, token_budget=token_budget, progress=progress
    )


def capacity_request(
    record: Any, options: CapacityOptions, *, progress: bool | None = None
) -> CapacityPlan:
    """Plan with options. Raises as `plan_capacity`."""
    from torchgauge.analyze.capacity.verification import plan
    from torchgauge.progress import showing

    planned = _plannable(record)
    with showing(progress) as display:
        display.start("simulating")
        return plan(planned, options, display.update)


def _plannable(record: Any) -> Planned:
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
        remedy="Give a record of `torchgauge sweep TARGET`, `load`, `generate` or `profile`.",
    )
