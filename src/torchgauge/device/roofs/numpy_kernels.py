"""NumPy kernels that roofs are measured with: matrix products and memory streams."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np

from torchgauge.clock import SystemClock

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
