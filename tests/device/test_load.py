import subprocess
import sys
import time

import psutil
import pytest

from torchgauge.device.counters import machine_times
from torchgauge.device.load import GpuReading, Load, LoadWatch, NoGpu
from torchgauge.measure.latency.step_times import load_warnings


class HotGpu:
    absent = ""
    names = {0: "Hot"}  # noqa: RUF012

    def read(self, index):
        return GpuReading(None, None, None, None, None, throttled=("power cap",))


def ids(load):
    return [warning.id for warning in load_warnings(load)]


def test_a_quiet_machine_gives_no_warning():
    assert ids(Load(other=0.02, steal=0.0, throttled=0)) == []
    assert ids(Load(other=0.0, steal=None, throttled=None)) == []


@pytest.mark.parametrize(
    ("load", "id"),
    [
        (Load(other=0.5, steal=0.0, throttled=0), "other-load"),
        (Load(other=0.0, steal=0.05, throttled=0), "steal-time"),
        (Load(other=0.0, steal=0.0, throttled=3), "throttled"),
        (Load(other=0.0, steal=0.0, throttled=0, gpu_throttled=("power cap",)), "gpu-throttled"),
    ],
)
def test_each_kind_of_load_is_named(load, id):
    assert ids(load) == [id]


@pytest.mark.thorough
def test_another_process_is_seen_and_our_own_work_is_not_taken_for_one():
    burn = "import time\nend = time.time() + 20\nwhile time.time() < end: pass"
    with subprocess.Popen([sys.executable, "-c", burn]) as other:
        try:
            time.sleep(0.3)
            watch = LoadWatch(NoGpu())
            time.sleep(0.7)
            with_other = watch.load().other
        finally:
            other.kill()
    share = 1 / (psutil.cpu_count() or 1)
    assert with_other > 0.4 * share


def test_heat_is_counted_from_the_kernels_own_counters(tmp_path):
    file = tmp_path / "cpu0" / "thermal_throttle" / "core_throttle_count"
    file.parent.mkdir(parents=True)
    file.write_text("7\n")
    watch = LoadWatch(NoGpu(), thermal=tmp_path)
    file.write_text("9\n")
    assert watch.load().throttled == 2
    file.write_text("nonsense")
    assert watch.load().throttled is None
    assert LoadWatch(NoGpu(), thermal=tmp_path / "none").load().throttled is None


def test_a_gpus_reasons_are_passed_on():
    assert LoadWatch(HotGpu()).load().gpu_throttled == ("power cap",)


def test_time_stolen_is_not_time_used():
    total, busy, steal = machine_times()
    assert 0 < busy < total
    assert steal is None or busy + steal <= total
