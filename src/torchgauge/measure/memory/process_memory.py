"""The memory of a model in a runtime of its own: by how much it makes the process grow."""

from __future__ import annotations

import ctypes
import gc
import sys

from torchgauge.analyze.onnx.graph_size import graph_size
from torchgauge.device.counters import watched_resident
from torchgauge.errors import MeasurementError
from torchgauge.measure.step import prepared
from torchgauge.records.memory.memory import Memory
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.inputs.tensors import nbytes
from torchgauge.targets.placement import Placement
from torchgauge.targets.runtimes.runtime_model import RuntimeModel, check_host

METHOD = (
    "growth of the process's resident set from before the file was opened, in a process that had "
    "run it before, to its highest in two calls; parameters, inputs, outputs and buffers (with "
    "constants that may be parameters) by their shapes, the rest is workspace: packed weights, the "
    "runtime's arena, what the system has not taken back"
)


def measure(placement: Placement) -> Memory:
    """Close the model, open it again and call it twice; return by how much the process grew.

    Raises what opening and calling it raise; MeasurementError `memory-unreadable`,
    `provider-unread`.
    """
    model, graph = placement.model, placement.target.graph
    check_host(model, "memory")
    assert isinstance(model, RuntimeModel)  # noqa: S101 - others have tensors that are watched
    with prepared(placement) as step:
        step()
        model.close()
        _give_back()
        with watched_resident() as process:
            model.open()
            step()
            outputs = step()
    input_bytes = sum(nbytes(tensor) for _, tensor in placement.inputs.tensors())
    output_bytes = sum(tensor.nbytes for tensor in tensors_in(outputs))
    stored = 0 if graph is None else sum(w.bytes for w in graph.initializers if not w.shared)
    size = None if graph is None else graph_size(graph)
    parameter_bytes = 0 if size is None else size.parameter_bytes
    counted = input_bytes + output_bytes + stored
    if process.peak is None or process.before is None:
        raise MeasurementError(
            "The memory of the process cannot be read here.",
            id="memory-unreadable",
            cause="The highest resident set since a moment is known on Linux alone, by /proc/self.",
            remedy="Measure it on Linux, outside of what hides /proc.",
        )
    # The system may have kept pages that were freed: what must be there was there.
    peak = max(process.peak - process.before, counted)
    return Memory(
        peak=peak,
        average=None,
        parameters=parameter_bytes,
        inputs=input_bytes,
        outputs=output_bytes,
        buffers=stored - parameter_bytes,
        activations=0,
        gradients=0,
        optimizer=0,
        workspace=peak - counted,
        step="inference",
        device=placement.device,
        method=METHOD,
        rss_before=process.before,
        rss_peak=process.peak,
    )


def _give_back() -> None:
    """Give freed memory back to the system, where its C library can."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
