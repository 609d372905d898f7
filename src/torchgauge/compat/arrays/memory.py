"""Measures the memory of one call by tracemalloc, which sees allocations of Python and NumPy."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from torchgauge.compat.arrays.calling import batch_of, run
from torchgauge.measure.arrays import members
from torchgauge.measure.arrays.members import Array, array_of, objects, slots
from torchgauge.records.memory.memory import Memory
from torchgauge.signals import restoring
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.turn import turn


@restoring
def preserved(*roots: Any) -> Iterator[None]:
    """Run a block in evaluation mode, and restore these objects afterwards.

    A `training` flag is False meanwhile, wherever an object has one. Functions' closures and
    globals stay as they are. Other threads that measure wait meanwhile.
    """
    with turn():
        yield from _preserved(roots)


def _preserved(roots: tuple[Any, ...]) -> Iterator[None]:
    owners = [owner for root in roots for owner in objects(root)]
    saved = [(owner, _content(owner)) for owner in owners]
    arrays = [(owner, owner.copy()) for owner in owners if isinstance(owner, np.ndarray)]
    try:
        for owner in owners:
            if isinstance(_attributes(owner).get("training"), bool):
                _attributes(owner)["training"] = False
        yield
    finally:
        for owner, before in saved:
            _put_back(owner, before)
        for array, copy in arrays:
            restore(array, copy)


def restore(array: Array, before: Array) -> None:
    """Write the values back where they differ; another array's view may be read-only."""
    if array.flags.writeable and array.tobytes() != before.tobytes():
        array[...] = before


class _Content(NamedTuple):
    """The content of one object or container."""

    members: Any
    attributes: dict[str, Any]
    slotted: dict[str, Any]


def _content(owner: Any) -> _Content:
    members = None
    if isinstance(owner, dict | list):
        members = dict(owner) if isinstance(owner, dict) else list(owner)
    slotted = {name: getattr(owner, name) for name in slots(owner)}
    return _Content(members, dict(_attributes(owner)), slotted)


def _put_back(owner: Any, before: _Content) -> None:
    if isinstance(owner, dict):
        owner.clear()
        owner.update(before.members)
    elif isinstance(owner, list):
        owner[:] = before.members
    own = _attributes(owner)
    own.clear()
    own.update(before.attributes)
    for name, value in before.slotted.items():
        object.__setattr__(owner, name, value)


def _attributes(owner: Any) -> dict[str, Any]:
    attributes = getattr(owner, "__dict__", None)
    return attributes if isinstance(attributes, dict) else {}


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
