"""The memory of a model in a runtime of its own, and where it is not that of the process."""

from __future__ import annotations

import contextlib
from pathlib import Path

import onnx
import pytest
import torch
from tests.support import onnx_files

from torchgauge.device.counters import Resident
from torchgauge.errors import MeasurementError
from torchgauge.measure.memory import process_memory
from torchgauge.measure.work import energy
from torchgauge.records.onnx.graph import Graph, Initializer
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.loaders.load import load
from torchgauge.targets.placement import Placement, place
from torchgauge.targets.runtimes.runtime_model import RuntimeModel, on_host
from torchgauge.targets.runtimes.runtime_options import USUAL_RUNTIME, RuntimeOptions
from torchgauge.targets.target import Target, TargetRequest


@pytest.fixture
def placement(tmp_path):
    onnx.save(onnx_files.convolutional(), tmp_path / "small.onnx")
    return place(load(TargetRequest(str(tmp_path / "small.onnx"))))


def test_a_peak_that_cannot_be_read_is_unknown(placement, monkeypatch):
    @contextlib.contextmanager
    def unwatched():
        yield Resident(before=1000)

    monkeypatch.setattr(process_memory, "watched_resident", unwatched)
    with pytest.raises(MeasurementError) as caught:
        process_memory.measure(placement)
    assert caught.value.id == "memory-unreadable"


@pytest.mark.parametrize("measure", [process_memory.measure, energy.measure])
def test_of_another_provider_the_host_s_figures_are_not_the_model_s(placement, measure):
    assert on_host(placement.model)
    placement.model.options = RuntimeOptions(provider="cuda")
    assert not on_host(placement.model)
    with pytest.raises(MeasurementError) as caught:
        measure(placement)
    assert caught.value.id == "provider-unread"


class Doubling(RuntimeModel):
    """A runtime that doubles its input."""

    path, settings, provider, input_names = Path("m.pte"), {}, "none", ("x",)
    options = USUAL_RUNTIME

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
