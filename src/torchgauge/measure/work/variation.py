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
# Operator calls, and FLOPs on tensors with values, of a call that is counted twice without a sign
# that calls differ: what is outside of the model (a global, a clock, a generator) gives none.
FEW_CALLS, FEW_FLOPS = 5_000, 10**10


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

    Others are counted if the call drew random numbers, changed the model, or is short, in which
    case a second one shows whether they differ. What the first alone does, such as making the
    parameters of a lazy module, is no difference between calls. `measure` counts one, and notes
    what may let others do other work.
    """
    variation, further = Variation(), list[Cost]()
    first = measure(variation)
    computed = first.flops if first.counted_on not in ("meta", "fake") else 0
    short = sum(row.calls for row in first.rows) <= FEW_CALLS and computed <= FEW_FLOPS
    work_of_first, works = _work(first), list[Counter[tuple[Any, ...]]]()
    end = time.perf_counter() + SECONDS
    with contextlib.ExitStack() as undo, contextlib.suppress(ModelError):
        # The first call succeeded: what a later one does not like is no figure's.
        undo.callback(save_randomness())
        while len(further) < MOST_CALLS:
            differ = any(work != work_of_first for work in works)
            unclear = short and (differ or not further)
            if not (variation.draw_again or variation.progresses or unclear):
                break
            enough = len(further) >= (LEAST_DIFFERING if differ else 1)
            if enough and time.perf_counter() > end:
                break
            if variation.draw_again:
                variation.draw_again()
            variation.earlier_calls = variation.progresses * (1 + len(further))
            further.append(measure(variation))
            works.append(_work(further[-1]))
    return first if all(work == works[0] for work in works) else _with_range(first, further)


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
