"""Measures the memory of one call by tracemalloc, which sees allocations of Python and NumPy."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

from torchgauge.compat.arrays.calling import batch_of, run
from torchgauge.compat.arrays.kept import preserved
from torchgauge.measure.arrays import members
from torchgauge.measure.arrays.members import array_of, objects
from torchgauge.records.memory.memory import Memory
from torchgauge.signals import restoring
from torchgauge.targets.inputs.inputs import Inputs

METHOD = (
    "tracemalloc during the second of two calls, on top of the arrays known before it; libraries "
    "that allocate elsewhere are not seen. Memory that outlives an operation is not separated from "
    "its scratch space: both are workspace"
)


def measure(model: Any, inputs: Inputs) -> Memory:
    """Return the memory that one call needs, in bytes. Raises as `run`."""
    parameters = members.size(model)
    buffers = max(0, _bytes(model) - parameters)
    input_bytes = _bytes([*inputs.args, *inputs.kwargs.values()])
    with preserved(model, inputs.args, dict(inputs.kwargs)):
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
        peak=parameters + buffers + input_bytes + own,
        average=None,
        parameters=parameters,
        buffers=buffers,
        inputs=input_bytes,
        outputs=returned,
        activations=0,
        gradients=0,
        optimizer=0,
        workspace=own - returned,
        step="inference",
        device="cpu",
        method=METHOD,
        per_sample=(input_bytes + own) / batch if batch else None,
    )


def passes_peak(model: Any, inputs: Inputs, backward: Callable[[Any], None]) -> int:
    """Return the most bytes that a forward pass and `backward(outputs)` after it hold."""
    held_bytes = _bytes(model) + _bytes([*inputs.args, *inputs.kwargs.values()])
    with preserved(model, inputs.args, dict(inputs.kwargs)):
        run(model, inputs)
        with _traced():
            before = tracemalloc.get_traced_memory()[0]
            backward(run(model, inputs))
            highest = tracemalloc.get_traced_memory()[1]
    return held_bytes + max(0, highest - before)


@restoring
def _traced() -> Iterator[None]:
    """Trace allocations for a block; tracing that ran before goes on.

    Its peak so far is lost: tracemalloc has only one, which is reset here.
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


def _bytes(root: Any) -> int:
    """Return the bytes of all arrays that objects lead to, each memory once."""
    by_address = {}
    for value in objects(root):
        array = array_of(value)
        if array is not None:
            by_address[array.__array_interface__["data"][0]] = array.nbytes
    return sum(by_address.values())
