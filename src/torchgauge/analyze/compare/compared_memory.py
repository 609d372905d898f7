"""Memory of two runs: exact of torch's tensors, and the growth of a process in other runtimes."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.profile import Profile

# Five processes of a file each, of three files (ResNet-18, BERT, a small one), grew by amounts that
# differ by 13 to 28 % of the least.
PROCESS_SPREAD = 0.3
TWO_MEASURES = "not comparable: the growth of a process, and the tensors of torch"
WITHIN_SPREAD = f"processes of one build differ by up to {units.percent(PROCESS_SPREAD)}"


def measured_differently(baseline: Profile, current: Profile) -> str | None:
    """Return why the memory of two runs is not comparable; None where both measured the same."""
    runtimes = {bool(profile.target.runtime) for profile in (baseline, current)}
    return TWO_MEASURES if len(runtimes) > 1 else None


def spread(baseline: Profile, current: Profile) -> float:
    """Return by what share the memory of one build differs from run to run."""
    return PROCESS_SPREAD if baseline.target.runtime and current.target.runtime else 0.0
