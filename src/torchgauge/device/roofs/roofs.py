"""Roofs of this machine: measured once, in quiet moments, and stored per machine."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import subprocess
import time
from pathlib import Path

import msgspec

from torchgauge.analyze.work.roof_quality import combined, disturbed, faster_products
from torchgauge.clock import SystemClock
from torchgauge.device import calibration
from torchgauge.device.checks.every import most_other
from torchgauge.device.counters import logical_cores
from torchgauge.device.load import LoadWatch, NoGpu
from torchgauge.device.roofs.roof_measurement import FULL, HOW, QUICK, Effort, measured
from torchgauge.errors import InputError
from torchgauge.files import write_atomically
from torchgauge.progress import Progress, Silent
from torchgauge.records.record import Record
from torchgauge.records.work.roofline import Roofs
from torchgauge.workers import calling, worker

# A full measurement beside other work is repeated in quiet moments that begin within this time.
PATIENCE = 20.0
MOMENT = 0.2
# NumPy's products are left out where a measurement took so many times its limit.
SLACK = 1.5

PRODUCTS = "torchgauge.device.roofs.numpy_kernels:answer"
DTYPES = ("float32", "float64")
# What the usual libraries read when they are loaded.
VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
# Cores that a product keeps busy, over the threads allowed: more is another number of threads.
MOST_BUSY = 1.1
LONGEST = 30.0

# Roofs of this process, where the file cannot be written.
_unwritten: dict[str, Roofs] = {}


def refreshed(device: str, *, progress: Progress | None = None, file: Path | None = None) -> Roofs:
    """Measure the roofs of "cpu" or "cuda:0" in full and keep them; return what was measured now.

    Measuring takes some ten seconds, and a buffer of a few hundred MB, which the process's peak
    memory then includes: measure memory before. Beside other work it is repeated in quiet moments,
    within `PATIENCE` seconds; the faster of each figure counts. What is kept is never replaced by
    a worse measurement: `known_roofs` returns the best. Random states, threads and settings stay
    as they were; where the home cannot be written, they are kept for this process.
    """
    progress = progress or Silent()
    latest = _measured(device, FULL, progress)
    end = time.monotonic() + PATIENCE
    while disturbed(latest) and _quiet_moment(end, progress):
        latest = combined(latest, _measured(device, FULL, progress))
    store(latest, file or roofs_file())
    return latest


def quick(device: str, *, progress: Progress | None = None, file: Path | None = None) -> Roofs:
    """Measure fewer sizes in a few seconds, keep that, and return it."""
    latest = _measured(device, QUICK, progress or Silent())
    store(latest, file or roofs_file())
    return latest


def known_roofs(device: str, file: Path | None = None) -> Roofs | None:
    """Return the roofs kept of this machine, or a GPU's datasheet; None where there are neither."""
    best = stored(_facts(device).machine, file or roofs_file())
    return datasheet(device) if best is None else best


def datasheet(device: str) -> Roofs | None:
    """Return what the vendor prints of a GPU; None for a CPU and for a GPU not in the table."""
    from torchgauge.device.roofs import peaks

    if not device.startswith("cuda"):
        return None
    with contextlib.suppress(InputError):
        return peaks.find(_facts(device).device)
    return None


def judged(latest: Roofs, other: float | None) -> Roofs:
    """Return the roofs with the cores' worth of time that others took while they were measured."""
    quality = None if other is None else "quiet" if other <= most_other(_cores()) else "busy"
    return msgspec.structs.replace(latest, other=other, quality=quality)


def other_cores(watch: LoadWatch) -> float | None:
    """Return the cores' worth of time that others took since the watch began, host included."""
    load = watch.load()
    if load.other is None:
        return None
    return (load.other + (load.steal or 0.0)) * _cores()


def _measured(device: str, effort: Effort, progress: Progress) -> Roofs:
    """Return one measurement with how good it is."""
    from torchgauge.device.roofs.roof_kernels import TorchKernels
    from torchgauge.device.select import open_device

    opened, clock, begin = open_device(device), SystemClock(), time.monotonic()
    watch = LoadWatch(NoGpu())
    with opened.current():
        latest = measured(
            _facts(device), TorchKernels(device), opened, clock, progress=progress, effort=effort
        )
    latest = judged(latest, other_cores(watch))
    late = time.monotonic() - begin > SLACK * effort.limit
    if latest.threads is None or late:  # of a GPU, or of a machine too busy to start a process
        return latest
    progress.update("NumPy's products", 1.0)
    peaks, libraries = faster_products(latest, _numpy_roofs(latest, effort))
    return msgspec.structs.replace(latest, peaks=peaks, libraries=libraries)


def _numpy_roofs(latest: Roofs, effort: Effort) -> Roofs:
    """Return the roofs with the peaks of NumPy's products on as many threads."""
    peaks = numpy_peaks(latest.threads or 1, effort)
    return msgspec.structs.replace(latest, peaks=peaks, libraries=dict.fromkeys(peaks, "numpy"))


def _quiet_moment(end: float, progress: Progress) -> bool:
    """Wait for a moment without other work; False where none came before `end`."""
    while time.monotonic() < end:
        watch = LoadWatch(NoGpu())
        time.sleep(MOMENT)
        other = other_cores(watch)
        if other is None or other <= most_other(_cores()):
            return True
        progress.update(f"waiting for a quiet moment: others take {other:.1f} of {_cores()} cores")
    return False


def _cores() -> int:
    return logical_cores()


def _facts(device: str) -> Roofs:
    """Return what is known without measuring: the device, its cache, the key of the machine."""
    import torch

    from torchgauge.device.cpu import last_level_cache
    from torchgauge.device.environment import environment

    host = environment()
    threads = torch.get_num_threads()
    if device.startswith("cuda"):
        facts = torch.cuda.get_device_properties(device)
        name: str = str(facts.name)
        memory: int | None = int(facts.total_memory)
        cache = int(getattr(facts, "L2_cache_size", 0)) or None
    else:
        name, memory = host.machine.cpu, host.machine.memory
        cache = last_level_cache()
    set_variables = sorted(host.settings.variables.items())
    key = (host.machine.fingerprint, device, name, threads, host.software.torch, set_variables)
    return Roofs(
        device=name,
        source="measured",
        method=HOW,
        peaks={},
        bandwidth=(),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=hashlib.sha256(repr(key).encode()).hexdigest()[:16],
        threads=None if device.startswith("cuda") else threads,
        torch=host.software.torch,
        last_level_cache=cache,
        memory=memory,
    )


def numpy_peaks(threads: int, effort: Effort) -> dict[str, float]:
    """Return FLOP/s of NumPy's products by dtype on at most `threads` threads.

    Empty where the process failed, or where its BLAS kept more cores busy than it may.
    """
    question = msgspec.msgpack.encode({"dtypes": DTYPES, "effort": effort})
    try:
        with worker(*calling(PRODUCTS), variables=dict.fromkeys(VARIABLES, str(threads))) as child:
            output, _ = child.communicate(question, LONGEST)
        if child.returncode:
            return {}
        answer = json.loads(output)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return {
        dtype: product["peak"]
        for dtype, product in answer.items()
        if product["peak"] and product["busy_cores"] <= MOST_BUSY * threads
    }


class StoredRoofs(Record, frozen=True, kw_only=True):
    """The roofs of each machine by its key."""

    schema: str = "torchgauge.roofs/1"
    machines: dict[str, Roofs] = msgspec.field(default_factory=dict)


def roofs_file() -> Path:
    """Return the file in which roofs are kept, beside doctor's calibration."""
    return calibration.path().with_name("roofs.json")


def stored(machine: str, file: Path) -> Roofs | None:
    """Return the roofs kept under a machine's key, None where there are none."""
    return _unwritten.get(machine) or calibration.read(file, StoredRoofs).machines.get(machine)


def store(latest: Roofs, file: Path) -> Roofs:
    """Combine the roofs with those kept of their machine, and return what is kept now.

    Where the file cannot be written, it is kept for this process.
    """
    now = combined(stored(latest.machine, file), latest)
    machines = calibration.read(file, StoredRoofs).machines | {latest.machine: now}
    try:
        write_atomically(file, msgspec.json.encode(StoredRoofs(machines=machines)))
    except InputError:
        _unwritten[latest.machine] = now
    else:
        _unwritten.pop(latest.machine, None)
    return now
