"""Measurements of roofs that take no time, beside a load that the test says."""

import itertools

import msgspec
import pytest

from torchgauge.device.load import Load
from torchgauge.device.roofs import roof_measurement, roofs
from torchgauge.folders import STATE_VARIABLE


class Watch:
    """What others take of two cores: the next share of `loads` at each reading."""

    loads = ()

    def __init__(self, gpus):
        pass

    def load(self):
        return Load(other=next(Watch.loads), steal=None, throttled=None)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Measuring takes no time, finds more each time, and others take what `Watch.loads` says."""
    runs = []

    def measured(facts, kernels, device, clock, *, progress, effort):
        runs.append(effort.extent)
        return msgspec.structs.replace(
            facts, peaks={"float32": float(len(runs))}, extent=effort.extent
        )

    monkeypatch.setattr(roofs, "measured", measured)
    monkeypatch.setattr(roofs, "LoadWatch", Watch)
    monkeypatch.setattr(roofs, "QUICK", roof_measurement.QUICK)
    monkeypatch.setattr(roofs, "MOMENT", 0.0)
    monkeypatch.setattr(roofs, "PATIENCE", 0.05)
    monkeypatch.setattr(roofs, "_cores", lambda: 2)
    monkeypatch.setattr(Watch, "loads", itertools.repeat(0.0))
    monkeypatch.setattr(roofs, "_unwritten", {})
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    return runs
