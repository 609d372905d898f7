"""torch kernels that roofs are measured with: matrix products, memory streams, an empty call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

import torch

from torchgauge import torch_private
from torchgauge.device.counters import memory_available
from torchgauge.device.settings import tf32

Call = Callable[[], object]

# Elements of a cache line, so that no part begins within one.
_ALIGNED = 16
# Bytes assumed to be free where the system does not report any.
LEAST_MEMORY = 1 << 30
_DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
    "int8": torch.int8,
}


class Kernels(Protocol):
    """Kernels that `roofs` runs on a device; memory is freed when no call is referenced."""

    dtypes: tuple[str, ...]
    """Dtypes that products are measured in, float32 first."""

    def product(self, dtype: str, size: int) -> Call:
        """Return a product of two size × size matrices; RuntimeError where there is none."""

    def streams(self, working_set: int) -> Iterator[tuple[int, Call]]:
        """Yield (bytes read and written per call, call), each on `size` bytes in all."""

    def empty(self) -> Call:
        """Return an operator call that does next to nothing."""

    def free_memory(self) -> int:
        """Return the bytes that could be allocated now."""

    def quiet(self) -> contextlib.AbstractContextManager[object]:
        """Run a block without gradients and autocast, and put back what it changed."""


class TorchKernels:
    """torch's operators on one device ("cpu", "cuda:0")."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.on_gpu = device.startswith("cuda")
        self.dtypes = tuple(name for name in _DTYPES if name != "tf32" or self.on_gpu)
        # A generator of its own: the process's random numbers stay as they were.
        self._random = torch.Generator(device).manual_seed(0)

    def product(self, dtype: str, size: int) -> Call:
        """Return a square product; int8 by `_int_mm`, which sums in int32."""
        element = _DTYPES[dtype]
        # Random operands: a GPU multiplies zeros and ones faster, since it needs less power.
        a, b = (self._operand(size).to(element) for _ in range(2))
        if dtype == "int8":
            return lambda: torch_private.int8_product(a, b)
        out = torch.empty_like(a)

        def run() -> None:
            torch.mm(a, b, out=out)

        if dtype not in ("float32", "tf32"):
            return run

        def rounded() -> None:
            with tf32(allowed=dtype == "tf32"):
                torch.mm(a, b, out=out)

        return rounded

    def _operand(self, size: int) -> torch.Tensor:
        values = torch.rand(
            size, size, generator=self._random, device=self.device, dtype=torch.float32
        )
        return values.mul_(8).sub_(4)

    def streams(self, working_set: int) -> Iterator[tuple[int, Call]]:
        """Yield a copy, an addition and a sum, in float32, all in one buffer."""
        buffer = torch.ones(max(96, working_set // 4), device=self.device, dtype=torch.float32)

        def parts(count: int) -> tuple[torch.Tensor, ...]:
            size = buffer.numel() // count // _ALIGNED * _ALIGNED
            return torch.split(buffer[: size * count], size)

        a, b = parts(2)
        yield 8 * a.numel(), lambda: b.copy_(a)
        x, y, z = parts(3)
        yield 12 * x.numel(), lambda: torch.add(x, y, out=z)
        yield 4 * buffer.numel(), lambda: torch.sum(buffer)

    def empty(self) -> Call:
        """Return the addition of two tensors of one element."""
        tensor = torch.ones(1, device=self.device, dtype=torch.float32)
        return lambda: torch.add(tensor, tensor)

    def free_memory(self) -> int:
        """Return what the system, or the GPU's driver, says is available."""
        if self.on_gpu:
            return int(torch.cuda.mem_get_info(self.device)[0])
        return memory_available() or LEAST_MEMORY

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Leave gradients and autocast out; give the GPU's memory back to its driver afterwards."""
        kind = self.device.partition(":")[0]
        try:
            with torch.inference_mode(), torch.autocast(kind, enabled=False):
                yield
        finally:
            if self.on_gpu:
                torch.cuda.empty_cache()
