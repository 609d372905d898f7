"""From cells to the record: the front, the best cells, how rows of batches scale."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.analyze.sweep.constraints import best, front, parse
from torchgauge.analyze.sweep.scaling import scaling
from torchgauge.records.environment import Environment
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.sweep import Cell, Sweep
from torchgauge.records.target import TargetDescription
from torchgauge.sweeps.run import Run
from torchgauge.sweeps.sweep_options import SweepOptions

NOT_FINITE = "output-not-finite"


def result(
    run: Run,
    cells: Sequence[Cell],
    options: SweepOptions,
    environment: Environment,
    unknown: TargetDescription,
) -> Sweep:
    """Return the record of a run; `unknown` describes a target of which no cell ran.

    Raises InputError as `constraints.parse`.
    """
    limits, journal_warning = parse(options.where), run.journal.warning
    target = next((cell.target for cell in cells if cell.target is not None), unknown)
    return Sweep(
        target=target,
        environment=environment,
        axes=run.grid.as_texts(),
        cells=tuple(cells),
        front=front(cells),
        best=tuple(best(cells, metric, limits, environment) for metric in options.best),
        scaling=scaling(cells),
        constraints=options.where,
        repeats=options.repeats,
        executor=run.executor.name,
        duration=sum(cell.duration or 0.0 for cell in cells),
        interrupted=run.interrupted,
        warnings=(*_warnings(cells), *(() if journal_warning is None else (journal_warning,))),
    )


def _warnings(cells: Sequence[Cell]) -> list[MeasurementWarning]:
    result_warnings = []
    machines = {cell.machine for cell in cells if cell.machine}
    if len(machines) > 1:
        message = f"Cells were measured on {len(machines)} kinds of machines: times differ by that."
        result_warnings.append(
            MeasurementWarning(id="several-machines", message=message, probe="sweep")
        )
    broken = [cell for cell in cells if any(w.id == NOT_FINITE for w in cell.warnings)]
    if broken:
        labels = "; ".join(cell.settings.label for cell in broken)
        message = (
            f"Outputs hold NaN or infinities in {len(broken)} of {len(cells)} cells: {labels}."
        )
        cause = "Their figures are those of a computation that broke down, or of a mask."
        result_warnings.append(
            MeasurementWarning(id=NOT_FINITE, message=message, cause=cause, probe="sweep")
        )
    return result_warnings
