"""An NVIDIA (or ROCm) GPU through torch.cuda: work is queued, so events time it."""

from __future__ import annotations

import contextlib

import torch

FLUSH_FACTOR = 2
UNKNOWN_CACHE = 64 * 2**20


class CudaTimer:
    """Two CUDA events on a GPU's current stream."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._stop = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def start(self) -> None:
        """Record the first event."""
        self._start.record(torch.cuda.current_stream(self._index))

    def stop(self) -> None:
        """Record the second event."""
        self._stop.record(torch.cuda.current_stream(self._index))

    def elapsed(self) -> float:
        """Return the seconds between the events (their resolution is about 0.5 µs)."""
        return float(self._start.elapsed_time(self._stop)) * 1e-3


class Cuda:
    """One GPU; `name` is "cuda:INDEX"."""

    asynchronous = True

    def __init__(self, index: int) -> None:
        self.name = f"cuda:{index}"
        self.index = index
        self._scratch: torch.Tensor | None = None

    def current(self) -> contextlib.AbstractContextManager[object]:
        """Let kernels without a device of their own (Triton's) run on this GPU."""
        return torch.cuda.device(self.index)

    def synchronize(self) -> None:
        """Wait for every stream of the GPU."""
        torch.cuda.synchronize(self.index)

    def timer(self) -> CudaTimer:
        """Return a pair of CUDA events."""
        return CudaTimer(self.index)

    def flush_cache(self) -> None:
        """Overwrite a buffer twice the size of the L2 cache."""
        if self._scratch is None:
            cache = getattr(torch.cuda.get_device_properties(self.index), "L2_cache_size", 0)
            size = FLUSH_FACTOR * (cache or UNKNOWN_CACHE)
            self._scratch = torch.empty(size, dtype=torch.uint8, device=self.name)
        self._scratch.zero_()
