"""Whether a rank fits into the memory of a device."""

from __future__ import annotations

from torchgauge.records.parallel.rank_memory import DeviceFit, RankMemory, Verdict
from torchgauge.records.work.roofline import Roofs

# What frameworks reserved in published runs was up to a fifth more than is estimated here.
RESERVED_MARGIN = 0.25
# The driver's context, NCCL's buffers, the libraries' workspaces.
OVERHEAD = 1_000_000_000
# A datasheet's GB is 10⁹ bytes, and a device's is up to 2³⁰.
LARGEST_GB = 2**30 / 10**9


def device_fit(memory: RankMemory, roofs: Roofs) -> DeviceFit | None:
    """Return whether a rank fits; None for a device of unknown memory."""
    if roofs.memory is None:
        return None
    margin = roofs.memory - memory.reserved
    needed = int(RESERVED_MARGIN * memory.reserved) + OVERHEAD
    verdict: Verdict = "may fit"
    if memory.peak > LARGEST_GB * roofs.memory:
        verdict = "does not fit"
    elif margin >= needed:
        verdict = "fits"
    return DeviceFit(
        device=roofs.device,
        memory=roofs.memory,
        verdict=verdict,
        margin=margin,
        needed_margin=needed,
        source=roofs.sources.get("memory", ""),
    )
