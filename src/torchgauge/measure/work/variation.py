"""Calls that do other work each time: counted again, for the range of their FLOPs."""

from __future__ import annotations

import contextlib
import pickle
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import torch

from torchgauge import units
from torchgauge.errors import ModelError
from torchgauge.measure.work.internals import unseen
from torchgauge.measure.work.not_called import ID, warnings_of
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.work.cost import Cost
from torchgauge.targets.hygiene.process import save_randomness

MOST_CALLS = 9
SECONDS = 1.0  # that further calls take together where none differs
LEAST_DIFFERING = 4
# CPU time in s: a call that is counted in less is counted twice without a sign that calls differ,
# since what is outside of the model (a global, a clock, a generator of its own) gives none.
LONGEST = 10.0


class Variation:
    """What may let a model's calls do other work each time, as seen in those counted so far.

    `draw_again` puts the random generators where the last call that drew left them; `progresses`:
    calls leave the model with other attributes or values than they found. `earlier_calls` are to
    run before the next one is counted, since each begins with the model as it was.
    """

    def __init__(self) -> None:
        self.draw_again: Callable[[], None] | None = None
        self.progresses = False
        self.earlier_calls = 0

    @contextlib.contextmanager
    def watched_draws(self) -> Iterator[None]:
        """Look whether a block that does not raise draws random numbers."""
        state = _random_state()
        yield
        if _random_state() != state:
            self.draw_again = save_randomness()


def _random_state() -> bytes:
    with unseen():  # the caller may have made tensors fake
        states = [torch.get_rng_state()]
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            states += torch.cuda.get_rng_state_all()
        tensors = [state.numpy() for state in states]
    return pickle.dumps((random.getstate(), np.random.get_state(), tensors))


def counted_calls(measure: Callable[[Variation], Cost]) -> Cost:
    """Return the cost of a call, with the range of FLOPs of others where they do other work.

    Others are counted if the call drew random numbers, changed the model, or took `LONGEST` at
    most, in which case a second one shows whether they differ; where there is none, a warning says
    so. What the first alone does, such as making the parameters of a lazy module, is no difference
    between calls. `measure` counts one, and notes what may let others do other work.
    """
    variation, further = Variation(), list[Cost]()
    start = time.thread_time()
    first = measure(variation)
    seconds = time.thread_time() - start
    cause = f"Counting it took {units.time(seconds)} of CPU time."
    with contextlib.ExitStack() as undo:
        undo.callback(save_randomness())
        try:
            further.extend(_further_calls(measure, variation, first, twice=seconds <= LONGEST))
        except ModelError as error:  # the first call succeeded: this is no figure's
            cause = error.message
    if not further:
        message = "One call was counted: others may do other work."
        warning = MeasurementWarning(
            id="one-call-counted", message=message, probe="cost", cause=cause
        )
        return msgspec.structs.replace(first, warnings=(*first.warnings, warning))
    works = [_work(cost) for cost in further]
    return first if all(work == works[0] for work in works) else _with_range(first, further)


def _further_calls(
    measure: Callable[[Variation], Cost], variation: Variation, first: Cost, *, twice: bool
) -> Iterator[Cost]:
    """Count calls until it shows how they differ; without a sign that they do, one if `twice`."""
    end, differ = time.perf_counter() + SECONDS, False
    work_of_first = _work(first)
    for number in range(1, MOST_CALLS + 1):
        unclear = twice and (differ or number == 1)
        if not (variation.draw_again or variation.progresses or unclear):
            return
        if number > (LEAST_DIFFERING if differ else 1) and time.perf_counter() > end:
            return
        if variation.draw_again:
            variation.draw_again()
        variation.earlier_calls = variation.progresses * number
        cost = measure(variation)
        differ |= _work(cost) != work_of_first
        yield cost


def _work(cost: Cost) -> Counter[tuple[Any, ...]]:
    """Return a call's operators with their layers; in no order, as threads run in none."""
    return Counter(
        (cost.nodes[row.node].path, *msgspec.structs.astuple(row)[1:]) for row in cost.rows
    )


def _with_range(first: Cost, further: list[Cost]) -> Cost:
    """Return the first cost with the range of FLOPs, and the modules that no call ran.

    There is no range of calls that run other layers with as many FLOPs.
    """
    lowest, *_, highest = sorted(cost.flops for cost in (first, *further))
    differing = f"{units.count(lowest)} to {units.count(highest)} FLOP"
    if lowest == highest:
        differing = f"{units.count(lowest)} FLOP each, by other operators or layers"
    left_alone = [tuple(f"{layer.path}." for layer in cost.not_called) for cost in further]
    uncalled = tuple(
        layer
        for layer in first.not_called
        if all(f"{layer.path}.".startswith(paths) for paths in left_alone)
    )
    varying = MeasurementWarning(
        id="work-varies",
        message=f"Calls do other work each time: {1 + len(further)} that were counted have "
        f"{differing}.",
        probe="cost",
        cause="Random numbers, or what earlier calls left, decide what the forward computes. "
        "Counts belong to one call, times to many: they give no rate and no bottleneck, unless "
        "they differ by less than a hundredth.",
        remedy="Fix what decides (the depth, the layers) to measure one kind of call.",
    )
    warnings = [warning for warning in first.warnings if warning.id != ID]
    return msgspec.structs.replace(
        first,
        flops_range=None if lowest == highest else (lowest, highest),
        not_called=uncalled,
        warnings=(*warnings, *warnings_of(uncalled), varying),
    )
