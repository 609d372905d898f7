"""Plan how many workers a rate needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.errors import InputError
from torchgauge.records.serving.capacity_plan import CapacityPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from torchgauge.analyze.capacity.capacity_options import CapacityOptions
    from torchgauge.analyze.capacity.record_plans import Planned
    from torchgauge.analyze.capacity.verification import VerifyingLoad

# A load takes as long as some requests do, within limits.
VERIFY_SECONDS, MOST_SECONDS, VERIFY_REQUESTS = 10.0, 60.0, 300


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
    verify: Callable[..., Any] | str | None = None,
    inputs: Any = None,
    progress: bool | None = None,
) -> CapacityPlan:
    """Estimate how many workers meet the goals at a rate, by simulation of measured service times.

    Nothing runs but the simulation, and the load of `verify`. Of a record of load the plan has
    predictions beside its levels too, and none where these contradict one queue in order.

    Args:
        record: A sweep, a load whose server names its times, a generation, a profile; or its path.
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
        seed: Of what is drawn.
        verify: A model, or a server's URL with the planned workers, to load afterwards.
        inputs: Those of a request to that model.
        progress: Show progress; None does so on a terminal.

    Raises InputError `goal-invalid`, `goal-unfit`, `option-invalid`, `arrivals-unknown`,
    `rate-missing`, `no-service-times`, `batch-unmeasured`, `request-too-long`, `not-plannable`, and
    as `load`; with `verify` also `verify-unfit`, and as `measure_serving`.

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
        failures=failures, tune=tune, price=price, tokens=tuple(tokens), token_budget=token_budget,
    )  # fmt: skip
    plan = capacity_request(record, options, progress=progress)
    if verify is None:
        return plan
    return verified_by_load(plan, verify, inputs, token_budget=token_budget, progress=progress)


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


def verified_by_load(
    plan: CapacityPlan,
    target: Callable[..., Any] | str,
    inputs: Any = None,
    *,
    token_budget: int = 2048,
    progress: bool | None = None,
) -> CapacityPlan:
    """Put a target under the planned load, and return the plan with its predictions beside that.

    A refused plan stays as it is. Of continuous batching it is a server that streams as OpenAI's
    does. Raises InputError `verify-unfit`, and as `measure_serving`.
    """
    from torchgauge.analyze.capacity.verification import verified, verifying_load
    from torchgauge.api.servings import measure_serving

    if plan.refused:
        return plan
    is_endpoint = isinstance(target, str) and "://" in target
    load = verifying_load(plan, None if is_endpoint else plan.environment.machine.usable_cores or 1)
    arrivals = plan.arrivals.kind
    if arrivals == "gamma":
        arrivals = f"gamma:{plan.arrivals.variation:g}"  # type: ignore[assignment]
    serving = measure_serving(
        target,
        inputs,
        rate=load.rate,
        goals=plan.goals,
        # A recorded schedule is not in the plan.
        arrivals="poisson" if arrivals == "file" else arrivals,
        seed=plan.arrivals.seed + 1,
        duration=min(MOST_SECONDS, max(VERIFY_SECONDS, VERIFY_REQUESTS / load.rate)),
        progress=progress,
        **({} if is_endpoint else _served(load)),
        **_streamed(plan, target),
    )
    return verified(plan, load, serving, token_budget)


def _served(load: VerifyingLoad) -> dict[str, Any]:
    """Return how the reference server is set."""
    setting = load.setting
    return {
        "max_batch": setting.max_batch, "max_delay": setting.max_delay, "workers": load.workers
    }  # fmt: skip


def _streamed(plan: CapacityPlan, url: Any) -> dict[str, Any]:
    """Return how a language model's server gets requests of the planned tokens."""
    if plan.discipline != "continuous":
        return {}
    is_chat = url.partition("?")[0].rstrip("/").endswith("/chat/completions")
    api = "openai-chat" if is_chat else "openai-completions"
    return {"api": api, "tokens": plan.times.shapes[0]}


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
        remedy="Give a record of `torchgauge sweep TARGET`, `load`, `generate` or `profile`.",
    )
