"""The memory of one call by tracemalloc, which sees every allocation of Python's and NumPy's."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

from torchgauge.compat.arrays import members
from torchgauge.compat.arrays.calling import batch_of, run
from torchgauge.compat.arrays.kept import kept
from torchgauge.compat.arrays.members import array_of, objects
from torchgauge.model.memory import Memory
from torchgauge.signals import restoring
from torchgauge.target.inputs import Inputs

METHOD = (
    "tracemalloc during the second of two calls, on top of the arrays known before it; libraries "
    "that allocate elsewhere are not seen. What outlives an operation is not told from its scratch "
    "space: both are workspace"
)


def measure(model: Any, inputs: Inputs) -> Memory:
    """Return the memory that one call needs, in bytes. Raises as `run`."""
    parameters = members.size(model)
    buffers = max(0, _bytes(model) - parameters)
    given = _bytes([*inputs.args, *inputs.kwargs.values()])
    with kept(model, inputs.args, dict(inputs.kwargs)):
        run(model, inputs)
        with _traced():
            before = tracemalloc.get_traced_memory()[0]
            outputs = run(model, inputs)
            highest = tracemalloc.get_traced_memory()[1]
            returned = min(_bytes(outputs), max(0, highest - before))
            del outputs
    own = max(0, highest - before)
    batch = batch_of(inputs)
    return Memory(
        peak=parameters + buffers + given + own,
        average=None,
        parameters=parameters,
        buffers=buffers,
        inputs=given,
        outputs=returned,
        activations=0,
        gradients=0,
        optimizer=0,
        workspace=own - returned,
        step="inference",
        device="cpu",
        method=METHOD,
        per_sample=(given + own) / batch if batch else None,
    )


def passes_peak(model: Any, inputs: Inputs, backward: Callable[[Any], None]) -> int:
    """Return the most bytes that a forward pass and `backward(outputs)` after it hold."""
    known = _bytes(model) + _bytes([*inputs.args, *inputs.kwargs.values()])
    with kept(model, inputs.args, dict(inputs.kwargs)):
        run(model, inputs)
        with _traced():
            before = tracemalloc.get_traced_memory()[0]
            backward(run(model, inputs))
            highest = tracemalloc.get_traced_memory()[1]
    return known + max(0, highest - before)


@restoring
def _traced() -> Iterator[None]:
    """Trace allocations for a block; whoever traced before goes on doing so.

    The highest point so far of that is lost: there is one, and it is needed here.
    """
    gc.collect()
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    tracemalloc.reset_peak()
    try:
        yield
    finally:
        if not running:
            tracemalloc.stop()


def _bytes(held: Any) -> int:
    """Return the bytes of all arrays that objects lead to, each memory once."""
    found = {}
    for one in objects(held):
        array = array_of(one)
        if array is not None:
            found[array.__array_interface__["data"][0]] = array.nbytes
    return sum(found.values())
