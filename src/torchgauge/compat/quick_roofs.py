"""Roofs of NumPy on this machine, measured in about a second: for models without torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from torchgauge.clock import SystemClock
from torchgauge.device.base import Device
from torchgauge.device.load import LoadWatch, NoGpu
from torchgauge.device.roofs.numpy_kernels import Call
from torchgauge.device.roofs.roof_measurement import best_time
from torchgauge.device.roofs.roofs import judged, other_cores
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import BandwidthPoint, Roofs

SETS = (2**18, 2**22, 2**27)
# Products of these types run on tuned libraries, and large ones in several threads.
TUNED = ("float32", "float64", "bfloat16", "complex64", "complex128")
TUNED_SIDES, OTHER_SIDES = (128, 256, 640), (96,)
METHOD = (
    "The fastest of some square products per dtype, and of copy, addition and sum through three "
    "working sets; each the best of some repetitions."
)
_REAL = {"complex64": "float32", "complex128": "float64"}


class Kernels(Protocol):
    """The kernels that are timed; see `device.roof_kernels.Kernels`."""

    def product(self, dtype: str, size: int) -> Call:
        """Return a product of two size × size matrices."""

    def streams(self, working_set: int) -> Iterator[tuple[int, Call]]:
        """Yield (bytes read and written per call, call)."""


_rates_by_device: dict[tuple[str, str], dict[str, float]] = {}
_other_cores_by_device: dict[tuple[str, str], float] = {}


def quick_roofs(cost: Cost, kernels: Kernels, device: Device) -> Roofs:
    """Return the device's roofs for the dtypes of this cost, measured once per process."""
    key, watch = (type(kernels).__name__, device.name), LoadWatch(NoGpu())
    device_rates = _rates_by_device.setdefault(key, {})
    before = len(device_rates)
    for size in SETS:
        if str(size) not in device_rates:
            device_rates[str(size)] = max(
                moved / best_time(call, device, SystemClock())
                for moved, call in kernels.streams(size)
            )
    for dtype in dict.fromkeys(_REAL.get(row.dtype, row.dtype) for row in cost.rows if row.dtype):
        if dtype not in device_rates:
            device_rates[dtype] = _peak(dtype, kernels, device)
    if len(device_rates) > before:
        meanwhile = other_cores(watch)
        if meanwhile is not None:
            _other_cores_by_device[key] = max(_other_cores_by_device.get(key, 0.0), meanwhile)
    rates = [device_rates[str(size)] for size in SETS]
    # A smaller set is never slower: dispatch hides how fast it streams.
    curve = [max(rates[index:]) for index in range(len(rates))]
    roofs = Roofs(
        device=device.name,
        source="measured",
        method=METHOD,
        peaks={name: rate for name, rate in device_rates.items() if not name.isdecimal() and rate},
        bandwidth=tuple(
            BandwidthPoint(working_set=size, bytes_per_second=rate)
            for size, rate in zip(SETS, curve, strict=True)
        ),
        extent="quick",
    )
    return judged(roofs, _other_cores_by_device[key])


def _peak(dtype: str, kernels: Kernels, device: Device) -> float:
    """Return the operations per second of a product; 0 where there is none of the type."""
    rates = [0.0]
    for side in TUNED_SIDES if dtype in TUNED else OTHER_SIDES:
        try:
            seconds = best_time(kernels.product(dtype, side), device, SystemClock())
        except (RuntimeError, TypeError, KeyError):
            break
        rates.append(2 * side**3 / seconds)
    return max(rates)
