"""Hold a plan to a load that would show it wrong."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from torchgauge import units
from torchgauge.analyze.capacity.record_plans import level_checks
from torchgauge.analyze.capacity.token_model import TokenModel
from torchgauge.errors import InputError
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.serving.capacity_plan import CapacityPlan, PlannedSetting
from torchgauge.records.serving.serving import Serving


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
        raise _unfit("It has no setting whose queue stays finite.", "Leave --verify out.")
    if plan.discipline == "continuous" and cores is not None:
        remedy = "Give the URL of your server: --verify http://127.0.0.1:8000/v1/chat/completions"
        raise _unfit("The reference server has no continuous batching.", remedy)
    if len(plan.times.shapes) > 1:
        raise _unfit("Its requests have several lengths.", "Give one pair of --tokens.")
    if cores is None:
        return VerifyingLoad(setting, setting.workers, setting.rate)
    workers = min(setting.workers, max(1, cores - 1))
    return VerifyingLoad(setting, workers, setting.rate * workers / setting.workers)


def _nothing_shown(load: VerifyingLoad, serving: Serving) -> MeasurementWarning:
    """Return why a load holds the plan to nothing."""
    level = serving.levels[0] if serving.levels else None
    cause, remedy = "few requests were answered", "Plan for a higher rate, or see the server's log."
    if level is not None and level.client is not None and level.client.limited:
        cause = "the client sent late, so that it would measure itself"
        remedy = "Repeat it on a machine that is not busy: torchgauge doctor"
    elif level is not None and level.saturation is not None and level.saturation.saturated:
        busy = load.setting.utilization or 0.0
        cause = f"its queue grew, where the plan has workers that are {units.percent(busy)} busy"
        remedy = "The service times are not those of this server: measure them there."
    return MeasurementWarning(
        id="verify-nothing",
        message=f"The load of --verify shows nothing beside the plan: {cause}.",
        remedy=remedy,
    )


def _unfit(cause: str, remedy: str) -> InputError:
    message = "There is no load that would verify this plan."
    return InputError(message, id="verify-unfit", cause=cause, remedy=remedy)


def verified(
    plan: CapacityPlan, load: VerifyingLoad, serving: Serving, token_budget: int
) -> CapacityPlan:
    """Return the plan with predictions beside that load; refused where it shows another server."""
    times = msgspec.structs.replace(
        plan.times,
        workers=load.workers,
        max_batch=load.setting.max_batch,
        max_delay=load.setting.max_delay,
    )
    model = TokenModel.from_times(times, (), token_budget) if times.tokens else None
    checks, reason = level_checks(serving, times, plan.arrivals.seed, model)
    plan = msgspec.structs.replace(plan, checks=(*plan.checks, *checks))
    if not reason:
        warnings = () if checks else (_nothing_shown(load, serving),)
        return msgspec.structs.replace(plan, warnings=(*plan.warnings, *warnings))
    return msgspec.structs.replace(
        plan, refused=reason, needed=None, settings=(), failure=None, front=(), findings=()
    )
