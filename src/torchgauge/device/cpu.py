"""The CPU: calls return when they are done, so the host clock is the device's clock."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNKNOWN_CACHE = 64 * 2**20
FLUSH_FACTOR = 2


def last_level_cache(root: Path = CACHES) -> int | None:
    """Return the size of the largest cache of the first core in bytes, None where not told."""
    sizes = []
    for file in root.glob("index*/size"):
        text = file.read_text().strip()
        unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KMG")) * unit)
    return max(sizes, default=None)


class Cpu:
    """The CPU as torch sees it.

    Where the process uses a GPU, a callable without tensors to show for it may launch work there:
    such a process waits for its GPU too.
    """

    name = "cpu"

    def __init__(self) -> None:
        import torch

        self.asynchronous: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._scratch: torch.Tensor | None = None

    def current(self) -> contextlib.AbstractContextManager[object]:
        """Do nothing: there is one CPU."""
        return contextlib.nullcontext()

    def synchronize(self) -> None:
        """Wait for the GPU where the process uses one; CPU calls are synchronous."""
        if self.asynchronous:
            import torch

            torch.cuda.synchronize()

    def timer(self) -> None:
        """Return None: the host clock times CPU work."""
        return

    def flush_cache(self) -> None:
        """Overwrite a buffer twice the size of the last-level cache."""
        import torch

        if self._scratch is None:
            size = FLUSH_FACTOR * (last_level_cache() or UNKNOWN_CACHE)
            self._scratch = torch.empty(size, dtype=torch.uint8)
        self._scratch.fill_(1)
