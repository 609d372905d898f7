"""Hold a plan to a load that would show it wrong."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from torchgauge.analyze.capacity.record_plans import level_checks
from torchgauge.errors import InputError
from torchgauge.records.serving.capacity_plan import CapacityPlan, PlannedSetting
from torchgauge.records.serving.serving import Serving


class VerifyingLoad(NamedTuple):
    """The load that a plan is held to: as many workers as run here, each as busy as planned."""

    setting: PlannedSetting
    workers: int
    rate: float


def verifying_load(plan: CapacityPlan, cores: int) -> VerifyingLoad:
    """Return the load to run on a machine with `cores`; one is left to who sends.

    Fewer workers have their share of the rate, and a prediction of their own. Raises InputError
    `verify-unfit` for a plan without a stable setting, and of continuous batching.
    """
    setting = plan.needed or next((s for s in plan.settings if s.stable), None)
    if setting is None or plan.discipline == "continuous":
        raise InputError(
            "There is no load that would verify this plan.",
            id="verify-unfit",
            cause="It has no setting whose queue stays finite."
            if setting is None
            else "The reference server has no continuous batching.",
            remedy="Leave --verify out.",
        )
    workers = min(setting.workers, max(1, cores - 1))
    return VerifyingLoad(setting, workers, setting.rate * workers / setting.workers)


def verified(plan: CapacityPlan, load: VerifyingLoad, serving: Serving) -> CapacityPlan:
    """Return the plan with predictions beside that load; refused where it shows another server."""
    times = msgspec.structs.replace(
        plan.times,
        workers=load.workers,
        max_batch=load.setting.max_batch,
        max_delay=load.setting.max_delay,
    )
    checks, reason = level_checks(serving, times, plan.arrivals.seed)
    plan = msgspec.structs.replace(plan, checks=(*plan.checks, *checks))
    if not reason:
        return plan
    return msgspec.structs.replace(
        plan, refused=reason, needed=None, settings=(), failure=None, front=(), findings=()
    )
