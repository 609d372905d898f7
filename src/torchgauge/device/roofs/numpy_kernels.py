"""NumPy kernels that roofs are measured with: matrix products and memory streams."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec
import numpy as np

from torchgauge.clock import SystemClock
from torchgauge.device.roofs.roof_measurement import Effort, product_peak

Call = Callable[[], object]


class NumpyKernels:
    """NumPy on this machine's CPU, in the threads that its library takes."""

    def product(self, dtype: str, size: int) -> Call:
        """Return the product of two size × size matrices."""
        a, b = (np.full((size, size), 1.25).astype(dtype) for _ in range(2))
        out = np.empty_like(a)
        return lambda: np.matmul(a, b, out=out)

    def streams(self, working_set: int) -> Iterator[tuple[int, Call]]:
        """Yield (bytes read and written per call, call): a copy, an addition, a sum."""
        buffer = np.ones(max(96, working_set // 4), np.float32)
        a, b = np.split(buffer[: buffer.size // 2 * 2], 2)
        yield 8 * a.size, lambda: np.copyto(b, a)
        x, y, z = np.split(buffer[: buffer.size // 3 * 3], 3)
        yield 12 * x.size, lambda: np.add(x, y, out=z)
        yield 4 * buffer.size, lambda: np.add.reduce(buffer)


class Host:
    """The CPU without torch: calls return when they are done."""

    name = "cpu"
    asynchronous = False

    def current(self) -> contextlib.AbstractContextManager[object]:
        """Do nothing: there is one CPU."""
        return contextlib.nullcontext()

    def synchronize(self) -> None:
        """Do nothing."""

    def timer(self) -> None:
        """Return None: the host clock times CPU work."""

    def flush_cache(self) -> None:
        """Do nothing: no cold calls are needed."""


CLOCK = SystemClock()


class Products(msgspec.Struct, frozen=True):
    """A question for `answer`: the types of the products, and how much is measured."""

    dtypes: tuple[str, ...]
    effort: Effort


def answer(questions: BinaryIO, answers: BinaryIO) -> None:
    """Write the peak in FLOP/s by type, and how many cores this process kept busy meanwhile."""
    products = msgspec.msgpack.decode(questions.read(), type=Products)
    peaks = {dtype: _peak(dtype, products.effort) for dtype in products.dtypes}
    answers.write(msgspec.json.encode(peaks))


def _peak(dtype: str, effort: Effort) -> dict[str, float | None]:
    start, busy = time.perf_counter(), time.process_time()
    peak = product_peak(dtype, NumpyKernels(), Host(), SystemClock(), effort)
    seconds = time.perf_counter() - start
    return {"peak": peak, "busy_cores": (time.process_time() - busy) / seconds}
