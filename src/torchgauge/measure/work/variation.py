"""Calls that do other work each time: counted again, for the range of their FLOPs."""

from __future__ import annotations

import contextlib
import pickle
import random
import time
from collections.abc import Callable, Iterator

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


class Variation:
    """What may let a model's calls do other work each time, as seen in those counted so far.

    `draw_again` puts the random generators where the last call that drew left them; `progresses`:
    calls leave the model with other attributes or values than they found.
    """

    def __init__(self) -> None:
        self.draw_again: Callable[[], None] | None = None
        self.progresses = False
        self.counted = 0

    @property
    def earlier_calls(self) -> int:
        """How many calls run before the next one is counted, since each begins with the model."""
        return self.counted if self.progresses else 0

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

    Others are counted if the call drew random numbers, or changed the model. What the first alone
    does, such as making the parameters of a lazy module, is no difference between calls. `measure`
    counts one, and notes what may let others do other work.
    """
    variation, further = Variation(), list[Cost]()
    first = measure(variation)
    restore, end = save_randomness(), time.perf_counter() + SECONDS
    try:
        while (variation.draw_again or variation.progresses) and len(further) < MOST_CALLS:
            differ = any(cost.rows != first.rows for cost in further)
            enough = len(further) >= (LEAST_DIFFERING if differ else 1)
            if enough and time.perf_counter() > end:
                break
            if variation.draw_again:
                variation.draw_again()
            variation.counted += 1
            further.append(measure(variation))
    except ModelError:  # the first call succeeded: what a later one does not like is no figure's
        pass
    finally:
        restore()
    if all(cost.rows == further[0].rows for cost in further):
        return first
    return _with_range(first, further)


def _with_range(first: Cost, further: list[Cost]) -> Cost:
    """Return the first cost with the range of FLOPs, and the modules that no call ran."""
    flops = sorted(cost.flops for cost in (first, *further))
    left_alone = [tuple(f"{layer.path}." for layer in cost.not_called) for cost in further]
    uncalled = tuple(
        layer
        for layer in first.not_called
        if all(f"{layer.path}.".startswith(paths) for paths in left_alone)
    )
    varying = MeasurementWarning(
        id="work-varies",
        message=f"Calls do other work each time: {len(flops)} that were counted have "
        f"{units.count(flops[0])} to {units.count(flops[-1])} FLOP.",
        probe="cost",
        cause="Random numbers, or what earlier calls left in the model, decide what the forward "
        "computes. Counts belong to one call, times "
        "to many: they give no rate and no bottleneck, unless they differ by less than a "
        "hundredth.",
        remedy="Fix what decides (the depth, the layers) to measure one kind of call.",
    )
    warnings = [warning for warning in first.warnings if warning.id != ID]
    return msgspec.structs.replace(
        first,
        flops_range=(flops[0], flops[-1]),
        not_called=uncalled,
        warnings=(*warnings, *warnings_of(uncalled), varying),
    )
