"""Plan capacity from a record: its service times, and what its own levels of load say of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from torchgauge.analyze.capacity.batch_model import BatchModel
from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.analyze.capacity.capacity_plans import Planner
from torchgauge.analyze.capacity.discipline import misfit
from torchgauge.analyze.capacity.load_checks import checks, unlike
from torchgauge.analyze.capacity.server_model import ServerModel
from torchgauge.analyze.capacity.service_times import cells_of_row, service_times
from torchgauge.analyze.capacity.simulation import Workers
from torchgauge.records.generation.generation import Generation
from torchgauge.records.profile import Profile
from torchgauge.records.record import MeasurementWarning
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

    Raises InputError `no-service-times`, `row-unknown`, `row-missing`, `batch-unmeasured`,
    `goal-unfit`, `request-too-long`.
    """
    times = service_times(record, options.row)
    planner = Planner(times, options, note)
    target = record.target
    if isinstance(record, Sweep):
        target = cells_of_row(record, options.row)[0].target or target
    all_checks: tuple[Check, ...] = ()
    reason = ""
    if isinstance(record, Serving):
        note("the levels of load")
        all_checks, reason = level_checks(record, times, options.seed)
    if reason:
        refused = planner.empty(target, record.environment)
        return msgspec.structs.replace(refused, refused=reason, checks=all_checks)
    planned = planner.plan(target, record.environment)
    warnings = (*planned.warnings, *_of_other_rows(record, times, options.row))
    return msgspec.structs.replace(planned, checks=all_checks, warnings=warnings)


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
    workers = Workers(times.workers, times.max_batch or 1, times.max_delay or 0.0)
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
    reason = unlike(tuple(all_checks))
    if reason and serving.served_by.kind == "endpoint" and times.workers == 1:
        reason += " If it has several workers, load it with --workers and their number."
    return tuple(all_checks), reason
