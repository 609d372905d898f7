"""Each fault planted alone is found, alone; on a clean machine nothing is."""

import dataclasses
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from tests.support.fake_machine import CLEAN, CPU, GPU, QUIET, machine

from torchgauge.device.checks import activity, every, readings
from torchgauge.device.checks.activity import Consumer, Counters, between
from torchgauge.device.checks.readings import (
    Gpus,
    PythonState,
    TorchState,
    python_state,
    read_inputs,
)
from torchgauge.device.checks.threads import ranges
from torchgauge.device.counters import ProcessTimes
from torchgauge.device.cpu import SystemFiles
from torchgauge.device.environment import environment

FREQUENCY = f"{CPU}/cpu3/cpufreq"
CGROUP = "sys/fs/cgroup/user.slice"


def torch(**told):
    return {"torch": TorchState(**{"threads": 8, **told})}


def quiet_but(**what):
    return {"activity": dataclasses.replace(QUIET, **what)}


def gpu(**told):
    return {"gpus": Gpus((dataclasses.replace(GPU, **told),))}


def file(path, text):
    return {"files": {path: text}}


FAULTS = [
    (quiet_but(other=1.0), "other-load", "warning"),
    (quiet_but(other=2.0), "other-load", "serious"),
    (quiet_but(runnable=9), "run-queue", "warning"),
    (quiet_but(steal=0.02), "steal-time", "warning"),
    (quiet_but(steal=0.10), "steal-time", "serious"),
    (file(f"{CGROUP}/app/cpu.max", "400000 100000"), "cpu-quota", "serious"),
    (file(f"{CGROUP}/cpu.max", "250000 100000"), "cpu-quota", "serious"),
    (file("sys/fs/cgroup/cpu.max", "150000 100000"), "cpu-quota", "serious"),
    (
        {
            "files": {
                "proc/self/cgroup": "3:cpu,cpuacct:/docker/x\n2:memory:/y",
                "sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "400000",
                "sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000",
            }
        },
        "cpu-quota",
        "serious",
    ),
    ({**file(f"{CGROUP}/app/cpu.max", "400000 100000"), **torch(threads=4)}, "cpu-quota", "info"),
    (torch(threads=9), "threads-oversubscribed", "serious"),
    ({"variables": {"OMP_NUM_THREADS": "16"}}, "threads-variable", "warning"),
    ({"variables": {"MKL_NUM_THREADS": "9"}}, "threads-variable", "warning"),
    (torch(threads=3), "threads-few", "info"),
    (
        file("proc/self/maps", "1 /a/libgomp-a1.so.1\n2 /b/lib/libiomp5.so\n3 /b/lib/libiomp5.so"),
        "several-openmp",
        "warning",
    ),
    ({"logical_cores": 16}, "cpu-affinity", "info"),
    (file(f"{FREQUENCY}/scaling_governor", "powersave"), "governor", "serious"),
    (file(f"{FREQUENCY}/scaling_governor", "schedutil"), "governor", "warning"),
    (
        {
            "files": {
                f"{CPU}/cpu{core}/cpufreq/scaling_{name}": text
                for core in range(8)
                for name, text in (("governor", "powersave"), ("driver", "intel_pstate"))
            }
        },
        "governor",
        "warning",
    ),
    (file(f"{FREQUENCY}/scaling_max_freq", "1200000"), "clock-limited", "warning"),
    (file(f"{CPU}/cpufreq/boost", "1"), "boost", "info"),
    (file(f"{CPU}/intel_pstate/no_turbo", "0"), "boost", "info"),
    (file(f"{CPU}/cpu5/thermal_throttle/core_throttle_count", "17"), "throttled", "info"),
    (
        {
            **file(f"{CPU}/cpu5/thermal_throttle/core_throttle_count", "17"),
            **quiet_but(throttled=2),
        },
        "throttled",
        "serious",
    ),
    (file("sys/class/power_supply/AC/online", "0"), "on-battery", "warning"),
    (
        {
            "files": {
                "sys/devices/system/node/node0/cpulist": "0-3",
                "sys/devices/system/node/node1/cpulist": "4-7",
            }
        },
        "numa-unbound",
        "warning",
    ),
    (
        file("proc/meminfo", "MemTotal: 9\nMemAvailable: 8\nSwapTotal: 500 kB\nSwapFree: 400 kB"),
        "swapping",
        "info",
    ),
    (quiet_but(swapped=12), "swapping", "serious"),
    (file("proc/pressure/memory", "some avg10=4.00 avg60=0"), "memory-pressure", "warning"),
    (file("proc/pressure/memory", "some avg10=40.00 avg60=0"), "memory-pressure", "serious"),
    (
        file("proc/meminfo", "MemTotal: 1000\nMemAvailable: 40\nSwapTotal: 0 kB\nSwapFree: 0 kB"),
        "memory-low",
        "warning",
    ),
    (
        file("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"),
        "clock-source",
        "serious",
    ),
    ({"timer": 1e-2}, "timer-coarse", "warning"),
    (file("proc/cpuinfo", "flags\t: fpu hypervisor avx2"), "virtual-machine", "info"),
    ({"python": PythonState(debug_build=True)}, "python-debug", "serious"),
    ({"python": PythonState(development_mode=True)}, "python-dev-mode", "warning"),
    ({"python": PythonState(watchers=("sys.settrace (x.y)",))}, "python-traced", "serious"),
    ({"variables": {"LD_PRELOAD": "/usr/lib/libasan.so.8"}}, "sanitizer", "serious"),
    (torch(debug_build=True), "torch-debug", "serious"),
    (torch(onednn=False), "onednn-off", "warning"),
    (torch(anomaly=True), "anomaly-detection", "serious"),
    (torch(profiling=True), "profiler-on", "serious"),
    (torch(deterministic=True), "deterministic", "warning"),
    (torch(cuda=True, cudnn_benchmark=True), "cudnn-benchmark", "info"),
    (torch(cuda=True), "cudnn-benchmark", "info"),
    ({"variables": {"CUDA_LAUNCH_BLOCKING": "1"}}, "slowing-variable", "serious"),
    ({"variables": {"ONEDNN_VERBOSE": "2"}}, "slowing-variable", "warning"),
    (gpu(limit=400.0), "gpu-power-limit", "warning"),
    (gpu(throttled=("power cap",)), "gpu-throttled", "serious"),
    (gpu(other_processes=2), "gpu-shared", "warning"),
    (gpu(other_processes=1, utilization=0.5), "gpu-shared", "serious"),
    (gpu(persistent=False), "gpu-persistence", "warning"),
    (gpu(application_clock=1.2e9), "gpu-clocks", "info"),
]


def findings(now):
    return [finding for check in every.checks(now) for finding in check.findings]


def test_on_a_clean_machine_every_check_is_clear(tmp_path):
    answers = every.checks(machine(tmp_path))
    assert {check.id: check.status for check in answers} == {c.id: "clear" for c in answers}
    assert len(answers) == len(every.ALL_CHECKS) == 19
    assert all(check.observed for check in answers)


@pytest.mark.parametrize(
    ("fault", "id", "severity"), FAULTS, ids=[f"{f[1]}-{f[2]}" for f in FAULTS]
)
def test_a_planted_fault_is_found_alone(fault, id, severity, tmp_path):
    (found,) = findings(machine(tmp_path, **fault))
    assert (found.id, found.severity) == (id, severity)
    assert found.title
    assert found.evidence
    assert found.remedy


def test_a_switch_set_to_off_is_no_fault(tmp_path):
    off = {"CUDA_LAUNCH_BLOCKING": "0", "ONEDNN_VERBOSE": "", "LD_PRELOAD": "/lib/libjemalloc.so"}
    assert findings(machine(tmp_path, variables=off)) == []


def test_evidence_names_the_figures(tmp_path):
    top = (Consumer("burner", 77, 1.5), Consumer("other", 78, 0.5))
    busy = dataclasses.replace(QUIET, other=2.0, top=top)
    stat = {f"{CGROUP}/app/cpu.max": "150000 100000", f"{CGROUP}/app/cpu.stat": "nr_throttled 1234"}
    pressure = {"proc/pressure/cpu": "some avg10=12.00 avg60=1.00"}
    load, quota = findings(machine(tmp_path, files=stat | pressure, activity=busy))
    assert "burner (pid 77) 1.50, other (pid 78) 0.50" in load.evidence
    assert "12 % of 10 s" in load.evidence
    assert quota.evidence == (
        "1.5 cores' worth of time for 8 torch threads; stopped in 1,234 periods so far."
    )
    assert "set 1 threads" in quota.remedy


def test_what_a_system_does_not_tell_is_unknown_and_never_clear(tmp_path):
    bare = dataclasses.replace(
        CLEAN,
        files=SystemFiles(tmp_path),
        torch=None,
        activity=None,
        gpus=Gpus(unknown="no answer"),
        variables={},
    )
    answers = {check.id: check for check in every.checks(bare)}
    clear = {name for name, check in answers.items() if check.status == "clear"}
    assert clear == {"affinity", "python"}
    assert all(answers[name].unknown for name in set(answers) - clear)
    assert not any(check.findings for check in answers.values())


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(GPU)][2:])
def test_a_figure_that_a_gpu_does_not_tell_is_named(field, tmp_path):
    check = every.checks(machine(tmp_path, **gpu(**{field: None})))[-1]
    optional = field == "application_clock"
    assert check.status == ("clear" if optional else "unknown")
    assert optional or field.replace("_", " ") in check.unknown


@pytest.mark.parametrize("text", ["", "nonsense", "0 0", ":::", "a=b=c", "-1 100000", "9" * 400])
def test_damaged_files_break_no_check(text, tmp_path):
    from tests.support.fake_machine import FILES

    every.checks(machine(tmp_path, files=dict.fromkeys(FILES, text)))
    kept = {"proc/self/cgroup": "0::/user.slice/app"}  # so that the quota's file is read
    every.checks(machine(tmp_path, files=dict.fromkeys(FILES, text) | kept))


class FakeNvml:
    """The module: two processes on the GPU, one of them this one."""

    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        pass

    answers = {  # noqa: RUF012
        "Name": b"NVIDIA Fake",
        "EnforcedPowerLimit": 400_000,
        "PowerManagementDefaultLimit": 700_000,
        "ClockInfo": 345,
        "MaxClockInfo": 1980,
        "PersistenceMode": 0,
        "CurrentClocksThrottleReasons": 0x40 | 0x1,
        "UtilizationRates": SimpleNamespace(gpu=50),
        "MemoryInfo": SimpleNamespace(used=10**9),
        "ComputeRunningProcesses": [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=1)],
    }

    def nvmlDeviceGetCount(self):
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def __getattr__(self, name):
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)

        def ask(handle, *arguments):
            if (what := name.removeprefix("nvmlDeviceGet")) not in self.answers:
                raise self.NVMLError("Not Supported")
            return self.answers[what]

        return ask


def test_a_driver_is_read_in_si_units_and_its_faults_are_found(tmp_path):
    gpus = readings.read_gpus(FakeNvml())
    (state,) = gpus.states
    assert (state.limit, state.default_limit) == (400.0, 700.0)
    assert (state.clock, state.highest_clock) == (345e6, 1980e6)
    assert (state.other_processes, state.used, state.application_clock) == (1, 10**9, None)
    assert [finding.id for finding in findings(machine(tmp_path, gpus=gpus))] == [
        "gpu-power-limit", "gpu-throttled", "gpu-shared", "gpu-persistence",
    ]  # fmt: skip


def test_without_a_driver_there_is_no_gpu_and_a_silent_driver_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert readings.gpus(SystemFiles(tmp_path)) == Gpus()
    driver = machine(tmp_path, files={"proc/driver/nvidia/version": "NVRM 580"}).files
    assert "torchgauge-profiler[nvidia]" in readings.gpus(driver).unknown


def counters(busy, own, processes, **more):
    known = {"total": busy + 100.0, "steal": 0.0, "swapped": None, "throttled": None} | more
    return Counters(busy=busy, own=own, processes=processes, **known)


def test_activity_is_the_growth_of_counters_without_our_own():
    before = counters(
        10.0, 1.0,
        {(7, 0.0): ProcessTimes("old", 1, 5.0, 0.0), (9, 0.0): ProcessTimes("gone", 7, 40.0, 2.0)},
        total=100.0, steal=1.0, swapped=3, throttled=5,
    )  # fmt: skip
    after = counters(
        16.0, 3.0,
        {
            # Its child 9 ended after half a second more: 42 of the 42.5 seconds are old.
            (7, 0.0): ProcessTimes("old", 1, 6.0, 42.5),
            (8, 9.9): ProcessTimes("new", 1, 2.0, 0.0),
        },
        total=108.0, steal=1.4, swapped=10, throttled=5,
    )  # fmt: skip
    seen = between(before, after, cores=4)
    assert seen.seconds == 2.0
    assert seen.other == pytest.approx(2.0)  # (6 − 2) s of others in 2 s
    assert seen.steal == pytest.approx(0.05)
    assert (seen.swapped, seen.throttled) == (7, 0)
    assert seen.top == (Consumer("new", 8, 1.0), Consumer("old", 7, 0.75))


@pytest.mark.thorough
def test_a_busy_process_is_named():
    """Whatever else runs: until it had half a second of a core, however long that takes."""
    burn = [sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(burn) as one:
        try:
            before = after = activity.counters(SystemFiles())
            while _spent(after, one.pid) - _spent(before, one.pid) < 0.5:
                time.sleep(0.1)
                after = activity.counters(SystemFiles())
        finally:
            one.kill()
    alone = {key: spent for key, spent in after.processes.items() if key[0] == one.pid}
    seen = activity.between(before, dataclasses.replace(after, processes=alone), cores=1)
    assert [consumer.pid for consumer in seen.top] == [one.pid]
    assert seen.top[0].cores == pytest.approx(
        (_spent(after, one.pid) - _spent(before, one.pid)) / seen.seconds
    )
    # Ticks of 10 ms: what others had is this process's part at least, but for rounding.
    assert seen.other * seen.seconds > 0.4


def _spent(counters, pid):
    return sum(spent.own for key, spent in counters.processes.items() if key[0] == pid)


def test_our_own_threads_are_no_other_load():
    stop = threading.Event()

    def work():
        while not stop.is_set():
            pass

    thread = threading.Thread(target=work)
    thread.start()
    try:
        seen = activity.watch(SystemFiles(), seconds=0.3)
    finally:
        stop.set()
        thread.join()
    assert os.getpid() not in {consumer.pid for consumer in seen.top}


def present():
    return {finding.id for check in every.PRESENT for finding in check(read_inputs()).findings}


def test_a_real_thread_setting_is_found():
    import torch

    before = torch.get_num_threads()
    assert "threads-oversubscribed" not in present()
    torch.set_num_threads(len(read_inputs().usable) + 2)
    try:
        assert "threads-oversubscribed" in present()
        recorded = {finding.id for finding in environment().findings}
        assert "threads-oversubscribed" in recorded
    finally:
        torch.set_num_threads(before)


def test_real_switches_of_torch_are_found():
    import torch

    switched = {"anomaly-detection", "profiler-on", "deterministic", "onednn-off"}
    assert not switched & present()
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        assert switched & present() == {"anomaly-detection"}
    with torch.autograd.profiler.profile():
        assert switched & present() == {"profiler-on"}
    with torch.backends.mkldnn.flags(enabled=False):
        assert switched & present() == {"onednn-off"}
    torch.use_deterministic_algorithms(True)
    try:
        assert switched & present() == {"deterministic"}
    finally:
        torch.use_deterministic_algorithms(False)
    assert not switched & present()


def test_a_real_trace_function_is_found():
    def trace(frame, event, argument):
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        watchers = python_state().watchers
    finally:
        sys.settrace(before)
    assert any("sys.settrace" in one and "trace" in one for one in watchers)
    assert before is not None or not any("settrace" in one for one in python_state().watchers)


def test_core_lists_read_as_the_kernel_writes_them():
    assert ranges((0, 1, 2, 3, 8)) == "0-3,8"
    assert ranges((5,)) == "5"
    assert ranges((0, 2, 4, 5)) == "0,2,4-5"
