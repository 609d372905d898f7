"""The size probe of a profile: before the model runs, and of lazy layers after it."""

from __future__ import annotations

import dataclasses

from torchgauge import units
from torchgauge.measure.derived import no_module, no_parameters
from torchgauge.measure.runner import Runner
from torchgauge.measure.work.size import measure, size_of
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.work.size import Size
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.placement import Placement


def measured(placement: Placement, runner: Runner) -> Size | None:
    """Return the size of a target before it runs; None, with a warning, where it is unknown."""
    target = dataclasses.replace(placement.target, model=placement.model)
    if target.graph is None and module_of(placement.model) is None:
        runner.warnings.append(no_module(target))
        return None
    size = runner.attempt("size", lambda: size_of(target))
    if size is None and target.graph is not None:
        runner.warnings.append(no_parameters(target))
    if size is not None:
        runner.progress.keep(f"{units.elements(size.parameters, 3)} parameters")
    return size


def after_call(size: Size | None, placement: Placement, runner: Runner) -> Size | None:
    """Return the size with the parameters that lazy layers got in the first call."""
    if size is None or not size.uninitialized:
        return size
    later_size = runner.attempt("size", lambda: measure(placement.model))
    if later_size is None or later_size.uninitialized:
        return size
    runner.warnings.append(
        MeasurementWarning(
            id="size-after-call",
            message="Lazy layers got their shapes in the first call: the size is that after it.",
            probe="size",
        )
    )
    return later_size
