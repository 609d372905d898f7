"""Plan capacity from a record: its service times, and what its own levels of load say of them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from torchgauge.analyze.capacity.batch_model import BatchModel
from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.analyze.capacity.capacity_plans import Planner
from torchgauge.analyze.capacity.discipline import misfit
from torchgauge.analyze.capacity.load_checks import checks, unlike
from torchgauge.analyze.capacity.server_model import ServerModel
from torchgauge.analyze.capacity.service_times import service_times
from torchgauge.analyze.capacity.simulation import Workers
from torchgauge.records.generation.generation import Generation
from torchgauge.records.profile import Profile
from torchgauge.records.serving.capacity_plan import CapacityPlan, Check
from torchgauge.records.serving.service_times import ServiceTimes
from torchgauge.records.serving.serving import Serving
from torchgauge.records.sweep import Sweep

Planned = Serving | Sweep | Generation | Profile


def plan(
    record: Planned, options: CapacityOptions, note: Callable[[str], object] = lambda _: None
) -> CapacityPlan:
    """Return the plan; `note` is called with what is simulated.

    Of a record of load, each level is simulated with its own schedule too. Where one shows that the
    server is not one queue in order, the plan is refused: it has no settings, and says why.

    Raises InputError `no-service-times`, `batch-unmeasured`, `goal-unfit`, `request-too-long`.
    """
    times = service_times(record)
    planner = Planner(times, options, note)
    all_checks: tuple[Check, ...] = ()
    reason = ""
    if isinstance(record, Serving):
        note("the levels of load")
        all_checks, reason = level_checks(record, times, options.seed)
    if reason:
        refused = planner.empty(record.target, record.environment)
        return msgspec.structs.replace(refused, refused=reason, checks=all_checks)
    planned = planner.plan(record.target, record.environment)
    return msgspec.structs.replace(planned, checks=all_checks)


def level_checks(
    serving: Serving, times: ServiceTimes, seed: int = 0, model: ServerModel | None = None
) -> tuple[tuple[Check, ...], str]:
    """Return predictions beside the open-loop levels of a record, and what they contradict.

    Without a `model` it is that of the service times by batch.

    Of a queue that grows, a percent of the service times decides how fast: its times are not
    compared. A client that was too late measured itself.
    """
    workers = Workers(times.workers, times.max_batch or 1, times.max_delay or 0.0)
    model = model or BatchModel.from_times(times)
    all_checks: list[Check] = []
    for level in serving.levels:
        late_client = level.client is not None and level.client.limited
        if level.scenario != "server" or late_client:
            continue
        reason = misfit(level, workers)
        if reason:
            return tuple(all_checks), reason
        if level.saturation is not None and level.saturation.saturated:
            continue
        all_checks += checks(model, level, workers, seed)
    return tuple(all_checks), unlike(tuple(all_checks))
