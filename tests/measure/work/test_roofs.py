import itertools

import msgspec
import pytest
import torch
from tests.support.operator_costs import ROOFS, latency
from tests.support.roof_runs import Watch, machine  # noqa: F401 - a fixture
from torch import nn

import torchgauge as tg
from torchgauge.device.roofs import roofs as roofs_of_machine
from torchgauge.measure.work.roofs import measure
from torchgauge.progress import Silent
from torchgauge.records.record import MeasurementWarning

QUIET = latency(1e-3)
BUSY = msgspec.structs.replace(
    QUIET, warnings=(MeasurementWarning(id="other-load", message="", probe="latency"),)
)


def test_the_first_profile_measures_quickly_and_later_ones_do_not(machine):
    first, warnings = measure("cpu", None, QUIET, Silent())
    again, _ = measure("cpu", None, QUIET, Silent())
    assert machine == ["quick"]
    assert first == again == roofs_of_machine.known_roofs("cpu")
    assert first.extent == "quick"
    assert warnings == []


def test_they_can_be_left_out(machine):
    assert measure("cpu", False, QUIET, Silent()) == (None, [])
    assert machine == []


def test_what_a_busy_machine_left_is_measured_again_when_it_is_quiet(machine, monkeypatch):
    monkeypatch.setattr(Watch, "loads", itertools.repeat(0.6))
    assert measure("cpu", None, BUSY, Silent())[0].quality == "busy"
    measure("cpu", None, BUSY, Silent())
    assert machine == ["quick"]
    monkeypatch.setattr(Watch, "loads", itertools.repeat(0.0))
    assert measure("cpu", None, QUIET, Silent())[0].quality == "quiet"
    measure("cpu", None, QUIET, Silent())
    assert machine == ["quick", "quick"]


def test_asked_for_on_a_busy_machine_it_says_so(machine, monkeypatch):
    monkeypatch.setattr(Watch, "loads", itertools.repeat(0.6))
    best, (warning,) = measure("cpu", True, BUSY, Silent())
    assert best.quality == "busy"
    assert (warning.id, warning.failed) == ("roofs-busy", False)
    assert "1.20 cores" in warning.message
    assert "marked so" in warning.message


def test_an_earlier_quiet_measurement_is_still_used(machine, monkeypatch):
    quiet, warnings = measure("cpu", True, QUIET, Silent())
    assert warnings == []
    monkeypatch.setattr(Watch, "loads", itertools.repeat(0.6))
    best, (warning,) = measure("cpu", True, BUSY, Silent())
    assert best.created == quiet.created
    assert f"quiet measurement of {quiet.created[:10]}" in warning.message


@pytest.fixture
def nothing_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path))


@pytest.mark.slow
def test_by_default_a_profile_says_what_bounds_the_model(nothing_kept):
    model, x = nn.Sequential(*(nn.Linear(8, 8) for _ in range(20))), torch.ones(1, 8)
    profile = tg.profile(model, x, warmup=1, iterations=5)
    assert profile.complete, profile.warnings
    assert profile.roofline.roofs.extent == "quick"
    assert profile.bottleneck.compute_time + profile.bottleneck.memory_time > 0
    assert any("quickly" in line for line in profile.bottleneck.evidence)
    assert "measured, quick" in str(profile)
    # What is kept is used, and not measured again.
    bare = tg.profile(model, x, warmup=1, iterations=5, roofs=False, detail="summary")
    assert bare.roofline.roofs == profile.roofline.roofs


def test_without_roofs_nothing_is_measured(nothing_kept):
    profile = tg.profile(nn.Linear(4, 4), torch.ones(1, 4), iterations=2, roofs=False)
    assert profile.roofline is None
    assert profile.bottleneck.kind is None


def test_roofs_that_the_call_itself_shows_to_be_too_low_tell_nothing(nothing_kept, monkeypatch):
    low = msgspec.structs.replace(
        ROOFS, quality="busy", other=1.5, peaks={"float32": 1e3}, extent="quick"
    )
    monkeypatch.setattr(roofs_of_machine, "known_roofs", lambda device: low)
    model, x = nn.Linear(64, 64), torch.ones(8, 64)
    profile = tg.profile(model, x, warmup=1, iterations=5, roofs=False, detail="layers")
    assert profile.roofline is None
    assert profile.bottleneck.kind is None
    assert "far too low" in profile.bottleneck.evidence[0]
    assert {row.bound for row in profile.tree.rows} == {None}
