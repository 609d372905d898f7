"""The time of a call of any callable, by the sampling and the statistics of every latency."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgauge.analyze.latency.latency import combine
from torchgauge.clock import Clock, SystemClock, resolution
from torchgauge.compat.arrays.calling import call_of, run, translated
from torchgauge.compat.arrays.kept import preserved, restore
from torchgauge.forks import PASSING
from torchgauge.measure.arrays.members import Array, objects
from torchgauge.measure.latency.latency_options import SamplingPlan
from torchgauge.measure.latency.sampling import Timing, sample
from torchgauge.records.latency.latency import Latency
from torchgauge.targets.deferred import Finishing
from torchgauge.targets.inputs.inputs import Inputs


def measure(
    model: Any, inputs: Inputs, plan: SamplingPlan, *, clock: Clock | None = None
) -> Latency:
    """Return the time of a call, in seconds.

    Inputs that a call changes are put back before the next one, outside of what is timed. Raises as
    `run`.
    """
    clock = clock or SystemClock()
    now, call, finishing = clock.now, call_of(model), Finishing()
    args, kwargs = inputs.args, dict(inputs.kwargs)
    arrays = [value for value in objects([args, kwargs]) if isinstance(value, np.ndarray)]
    copies = [value.copy() for value in arrays]
    with preserved(model, args, kwargs):
        run(model, inputs)  # what it raises is said once, and well
        pairs = [pair for pair in zip(arrays, copies, strict=True) if _differ(*pair)]

        def timed() -> Timing:
            for array, before in pairs:
                restore(array, before)
            start = now()
            try:  # which costs a call that succeeds nothing
                outputs = finishing(call(*args, **kwargs))
            except PASSING:
                raise
            except BaseException as error:  # the user's code may raise anything
                raise translated(error) from error
            end = now()
            del outputs  # freed outside the timed region: a caller would still hold them
            return Timing(end - start)

        latency_run = sample(timed, clock, plan, clock_resolution=resolution(clock))
    return combine([latency_run], target_rel_error=plan.target_rel_error)


def _differ(array: Array, before: Array) -> bool:
    return array.tobytes() != before.tobytes()
