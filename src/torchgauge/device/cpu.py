"""The CPU: calls return when they are done, so the host clock is the device's clock."""

from __future__ import annotations

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
    """The CPU as torch sees it."""

    name = "cpu"

    def __init__(self) -> None:
        self._scratch: torch.Tensor | None = None

    def synchronize(self) -> None:
        """Do nothing: CPU calls are synchronous."""

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
