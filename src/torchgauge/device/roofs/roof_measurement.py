"""Micro-benchmark of a machine's roofs: matrix products, memory streams, empty calls.

torch is not imported here: the kernels are passed in, and NumPy's child has none.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from torchgauge.clock import Clock
from torchgauge.device.base import Device
from torchgauge.records.work.roofline import BandwidthPoint, Roofs

if TYPE_CHECKING:
    from torchgauge.clock import Clock
    from torchgauge.device.base import Device
    from torchgauge.device.roofs.roof_kernels import Kernels
    from torchgauge.progress import Progress


REPETITIONS = 12
MIN_REPETITIONS = 3
SECONDS = 0.003
BUDGET = 0.1
METHOD = (
    f"best of {REPETITIONS} repetitions of {SECONDS * 1e3:.0f} ms at least "
    f"({MIN_REPETITIONS} where one call takes long), after an untimed one"
)


def best_time(
    call: Callable[[], object], device: Device, clock: Clock, budget: float | None = None
) -> float:
    """Return the seconds per call of the fastest repetition.

    `budget` is the seconds of repetitions after which no more than the fewest are timed.

    What disturbs a repetition makes it slower, never faster, and each is long beside the clock's
    resolution: the shortest is the nearest to what the device can do. Where the device has a timer
    of its own, that is what counts.
    """
    call()
    once = max(_timed(call, 1, device, clock), 1e-9)
    calls = max(1, math.ceil(SECONDS / once))
    limit = BUDGET if budget is None else budget
    times: list[float] = []
    while len(times) < MIN_REPETITIONS or (len(times) < REPETITIONS and sum(times) < limit):
        times.append(_timed(call, calls, device, clock))
    return min(times) / calls


def _timed(call: Callable[[], object], calls: int, device: Device, clock: Clock) -> float:
    timer = device.timer()
    device.synchronize()
    start = clock.now()
    if timer is not None:
        timer.start()
    for _ in range(calls):
        call()
    if timer is not None:
        timer.stop()
    device.synchronize()
    return timer.elapsed() if timer is not None else (clock.now() - start) * 1e-9


SMALLEST_PRODUCT = 256
GROWTH = 1.03
SMALLEST_SET = 32 * 2**10
BEYOND_CACHE = 4
SHARE_OF_MEMORY = 4
EMPTY_CALLS_SECONDS = 0.02
HOW = (
    "Peaks: the fastest square product as sizes grow, on a CPU of torch's and NumPy's on as many "
    "threads. Bandwidth: the fastest of copy, addition "
    "and sum in float32 by working set, bytes read and written together; a smaller set is never "
    f"slower than a larger one. Dispatch: an addition of one element. Each the {METHOD}."
)


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        extent: what the record says of it.
        repetitions: seconds of repetitions of one kernel, beyond the fewest; None for the usual.
        longest_product: no larger product is tried where it would take more seconds.
        largest_product: the longest side of a product.
        sets_below_cache: of the working sets far below the last-level cache every so many.
        largest_set: bytes of the largest working set at least, or four times the cache.
        limit: seconds after which what can be left out is: further working sets and dtypes, and
            the second pass of streams.
    """

    extent: Literal["full", "quick"]
    repetitions: float | None = None
    longest_product: float = 0.5
    largest_product: int = 16384
    sets_below_cache: int = 1
    largest_set: int = 2**28
    limit: float = math.inf


FULL = Effort("full")
QUICK = Effort(
    "quick",
    repetitions=0.012,
    longest_product=0.05,
    sets_below_cache=3,
    largest_set=2**27,
    limit=1.5,
)


class Products(Protocol):
    """Source of matrix products: torch on a device, or NumPy."""

    def product(self, dtype: str, size: int) -> Callable[[], object]:
        """Return a product of two size × size matrices; RuntimeError where there is none."""


def measured(
    facts: Roofs,
    kernels: Kernels,
    device: Device,
    clock: Clock,
    *,
    progress: Progress,
    effort: Effort = FULL,
) -> Roofs:
    """Return the record `facts`, whose figures are None or empty, with the measured figures."""
    bench = _Bench(kernels, device, clock, progress, effort, clock.now() + effort.limit * 1e9)
    with kernels.quiet():
        dispatch = bench.dispatch()
        sets = working_sets(facts.last_level_cache, kernels.free_memory(), effort)
        before = bench.streams(sets, 0.0, min_sets=2)
        peaks = bench.peaks()
        # Neighbours of a virtual machine take memory bandwidth for seconds, unseen from here.
        after = bench.streams(list(before), 0.7)
    rates = {size: max(rate, after.get(size, 0.0)) for size, rate in sorted(before.items())}
    return msgspec.structs.replace(
        facts,
        peaks=peaks,
        libraries=dict.fromkeys(peaks, "torch"),
        bandwidth=_curve(list(rates), list(rates.values())),
        dispatch=dispatch,
        extent=effort.extent,
        spread=_spread(before, after),
    )


@dataclasses.dataclass(frozen=True)
class _Bench:
    """Times kernels on one device; `end` is the clock's time after which it is late."""

    kernels: Kernels
    device: Device
    clock: Clock
    progress: Progress
    effort: Effort
    end: float

    @property
    def late(self) -> bool:
        """Whether the time for what can be left out is over."""
        return self.clock.now() > self.end

    def dispatch(self) -> float:
        """Return the host's time per empty call, many queued before the device is waited for."""
        self.progress.update("dispatch", 0.0)
        call, best = self.kernels.empty(), math.inf
        for _ in range(5):
            self.device.synchronize()
            start, calls = self.clock.now(), 0
            while self.clock.now() - start < EMPTY_CALLS_SECONDS * 1e9:
                for _ in range(100):
                    call()
                calls += 100
            self.device.synchronize()
            best = min(best, (self.clock.now() - start) * 1e-9 / calls)
        return best

    def peaks(self) -> dict[str, float]:
        """Return operations per second by dtype, as far as there is time; float32 always."""
        peaks: dict[str, float] = {}
        for index, dtype in enumerate(self.kernels.dtypes):
            if index and self.late:
                break
            self.progress.update(
                f"products in {dtype}", 0.3 + 0.4 * index / len(self.kernels.dtypes)
            )
            peak = product_peak(dtype, self.kernels, self.device, self.clock, self.effort)
            # An int8 product slower than a float32 one is a fallback that no quantised layer runs.
            if peak is not None and (dtype != "int8" or peak > peaks.get("float32", 0.0)):
                peaks[dtype] = peak
        return peaks

    def streams(self, sets: list[int], done: float, *, min_sets: int = 0) -> dict[int, float]:
        """Return the bytes per second of the fastest stream through each working set.

        The largest and the smallest come first; when it is late, no more than the first `min_sets`.
        """
        rates: dict[int, float] = {}
        for size in (sets[-1], *sets[:-1]):
            if len(rates) >= min_sets and self.late:
                break
            share = done + 0.3 * len(rates) / len(sets)
            self.progress.update(f"streams through {size // 2**10} KiB", share)
            rates[size] = max(
                moved / best_time(call, self.device, self.clock, self.effort.repetitions)
                for moved, call in self.kernels.streams(size)
            )
        return rates


def _spread(before: dict[int, float], after: dict[int, float]) -> float | None:
    """Return the median over working sets of how far two passes differ; None after one pass."""
    differences = [
        1 - min(before[size], rate) / max(before[size], rate) for size, rate in after.items()
    ]
    return statistics.median(differences) if differences else None


def product_peak(
    dtype: str, kernels: Products, device: Device, clock: Clock, effort: Effort
) -> float | None:
    """Return the operations per second of the best size; None where the device has no product."""
    best = 0.0
    for size in product_sizes(effort.largest_product):
        try:
            seconds = best_time(kernels.product(dtype, size), device, clock, effort.repetitions)
        except RuntimeError:  # not implemented for the type, or no memory for the size
            break
        rate = 2 * size**3 / seconds
        if rate < best * GROWTH and size >= 8 * SMALLEST_PRODUCT:
            return max(best, rate)
        best = max(best, rate)
        if 8 * seconds > effort.longest_product:
            break
    return best or None


def product_sizes(largest: int) -> Iterator[int]:
    """Yield sides of square products: powers of two, and between each two the one half as large.

    How a library cuts a matrix into blocks makes one side 10 % faster than twice that side.
    """
    size = SMALLEST_PRODUCT
    while size <= largest:
        yield size
        yield size * 3 // 2
        size *= 2


def _curve(sets: list[int], rates: list[float]) -> tuple[BandwidthPoint, ...]:
    # Dispatch hides how fast a small set streams.
    for index in range(len(rates) - 2, -1, -1):
        rates[index] = max(rates[index], rates[index + 1])
    return tuple(
        BandwidthPoint(working_set=size, bytes_per_second=rate)
        for size, rate in zip(sets, rates, strict=True)
    )


def working_sets(cache: int | None, free: int, effort: Effort = FULL) -> list[int]:
    """Return sizes in bytes from 32 KiB, doubling, to four times the last-level cache at least.

    A quarter of the free memory is the limit. Far below the cache, where the rate hardly changes,
    an effort may leave some out.
    """
    largest = min(max(BEYOND_CACHE * (cache or 0), effort.largest_set), free // SHARE_OF_MEMORY)
    sizes = [SMALLEST_SET]
    while sizes[-1] * 2 <= largest:
        sizes.append(sizes[-1] * 2)
    if sizes[-1] < largest:
        sizes.append(largest)
    edge = (cache or largest) // 2
    far_below = [size for size in sizes if size < edge]
    return far_below[:: effort.sets_below_cache] + sizes[len(far_below) :]
