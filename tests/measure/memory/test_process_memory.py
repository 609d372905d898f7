"""What is read of the host's process, where it cannot be read or does not run the model."""

from __future__ import annotations

import contextlib

import onnx
import pytest
from tests.support import onnx_files

from torchgauge.device.counters import Resident
from torchgauge.errors import MeasurementError
from torchgauge.measure.memory import process_memory
from torchgauge.measure.work import energy
from torchgauge.targets.loaders.load import load
from torchgauge.targets.placement import place
from torchgauge.targets.runtimes.runtime_model import on_host
from torchgauge.targets.runtimes.runtime_options import RuntimeOptions
from torchgauge.targets.target import TargetRequest


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
