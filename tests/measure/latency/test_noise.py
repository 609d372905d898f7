"""The A/A run on fake blocks, its arithmetic, and one run of real processes."""

import math
import sys

import pytest
from tests.support.fake_machine import machine
from tests.support.records import environment, profile

from torchgauge.analyze.latency.noise import between, deviation, difference, resolvable, workload
from torchgauge.device import calibration
from torchgauge.errors import MeasurementError, MissingExtraError
from torchgauge.measure.latency import noise
from torchgauge.measure.machine import doctor
from torchgauge.progress import Silent
from torchgauge.records.doctor import Diagnosis

SAID = "2 2.13.0"


class FakeClock:
    def __init__(self):
        self.time = 0

    def now(self):
        return self.time


class Blocks:
    """Blocks of `seconds` whose B is slower than A by `change` and faster again, in turns."""

    def __init__(self, clock=None, seconds=1.0, change=0.02):
        self.clock, self.seconds, self.change, self.made = clock, seconds, change, 0

    def __call__(self):
        self.made += 1
        if self.clock is not None:
            self.clock.time += round(self.seconds * 1e9)
        b = math.exp(self.change * (-1) ** self.made)
        return [1.0, b, b, 1.0], SAID


def alone():
    return lambda: 0.0


def test_a_difference_cancels_what_drifts_evenly():
    assert difference(1.0, 1.1, 1.1, 1.0) == pytest.approx(math.log(1.1))
    assert difference(1.0, 1.1, 1.1**2, 1.1**3) == pytest.approx(0.0)


def test_deviation_is_about_zero_with_its_bound():
    s_d, high = deviation([0.03, -0.04])
    assert s_d == pytest.approx(math.sqrt((0.0009 + 0.0016) / 2))
    # The 5 % quantile of chi-squared with 2 degrees of freedom is −2 ln 0.95.
    assert high == pytest.approx(math.sqrt(0.0025 / (-2 * math.log(0.95))))


def test_what_a_gate_can_tell_follows_from_the_plan_of_its_size():
    s_d = 0.01
    blocks = ((1.959964 + 1.281552) * s_d / math.log1p(resolvable(s_d))) ** 2 + 2
    assert blocks == pytest.approx(10)


@pytest.mark.parametrize(("seconds", "blocks"), [(0.1, 8), (2.0, 5), (2.8, 3), (9.0, 3)])
def test_the_budget_bounds_the_blocks(seconds, blocks):
    clock = FakeClock()
    fake = Blocks(clock, seconds)
    run = noise.run(block=fake, clock=clock, watch_load=alone)
    assert fake.made == len(run.differences) == blocks
    assert len(run.medians) == 4 * blocks
    assert run.differences[:2] == pytest.approx((-0.02, 0.02))
    assert (run.threads, run.torch) == (2, "2.13.0")


def test_earlier_runs_of_the_same_machine_sharpen_the_floor():
    run = noise.run(block=Blocks(), watch_load=alone)
    one, two = doctor.floor(run), doctor.floor(run, (run,))
    assert one.deviation == pytest.approx(two.deviation) == pytest.approx(0.02)
    assert two.blocks == 2 * one.blocks
    assert two.deviation < two.deviation_high < one.deviation_high


def test_what_is_kept_is_kept_by_machine_ten_runs_each(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path / "state"))
    run = noise.run(block=Blocks(), watch_load=alone)
    assert calibration.runs("a") == ()
    for _ in range(12):
        assert calibration.keep("a", run) == tmp_path / "state" / "calibration.json"
    calibration.keep("b", run)
    assert len(calibration.runs("a")) == 10
    assert calibration.runs("b", run) == (run,)
    import msgspec

    fewer = msgspec.structs.replace(run, threads=1)
    assert calibration.runs("b", fewer) == ()


def test_a_workload_drives_out_no_other(tmp_path, monkeypatch):
    import msgspec

    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path))
    run = noise.run(block=Blocks(), watch_load=alone)
    calibration.keep("a", run)
    for _ in range(12):
        calibration.keep("a", msgspec.structs.replace(run, workload="model.py:make"))
    kept = [one.workload for one in calibration.runs("a")]
    assert kept == [run.workload] + ["model.py:make"] * 10
    for number in range(60):
        calibration.keep("b", msgspec.structs.replace(run, workload=f"{number}"))
    assert [one.workload for one in calibration.runs("b")] == [f"{n}" for n in range(10, 60)]


def test_what_sessions_differ_by_is_what_processes_do_not_explain():
    # Means of logs 0, 0.2, 0.4: variance 0.04; within 0.02 over 2 processes: 0.01.
    sessions = [[math.exp(mean - 0.1), math.exp(mean + 0.1)] for mean in (0.0, 0.2, 0.4)]
    assert between(sessions) == pytest.approx(math.sqrt(0.04 - 0.02 / 2))
    assert between([[1.0, 2.0]] * 3) == 0.0


def test_sessions_are_counted_by_machine_and_workload(tmp_path, monkeypatch):
    import msgspec

    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path))
    run = noise.run(block=Blocks(), watch_load=alone)
    for factor in (1.0, 1.1):
        medians = tuple(factor * median for median in run.medians)
        calibration.keep("a", msgspec.structs.replace(run, medians=medians))
    assert calibration.between_sessions("a", run.workload) is None
    calibration.keep("a", run)
    found = calibration.between_sessions("a", run.workload)
    assert found.sessions == 3
    assert found.between == pytest.approx(math.log(1.1) / math.sqrt(3), rel=0.05)
    assert calibration.between_sessions("b", run.workload) is None
    for medians in ((), (0.01,), (0.0, 0.01)):  # of a file that something else wrote
        calibration.keep("a", msgspec.structs.replace(run, medians=medians))
    assert calibration.between_sessions("a", run.workload) == found


def test_a_workload_is_named_by_what_decides_its_time():
    target = profile().target
    assert workload(target) == "model.py:make 0=2x3x8x8 cpu fp32 inference"


DAMAGED = [b"", b"{", b'{"schema": "other/1"}', b"\xff", b'{"machines": 1}']


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_calibration_is_none_and_is_replaced(damage, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path))
    (tmp_path / "calibration.json").write_bytes(damage)
    assert calibration.runs("a") == ()
    run = noise.run(block=Blocks(), watch_load=alone)
    calibration.keep("a", run)
    assert calibration.runs("a") == (run,)


def test_where_it_is_kept(monkeypatch):
    monkeypatch.delenv("TORCHGAUGE_STATE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/x")
    assert str(calibration.path()) == "/x/torchgauge/calibration.json"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert str(calibration.path()) == "/h/.local/state/torchgauge/calibration.json"


def test_a_fingerprint_is_the_hardwares_alone():
    import msgspec

    machine = environment().machine
    replace = msgspec.structs.replace
    assert replace(machine, system="Linux 7").fingerprint == machine.fingerprint
    assert replace(machine, memory=machine.memory + 4096).fingerprint == machine.fingerprint
    others = [
        replace(machine, cpu="B"),
        replace(machine, usable_cores=1),
        replace(machine, cpu_quota=2.0),
        replace(machine, memory=2 * machine.memory),
    ]
    assert len({other.fingerprint for other in [machine, *others]}) == 5


@pytest.fixture
def quiet(monkeypatch, tmp_path):
    """A machine where nobody else works, whatever this one does."""
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(noise, "watch_others", alone)
    clean = machine(tmp_path / "root")
    monkeypatch.setattr(doctor, "examine", lambda files: doctor_checks(clean))
    return tmp_path


def doctor_checks(readings):
    from torchgauge.device.checks import every

    return every.checks(readings)


def test_a_quiet_machine_is_healthy_and_its_floor_is_kept(quiet):
    found = doctor.diagnose(block=Blocks(change=0.002))
    assert found.findings == ()
    assert found.healthy
    assert found.noise.deviation == pytest.approx(0.002)
    assert found.noise.kept_in == str(quiet / "state" / "calibration.json")
    assert calibration.runs(found.fingerprint) == (found.noise.run,)
    again = doctor.diagnose(block=Blocks(change=0.002))
    assert again.noise.blocks == 2 * found.noise.blocks


@pytest.mark.parametrize(("change", "severity"), [(0.02, "warning"), (0.2, "serious")])
def test_scatter_is_found(quiet, change, severity):
    (finding,) = doctor.diagnose(block=Blocks(change=change)).findings
    assert (finding.id, finding.severity) == ("noise-floor", severity)


def test_a_floor_measured_beside_other_work_is_not_kept(quiet, monkeypatch):
    monkeypatch.setattr(noise, "watch_others", lambda: lambda: 99.0)
    found = doctor.diagnose(block=Blocks(change=0.002))
    assert [finding.id for finding in found.findings] == ["calibration-disturbed"]
    assert found.noise.kept_in == ""
    assert calibration.runs(found.fingerprint) == ()


def test_a_home_that_cannot_be_written_is_no_failure(quiet, monkeypatch):
    (quiet / "file").write_text("")  # root may write anywhere but below a file
    monkeypatch.setenv("TORCHGAUGE_STATE", str(quiet / "file" / "state"))
    found = doctor.diagnose(block=Blocks(change=0.002))
    (finding,) = found.findings
    assert finding.id == "calibration-not-kept"
    assert "TORCHGAUGE_STATE" in finding.remedy
    assert found.noise.deviation == pytest.approx(0.002)
    assert found.healthy


def test_quick_leaves_it_out_and_says_so(quiet):
    blocks = Blocks()
    found = doctor.diagnose(quick=True, block=blocks)
    assert (found.noise, blocks.made) == (None, 0)
    assert found.checks[-1].status == "unknown"
    assert "--quick" in found.checks[-1].unknown


def test_a_process_that_dies_leaves_the_check_unknown(quiet, monkeypatch, tmp_path):
    child = tmp_path / "child.py"
    child.write_text("import sys; sys.exit(3)")
    monkeypatch.setattr(noise, "CHILD", child)
    with pytest.raises(MeasurementError, match="code 3"):
        noise.run(watch_load=alone)
    found = doctor.diagnose()
    assert found.noise is None
    assert "code 3" in found.checks[-1].unknown


def test_without_torch_there_is_no_run(quiet, monkeypatch):
    monkeypatch.setattr(noise.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError):
        noise.run(block=Blocks())
    found = doctor.diagnose()
    assert "not installed" in found.checks[-1].unknown


@pytest.mark.slow
def test_real_processes_are_timed_in_blocks(monkeypatch):
    monkeypatch.setattr(noise, "SECONDS", 0.02)
    medians, said = noise.fresh_block()
    assert len(medians) == 4
    assert all(0 < median < 10 for median in medians)
    threads, version = said.split()
    assert int(threads) >= 1
    assert version == sys.modules["torch"].__version__ if "torch" in sys.modules else version


def test_a_diagnosis_is_read_back_from_its_json(quiet):
    import msgspec

    found = doctor.diagnose(block=Blocks(change=0.2), progress=Silent())
    path = found.save(quiet / "diagnosis.json")
    again = msgspec.json.decode(path.read_bytes(), type=Diagnosis)
    assert again == found
    assert again.schema == "torchgauge.diagnosis/1"
