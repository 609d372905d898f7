"""A machine of eight cores on which nothing is wrong, as files; faults are planted one by one."""

import dataclasses

from torchgauge.device.checks.activity import Activity
from torchgauge.device.checks.readings import Gpus, GpuState, PythonState, Readings, TorchState
from torchgauge.device.cpu import SystemFiles

CPU = "sys/devices/system/cpu"
FILES = {
    "proc/cpuinfo": "processor: 0\nflags\t: fpu tsc avx2",
    "proc/loadavg": "0.05 0.10 0.10 1/300 4242",
    "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 900 kB\nSwapTotal: 500 kB\nSwapFree: 500 kB",
    "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00",
    "proc/self/cgroup": "0::/user.slice/app",
    "proc/self/maps": "7f00-7f01 r-xp 0 08:01 1 /venv/torch/lib/libgomp-a1.so.1\n" * 3,
    "sys/fs/cgroup/user.slice/app/cpu.max": "max 100000",
    "sys/class/powercap/intel-rapl:0/name": "package-0",
    "sys/class/powercap/intel-rapl:0/energy_uj": "1",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "sys/devices/system/node/node0/cpulist": "0-7",
    f"{CPU}/cpufreq/boost": "0",
    "sys/class/power_supply/AC/type": "Mains",
    "sys/class/power_supply/AC/online": "1",
}
for core in range(8):
    FILES |= {
        f"{CPU}/cpu{core}/cpufreq/scaling_governor": "performance",
        f"{CPU}/cpu{core}/cpufreq/scaling_driver": "acpi-cpufreq",
        f"{CPU}/cpu{core}/cpufreq/scaling_max_freq": "3000000",
        f"{CPU}/cpu{core}/cpufreq/cpuinfo_max_freq": "3000000",
        f"{CPU}/cpu{core}/thermal_throttle/core_throttle_count": "0",
    }
QUIET = Activity(seconds=1.0, other=0.05, steal=0.0, runnable=0, swapped=0, throttled=0)
GPU = GpuState(
    index=0,
    name="NVIDIA Fake",
    limit=700.0,
    default_limit=700.0,
    clock=1.98e9,
    highest_clock=1.98e9,
    application_clock=1.98e9,
    persistent=True,
    throttled=(),
    utilization=0.0,
    used=0,
    other_processes=0,
)
CLEAN = Readings(
    files=SystemFiles(),
    logical_cores=8,
    usable=tuple(range(8)),
    variables={"OMP_NUM_THREADS": "8"},
    python=PythonState(),
    timer=4e-8,
    torch=TorchState(threads=8),
    activity=QUIET,
    gpus=Gpus((GPU,)),
)


def machine(root, files=None, **changes):
    """Return the readings of the clean machine below `root`; a file of None is taken away."""
    for name, text in (FILES | (files or {})).items():
        if text is not None:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
    return dataclasses.replace(CLEAN, files=SystemFiles(root), **changes)
