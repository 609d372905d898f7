"""Hold a plan to a load that would show it wrong."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from torchgauge import units
from torchgauge.analyze.capacity.discipline import rejected
from torchgauge.analyze.capacity.load_checks import FAR_OF_PLAN, unlike
from torchgauge.analyze.capacity.record_plans import level_checks
from torchgauge.analyze.capacity.token_model import TokenModel
from torchgauge.errors import InputError
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.serving.capacity_plan import CapacityPlan, PlannedSetting
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.serving import Serving

UNFIT = "verify-unfit"
# Fuller workers need longer than a load of seconds to show that they keep up.
FULL = 0.9


class VerifyingLoad(NamedTuple):
    """The load that a plan is held to: as many workers as run here, each as busy as planned."""

    setting: PlannedSetting
    workers: int
    rate: float


def verifying_load(plan: CapacityPlan, cores: int | None) -> VerifyingLoad:
    """Return the load to run on a machine with `cores`; one is left to who sends.

    Fewer workers have their share of the rate, and a prediction of their own. An endpoint (`cores`
    None) has those that were planned. Raises InputError `verify-unfit` for a plan without a stable
    setting, and of continuous batching for requests of several lengths or a target.
    """
    setting = plan.needed or next((s for s in plan.settings if s.stable), None)
    if setting is None:
        raise unfit("It has no setting whose queue stays finite.", "Leave --verify out.")
    if plan.discipline == "continuous" and cores is not None:
        remedy = "Give the URL of your server: --verify http://127.0.0.1:8000/v1/chat/completions"
        raise unfit("The reference server has no continuous batching.", remedy)
    if len(plan.times.shapes) > 1:
        raise unfit("Its requests have several lengths.", "Give one pair of --tokens.")
    if cores is None:
        return VerifyingLoad(setting, setting.workers, setting.rate)
    workers = min(setting.workers, max(1, cores - 1))
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
