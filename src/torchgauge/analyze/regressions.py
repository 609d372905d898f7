"""Which headline metrics of a run are surely worse than those of a stored one."""

from __future__ import annotations

from torchgauge.analyze.compare import compare
from torchgauge.analyze.stored import HostNoise
from torchgauge.analyze.tolerances import USUAL_METRICS, default_tolerance
from torchgauge.model.comparison import Change
from torchgauge.model.profile import Profile
from torchgauge.model.regressions import Regressions


def regressions(
    baseline: Profile, current: Profile, *, noise: HostNoise | None = None
) -> Regressions:
    """Return what got worse by more than is tolerated, and what cannot be told.

    With six processes on each side latency is judged by its interval; with fewer only a change
    beyond the host's noise floor counts (20 % where it was never calibrated).
    """
    comparison = compare(baseline, current, noise=noise)
    changes = [
        change for name in USUAL_METRICS if (change := comparison.change_of(name)) is not None
    ]
    return Regressions(
        found=tuple(one for one in changes if _worse(one)),
        undecided=tuple(one for one in changes if one.judgement in ("inconclusive", "unknown")),
        comparison=comparison,
    )


def _worse(change: Change) -> bool:
    if change.judgement != "worse":
        return False
    accepted = default_tolerance(change.metric).accepted
    interval = change.judged_interval
    least = change.change if interval is None else interval.low
    return least is None or least > accepted
