"""What this machine does at most: a short micro-benchmark, kept per machine."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from torchgauge.clock import Clock, SystemClock
from torchgauge.device import calibration
from torchgauge.device.base import Device
from torchgauge.device.best_time import METHOD, best_time
from torchgauge.device.checks.load import most_other
from torchgauge.device.gpu_metrics import NoGpu
from torchgauge.device.load import LoadWatch
from torchgauge.device.roof_kernels import Kernels
from torchgauge.errors import InputError
from torchgauge.files import write_atomically
from torchgauge.model.record import Record
from torchgauge.model.roofline import BandwidthPoint, Roofs
from torchgauge.progress import Progress, Silent

SMALLEST_PRODUCT, LARGEST_PRODUCT = 256, 16384
LONGEST_PRODUCT = 0.5
GROWTH = 1.03
SMALLEST_SET = 32 * 2**10
LEAST_LARGEST_SET = 2**28
BEYOND_CACHE = 4
SHARE_OF_MEMORY = 4
EMPTY_CALLS_SECONDS = 0.02
HOW = (
    "Peaks: the fastest square product as sizes grow. Bandwidth: the fastest of copy, addition "
    "and sum in float32 by working set, bytes read and written together; a smaller set is never "
    f"slower than a larger one. Dispatch: an addition of one element. Each the {METHOD}."
)


class Kept(Record, frozen=True, kw_only=True):
    """The roofs of each machine by its key."""

    schema: str = "torchgauge.roofs/1"
    machines: dict[str, Roofs] = msgspec.field(default_factory=dict)


def roofs(
    device: str,
    *,
    refresh: bool = False,
    clock: Clock | None = None,
    progress: Progress | None = None,
    file: Path | None = None,
) -> Roofs:
    """Return the roofs of "cpu" or "cuda:0", those kept of this machine unless `refresh`.

    Measuring takes a few seconds and a buffer of a few hundred MB, which the process's peak memory
    then includes: measure memory before, or in another process. Random states, threads and
    settings stay as they were. They are measured again next time where the home cannot be written,
    or where other processes took more than a machine at rest shows.
    """
    from torchgauge.device.roof_kernels import TorchKernels
    from torchgauge.device.select import open_device

    if device == "meta":
        device = "cpu"
    known = _facts(device)
    file = file or path()
    kept = None if refresh else read(file).machines.get(known.machine)
    if kept is not None:
        return kept
    kernels = TorchKernels(device)
    opened = open_device(device)
    watch = LoadWatch(NoGpu())
    with opened.current():
        found = measured(
            known, kernels, opened, clock or SystemClock(), progress=progress or Silent()
        )
    cores = psutil.cpu_count() or 1
    found = msgspec.structs.replace(found, other=watch.load().other * cores)
    if undisturbed(found, cores):
        with contextlib.suppress(InputError):
            keep(found, file)
    return found


def known(device: str, file: Path | None = None) -> Roofs | None:
    """Return the roofs kept of this machine, or a GPU's datasheet; None where there are neither."""
    kept = read(file or path()).machines.get(_facts(device).machine)
    return datasheet(device) if kept is None else kept


def datasheet(device: str) -> Roofs | None:
    """Return what the vendor prints of a GPU; None for a CPU and for a GPU not in the table."""
    from torchgauge.device import peaks

    if not device.startswith("cuda"):
        return None
    with contextlib.suppress(InputError):
        return peaks.find(_facts(device).device)
    return None


def undisturbed(found: Roofs, cores: int) -> bool:
    """Return whether other processes left the machine alone: only such roofs are kept."""
    return (found.other or 0.0) <= most_other(cores)


def measured(
    known: Roofs, kernels: Kernels, device: Device, clock: Clock, *, progress: Progress
) -> Roofs:
    """Return the record `known` with what was measured in it; all figures None or empty before."""
    progress.start("measuring what this machine can do")
    try:
        with kernels.quiet():
            progress.update("dispatch", 0.0)
            dispatch = _dispatch(kernels, device, clock)
            sets = working_sets(known.last_level_cache, kernels.free_memory())
            before = _rates(sets, kernels, device, clock, progress, done=0.0)
            peaks = _peaks(kernels, device, clock, progress)
            # Neighbours of a virtual machine take memory bandwidth for seconds, unseen from here.
            after = _rates(sets, kernels, device, clock, progress, done=0.7)
            curve = _curve(sets, list(map(max, before, after)))
    finally:
        progress.close()
    return msgspec.structs.replace(known, peaks=peaks, bandwidth=curve, dispatch=dispatch)


def path() -> Path:
    """Return the file in which roofs are kept, beside doctor's calibration."""
    return calibration.path().with_name("roofs.json")


def read(file: Path) -> Kept:
    """Return what is kept; nothing where the file is absent, damaged or of another version."""
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return Kept()
    return kept if kept.schema == Kept().schema else Kept()


def keep(found: Roofs, file: Path) -> Path:
    """Add the roofs to those kept, in place of the machine's own. Raises `output-unwritable`."""
    machines = read(file).machines | {found.machine: found}
    return write_atomically(file, msgspec.json.encode(Kept(machines=machines)))


def _facts(device: str) -> Roofs:
    """Return what is known without measuring: the device, its cache, the key of the machine."""
    import torch

    from torchgauge.device.cpu import last_level_cache
    from torchgauge.device.environment import environment

    where = environment()
    threads = torch.get_num_threads()
    if device.startswith("cuda"):
        facts = torch.cuda.get_device_properties(device)
        name, memory = str(facts.name), int(facts.total_memory)
        cache = int(getattr(facts, "L2_cache_size", 0)) or None
    else:
        name, memory = where.machine.cpu, int(psutil.virtual_memory().total)
        cache = last_level_cache()
    told = sorted(where.settings.variables.items())
    key = (where.machine.fingerprint, device, name, threads, where.software.torch, told)
    return Roofs(
        device=name,
        source="measured",
        method=HOW,
        peaks={},
        bandwidth=(),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=hashlib.sha256(repr(key).encode()).hexdigest()[:16],
        threads=None if device.startswith("cuda") else threads,
        torch=where.software.torch,
        last_level_cache=cache,
        memory=memory,
    )


def _dispatch(kernels: Kernels, device: Device, clock: Clock) -> float:
    """Return the host's time per empty call, many queued before the device is waited for."""
    call, calls = kernels.empty(), 0
    best = 0.0
    for _ in range(5):
        device.synchronize()
        start, calls = clock.now(), 0
        while clock.now() - start < EMPTY_CALLS_SECONDS * 1e9:
            for _ in range(100):
                call()
            calls += 100
        device.synchronize()
        seconds = (clock.now() - start) * 1e-9 / calls
        best = min(best or seconds, seconds)
    return best


def _peaks(kernels: Kernels, device: Device, clock: Clock, progress: Progress) -> dict[str, float]:
    peaks: dict[str, float] = {}
    for place, dtype in enumerate(kernels.dtypes):
        progress.update(f"products in {dtype}", 0.3 + 0.4 * place / len(kernels.dtypes))
        peak = _peak(dtype, kernels, device, clock)
        # An int8 product slower than a float32 one is a fallback that no quantised layer runs.
        if peak is not None and (dtype != "int8" or peak > peaks.get("float32", 0.0)):
            peaks[dtype] = peak
    return peaks


def _peak(dtype: str, kernels: Kernels, device: Device, clock: Clock) -> float | None:
    """Return the operations per second of the best size; None where the device has no product."""
    best = 0.0
    for size in product_sizes():
        try:
            seconds = best_time(kernels.product(dtype, size), device, clock)
        except RuntimeError:  # not implemented for the type, or no memory for the size
            break
        rate = 2 * size**3 / seconds
        if rate < best * GROWTH and size >= 8 * SMALLEST_PRODUCT:
            return max(best, rate)
        best = max(best, rate)
        if 8 * seconds > LONGEST_PRODUCT:
            break
    return best or None


def product_sizes() -> Iterator[int]:
    """Yield sides of square products: powers of two, and between each two the one half as large.

    How a library cuts a matrix into blocks makes one side 10 % faster than twice that side.
    """
    size = SMALLEST_PRODUCT
    while size <= LARGEST_PRODUCT:
        yield size
        yield size * 3 // 2
        size *= 2


def _rates(
    sets: list[int],
    kernels: Kernels,
    device: Device,
    clock: Clock,
    progress: Progress,
    *,
    done: float,
) -> list[float]:
    """Return the bytes per second of the fastest stream through each working set."""
    rates = []
    for place, size in enumerate(sets):
        progress.update(f"streams through {size // 2**10} KiB", done + 0.3 * place / len(sets))
        rates.append(
            max(moved / best_time(call, device, clock) for moved, call in kernels.streams(size))
        )
    return rates


def _curve(sets: list[int], rates: list[float]) -> tuple[BandwidthPoint, ...]:
    # Dispatch hides how fast a small set streams.
    for place in range(len(rates) - 2, -1, -1):
        rates[place] = max(rates[place], rates[place + 1])
    return tuple(
        BandwidthPoint(working_set=size, bytes_per_second=rate)
        for size, rate in zip(sets, rates, strict=True)
    )


def working_sets(cache: int | None, free: int) -> list[int]:
    """Return sizes in bytes from 32 KiB, doubling, to four times the last-level cache at least.

    A quarter of the free memory is the limit.
    """
    largest = min(max(BEYOND_CACHE * (cache or 0), LEAST_LARGEST_SET), free // SHARE_OF_MEMORY)
    sizes = [SMALLEST_SET]
    while sizes[-1] * 2 <= largest:
        sizes.append(sizes[-1] * 2)
    if sizes[-1] < largest:
        sizes.append(largest)
    return sizes
