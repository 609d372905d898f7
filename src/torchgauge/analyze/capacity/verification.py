"""Hold a plan to a load that would show it wrong, and to the order in which a server answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from torchgauge import units
from torchgauge.analyze.capacity.answered_times import distance, judge_inferred
from torchgauge.analyze.capacity.batch_model import BatchModel
from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.analyze.capacity.capacity_plans import Planner
from torchgauge.analyze.capacity.server_model import (
    FAR_OF_PLAN,
    ServerModel,
    checks,
    known_columns,
    unlike,
)
from torchgauge.analyze.capacity.service_times import cells_of_row, service_times, ways_to_batch
from torchgauge.analyze.capacity.simulation import Workers
from torchgauge.analyze.capacity.token_model import TokenModel
from torchgauge.errors import InputError
from torchgauge.records.generation.generation import Generation
from torchgauge.records.profile import Profile
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.serving.capacity_plan import (
    CapacityPlan,
    Check,
    PlannedSetting,
    ServiceTimes,
)
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import Fate
from torchgauge.records.serving.serving import Serving
from torchgauge.records.sweep import Sweep

Planned = Serving | Sweep | Generation | Profile
# Fates of requests that a server turned away, or let wait until the client gave up.
SHED: tuple[Fate, ...] = ("refused", "reset", "status", "timeout")
# A share of these above which its queue is not one without limit.
SHED_SHARE = 0.01
# Statuses of a request that would have been taken at another time; others of 400 never are.
BUSY = (408, 425, 429)
# Requests whose batch began before that of an earlier one, in seconds and mean service times.
EARLIER, EARLIER_SHARE = 2e-3, 0.02
MARGIN, LATE = 0.25, 2.0
FEWEST_REQUESTS = 50


def plan(
    record: Planned, options: CapacityOptions, note: Callable[[str], object] = lambda _: None
) -> CapacityPlan:
    """Return the plan; `note` is called with what is simulated.

    Of a record of load, each level is simulated with its own schedule too. Where one shows that the
    server is not one queue in order, the plan is refused: it has no settings, and says why.

    Raises InputError `no-service-times`, `row-unknown`, `row-missing`, `batch-unmeasured`,
    `goal-unfit`, `request-too-long`.
    """
    times = service_times(record, options.row)
    target = record.target
    if isinstance(record, Sweep):
        target = cells_of_row(record, options.row)[0].target or target
    all_checks: tuple[Check, ...] = ()
    of_delay: Iterable[MeasurementWarning] = ()
    reason = ""
    if isinstance(record, Serving):
        note("the levels of load")
        ways = ways_to_batch(record, options.max_batch, options.max_delay)
        attempts = [(way, *level_checks(record, way, options.seed)) for way in ways]
        times, all_checks, reason = min(attempts, key=lambda way: distance(way[1]))
        if times.source == "answers":
            times, reason = judge_inferred(attempts)
        if record.served_by.max_delay is None and options.max_delay is None:
            of_delay = _of_delay(times.max_delay)
    planner = Planner(times, options, note)
    if reason:
        refused = planner.empty(target, record.environment)
        return msgspec.structs.replace(refused, refused=reason, checks=all_checks)
    planned = planner.plan(target, record.environment)
    warnings = (*planned.warnings, *of_delay, *_of_other_rows(record, times, options.row))
    return msgspec.structs.replace(planned, checks=all_checks, warnings=warnings)


def _of_delay(delay: float | None) -> Iterator[MeasurementWarning]:
    """Warn of a delay of batches that was not given."""
    if delay:
        yield MeasurementWarning(
            id="delay-estimated",
            message=f"Batches of this server wait up to {units.time(delay, 3)}: so long did "
            "requests that met it idle.",
            remedy="Say how long they wait to fill: --max-delay.",
        )


def _of_other_rows(record: Planned, times: ServiceTimes, row: str) -> Iterator[MeasurementWarning]:
    """Warn of a sweep with several rows of which `row` names none."""
    if isinstance(record, Sweep) and not row:
        rows = {cell.settings.series for cell in record.cells if cell.latency is not None}
        if len(rows) > 1:
            yield MeasurementWarning(
                id="row-chosen",
                message=f"Of {len(rows):,} rows of the sweep, that of the highest throughput is "
                f"planned for: {times.settings or 'as given'}.",
                remedy="Name another by --row, such as --row bf16.",
            )


def level_checks(
    serving: Serving, times: ServiceTimes, seed: int = 0, model: ServerModel | None = None
) -> tuple[tuple[Check, ...], str]:
    """Return predictions beside the open-loop levels of a record, and what they contradict.

    Without a `model` it is that of the service times by batch.

    Of a queue that grows, a percent of the service times decides how fast: its times are not
    compared, nor those of a client that was too late; in which order the server took requests both
    show.
    """
    workers = Workers.of_times(times)
    model = model or BatchModel.from_times(times)
    all_checks: list[Check] = []
    for level in serving.levels:
        if level.scenario != "server":
            continue
        reason = misfit(level, workers)
        if reason:
            return tuple(all_checks), reason
        late_client = level.client is not None and level.client.limited
        if late_client or (level.saturation is not None and level.saturation.saturated):
            continue
        all_checks += checks(model, level, workers, seed)
    several = ""
    if serving.served_by.kind == "endpoint" and times.workers == 1:
        several = " If it has several workers, load it with --workers and their number."
    return tuple(all_checks), unlike(tuple(all_checks), if_shorter=several)


UNFIT = "verify-unfit"
# Fuller workers need longer than a load of seconds to show that they keep up.
FULL = 0.9


class VerifyingLoad(NamedTuple):
    """The load that a plan is held to: as many workers as run here, each as busy as planned."""

    setting: PlannedSetting
    workers: int
    rate: float


def verifying_load(
    plan: CapacityPlan, cores: int | None, workers: int | None = None
) -> VerifyingLoad:
    """Return the load to run on a machine with `cores`; one is left to who sends.

    Fewer workers have their share of the rate, and a prediction of their own. An endpoint (`cores`
    None) has `workers`, by default those that were planned. Raises InputError `verify-unfit` for a
    plan without a stable setting, and of continuous batching for requests of several lengths or a
    target.
    """
    setting = plan.needed or next((s for s in plan.settings if s.stable), None)
    if setting is None:
        raise unfit("It has no setting whose queue stays finite.", "Leave --verify out.")
    if plan.discipline == "continuous" and cores is not None:
        remedy = "Give the URL of your server: --verify http://127.0.0.1:8000/v1/chat/completions"
        raise unfit("The reference server has no continuous batching.", remedy)
    if len(plan.times.shapes) > 1:
        raise unfit("Its requests have several lengths.", "Give one pair of --tokens.")
    available = workers if cores is None else max(1, cores - 1)
    workers = min(setting.workers, available or setting.workers)
    return VerifyingLoad(setting, workers, setting.rate * workers / setting.workers)


def unfit(cause: str, remedy: str) -> InputError:
    """Return the error of a plan that no load would verify."""
    message = "There is no load that would verify this plan."
    return InputError(message, id=UNFIT, cause=cause, remedy=remedy)


def with_doubt(plan: CapacityPlan, id: str, message: str, remedy: str) -> CapacityPlan:
    """Return the plan with a warning that its load shows nothing of it."""
    warning = MeasurementWarning(id=id, message=message, remedy=remedy)
    return msgspec.structs.replace(plan, warnings=(*plan.warnings, warning))


def verified(
    plan: CapacityPlan, load: VerifyingLoad, serving: Serving, token_budget: int
) -> CapacityPlan:
    """Return the plan with predictions beside that load; refused where it shows another server.

    What an interrupted load shows counts too.
    """
    plan = msgspec.structs.replace(plan, interrupted=plan.interrupted or serving.interrupted)
    level = serving.levels[0] if serving.levels else None
    if level is not None and (reason := rejected(level)):
        remedy = "Say what it takes: --api, --body, --prompts, --bearer-env."
        return with_doubt(plan, UNFIT, f"The load of --verify shows nothing. {reason}", remedy)
    times = msgspec.structs.replace(
        plan.times,
        workers=load.workers,
        max_batch=load.setting.max_batch,
        max_delay=load.setting.max_delay,
    )
    model = TokenModel.from_times(times, (), token_budget) if times.tokens else None
    checks, reason = level_checks(serving, times, plan.arrivals.seed, model)
    reason = reason or unlike(checks, FAR_OF_PLAN)
    if not reason and level is not None:
        reason = _refuted(plan, load, level)
    plan = msgspec.structs.replace(plan, checks=(*plan.checks, *checks))
    if reason:
        return msgspec.structs.replace(
            plan, refused=reason, needed=None, settings=(), failure=None, front=(), findings=()
        )
    return plan if checks or plan.interrupted else _with_nothing_shown(plan, load, level)


def _refuted(plan: CapacityPlan, load: VerifyingLoad, level: Level) -> str:
    """Return how a load contradicts what is planned; empty where it does not."""
    if level.client is not None and level.client.limited:
        return ""
    busy = load.setting.utilization or 0.0
    if busy < FULL and level.saturation is not None and level.saturation.saturated:
        return (
            f"At {level.label} the queue grew, where the plan has workers that are "
            f"{units.percent(busy)} busy."
        )
    # Fewer workers with their share of the rate let requests wait longer, as other arrivals may.
    is_planned = load.setting == plan.needed and load.workers == load.setting.workers
    if not is_planned or plan.arrivals.kind == "file":
        return ""
    for result in level.goals:
        if result.verdict == "missed":
            took = "" if result.value is None else f", with {units.time(result.value, 3)}"
            return (
                f"At {level.label} the load missed {result.goal.text or result.goal.metric}{took}."
            )
    return ""


def _with_nothing_shown(
    plan: CapacityPlan, load: VerifyingLoad, level: Level | None
) -> CapacityPlan:
    cause, remedy = "few requests were answered", "Plan for a higher rate, or see the server's log."
    if level is not None and level.client is not None and level.client.limited:
        cause = "the client sent late, so that it would measure itself"
        remedy = "Repeat it on a machine that is not busy: torchgauge doctor"
    elif level is not None and level.saturation is not None and level.saturation.saturated:
        busy = units.percent(load.setting.utilization or 0.0)
        cause = f"its queue grew, as that of workers that are {busy} busy may for seconds"
        remedy = "Plan with a worker more, or hold your server to the load for minutes."
    message = f"The load of --verify shows nothing beside the plan: {cause}."
    return with_doubt(plan, "verify-nothing", message, remedy)


def misfit(level: Level, workers: Workers) -> str:
    """Return why a level of load is not that of one queue in order; empty where it may be.

    A server that turns requests away has a queue with a limit. Of others the begin of each batch is
    its end less its seconds: in one queue, a later request is not begun before an earlier one,
    however many workers there are. A server that takes the newest first, or one queue for each
    worker, begins many too early as soon as requests wait.
    """
    return rejected(level) or _shed(level) or _overtaken(level, workers)


def rejected(level: Level) -> str:
    """Return that a server does not take what is sent, by its statuses; empty where it does."""
    statuses = [s for s in level.requests.status if s and 400 <= s < 500 and s not in BUSY]
    share = len(statuses) / len(level.requests) if statuses else 0.0
    if share <= SHED_SHARE:
        return ""
    named = ", ".join(map(str, sorted(set(statuses))[:3]))
    return (
        f"At {level.label} {units.percent(share)} of the requests were answered by status {named}: "
        "the server does not take what was sent."
    )


def _shed(level: Level) -> str:
    count = sum(level.fates.values())
    # In a queue that grows without end, clients give up without the server's doing.
    saturated = level.saturation is not None and level.saturation.saturated
    fates = [fate for fate in SHED if not (saturated and fate == "timeout")]
    away = {fate: level.fates[fate] for fate in fates if level.fates.get(fate)}
    share = sum(away.values()) / count if count else 0.0
    if share <= SHED_SHARE:
        return ""
    named = ", ".join(f"{number:,} {fate}" for fate, number in away.items())
    return (
        f"At {level.label} the server answered {units.percent(1 - share)} of the requests alone "
        f"({named}): it turns requests away in place of letting them wait."
    )


def _overtaken(level: Level, workers: Workers) -> str:
    sent, last, took = known_columns(level.requests, "sent", "last", "service")
    if len(sent) < FEWEST_REQUESTS:
        return ""
    began = last - took
    # By so much a begin may seem earlier: the way of the answer, readings of two clocks, and what
    # a client that is late to send is late to read.
    late = 0.0 if level.client is None else level.client.lateness_p99 or 0.0
    slack = max(EARLIER, MARGIN * float(np.median(took)), LATE * late)
    begins_last = began >= np.maximum.accumulate(began)
    latest = np.maximum.accumulate(np.where(begins_last, np.arange(len(began)), 0))
    early = began < began[latest] - slack
    # Of requests that were sent together, any may be first.
    sent_later = sent > sent[latest] + EARLIER
    share = float((early & sent_later).mean())
    if share <= EARLIER_SHARE:
        return ""
    several = " and the workers may have a queue each" if workers.count > 1 else ""
    return (
        f"At {level.label} {units.percent(share)} of the requests began before one that was sent "
        f"earlier: the server does not keep their order{several}."
    )
