"""What a host tells of its own spread: calibration, earlier runs, and yardsticks of both sides."""

import math

import msgspec
import numpy as np
import pytest
from tests.support.latency_runs import timed

from torchgauge.analyze.latency.run_spread import past_target
from torchgauge.api.comparisons import compare, detect_regressions
from torchgauge.device import calibration
from torchgauge.gates.host_noise import host_noise
from torchgauge.records.latency.latency import PastRun, Yardstick

KINDS = ("matmul", "copy", "python", "dispatch")


@pytest.fixture
def host(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path))


def record(log=0.0, speed=0.0, processes=3):
    """Return a run whose processes take 10 ms × e^log, on a machine slower by e^speed."""
    found = timed(*(0.01 * math.exp(log + 0.001 * number) for number in range(processes)))
    times = {kind: 1e-4 * math.exp(speed) for kind in KINDS}
    latency = msgspec.structs.replace(
        found.latency,
        yardstick=Yardstick(times=times),
        processes=tuple(
            msgspec.structs.replace(run, yardstick=times) for run in found.latency.processes
        ),
    )
    return msgspec.structs.replace(found, latency=latency)


def name_of(found):
    return past_target(found.target, found.environment, parameters=found.size.parameters)


def remembered(found, busy=False):
    calibration.remember(
        found.environment.machine.fingerprint,
        PastRun(
            target=name_of(found),
            created="",
            medians=found.latency.process_medians,
            yardstick=found.latency.yardstick.times,
            yardsticks=tuple(run.yardstick for run in found.latency.processes),
            busy=busy,
        ),
    )


def test_nothing_is_known_of_a_host_without_a_past(host):
    assert host_noise(record(), record(0.1)) is None


def test_earlier_runs_tell_the_spread_where_nobody_calibrated(host):
    for log in (-0.02, 0.02, -0.02, 0.02, -0.02):
        remembered(record(log))
    noise = host_noise(record(), record(0.1))
    assert noise.remembered
    assert noise.between == pytest.approx(0.0219, rel=0.01)
    assert noise.correction is None  # the yardsticks never moved
    change = compare(record(), record(0.1)).change_of("latency")
    # t of 4 degrees at 99 % is 4.604: a floor of 15 %.
    assert change.method == "the host's noise floor of 15%, 4 earlier runs on this host"
    assert change.judgement == "inconclusive"
    assert compare(record(), record(0.2)).change_of("latency").judgement == "worse"


def test_the_runs_compared_do_not_tell_their_own_spread(host):
    for log in (0.0, 0.5):
        remembered(record(log))
    assert host_noise(record(), record(0.5)) is None


def test_a_machine_that_was_slower_makes_no_regression(host):
    random = np.random.default_rng(0)
    for _ in range(12):
        speed = 0.2 * random.normal()
        remembered(record(speed + 0.005 * random.normal(), speed))
    old, slower_machine, slower_model = record(), record(0.4, 0.4), record(0.4)
    assert not detect_regressions(old, slower_machine)
    found = compare(old, slower_machine).change_of("latency")
    assert found.change == pytest.approx(math.expm1(0.4))
    assert abs(found.corrected) < 0.08
    assert detect_regressions(old, slower_model)


def test_other_models_and_hosts_are_not_corrected_by_anothers_past(host):
    for number in range(12):
        remembered(record(0.1 * (number % 5), 0.1 * (number % 5)))
    old, new = record(), record(0.4, 0.4)
    assert host_noise(old, new).correction is not None
    grown = msgspec.structs.replace(
        new, size=msgspec.structs.replace(new.size, parameters=new.size.parameters + 1)
    )
    assert host_noise(old, grown).correction is None
    machine = msgspec.structs.replace(new.environment.machine, cpu="Another CPU")
    moved = msgspec.structs.replace(
        new, environment=msgspec.structs.replace(new.environment, machine=machine)
    )
    assert host_noise(old, moved) is None
