"""The memory of a model in a runtime of its own, by what its graph stores."""

from pathlib import Path

import pytest
import torch

from torchgauge.measure.memory import process_memory
from torchgauge.records.onnx.graph import Graph, Initializer
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import Placement
from torchgauge.targets.runtimes.runtime_model import RuntimeModel
from torchgauge.targets.target import Target


class Doubling(RuntimeModel):
    """A runtime that doubles its input."""

    path, settings, provider, input_names = Path("m.pte"), {}, "none", ("x",)

    def __call__(self, x):
        return (2 * x,)

    def reopen(self, **settings):
        return self

    def with_interop(self, threads):
        return self

    def open(self):
        """Open nothing."""

    def close(self):
        """Close nothing."""


@pytest.mark.parametrize(("known", "parts"), [(None, (0, 112)), (True, (100, 12))])
def test_what_is_stored_is_parameters_where_that_is_known(known, parts):
    tensors = tuple(
        Initializer(name=name, dtype="float32", shape=(size // 4,), bytes=size, parameter=parameter)
        for name, size, parameter in (("w", 100, known), ("c", 12, known and False))
    )
    graph = Graph(
        format="executorch", name="m", opsets={}, inputs=("x",), outputs=("y",), values={},
        initializers=tensors,
    )  # fmt: skip
    model, inputs = Doubling(), Inputs(args=(torch.ones(5),))
    target = Target(model, inputs, "m.pte", "executorch", "m", graph=graph)
    placement = Placement(target, model, inputs, "cpu", "fp32", "native")
    memory = process_memory.measure(placement)
    assert (memory.parameters, memory.buffers) == parts
    assert (memory.inputs, memory.outputs) == (20, 20)
    assert sum(memory.parts.values()) == memory.peak
