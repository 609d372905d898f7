"""Two runs that were saved or are at hand, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.errors import InputError
from torchgauge.model import codec
from torchgauge.model.profile import Profile

if TYPE_CHECKING:
    from torchgauge.model.comparison import Comparison
    from torchgauge.model.regressions import Regressions
    from torchgauge.model.verdict import Verdict


def compare(baseline: Profile | str | Path, current: Profile | str | Path) -> Comparison:
    """Compare two records, or the files that hold them: every metric, layers, operators, kernels.

    Times are judged between the same machine, software and settings, from six processes on each
    side (`processes=10`); exact figures always where inputs are the same.

    Raises InputError `file-missing`, `not-a-profile`; RecordError as `load`.
    """
    from torchgauge.analyze.compare import compare as compared

    sides = [_side(one) for one in (baseline, current)]
    return compared(sides[0], sides[1], labels=_labels(baseline, current))


def gate_records(
    baseline: Profile | str | Path,
    current: Profile | str | Path,
    *,
    tolerance: str | Sequence[str] | None = None,
    metrics: Sequence[str] = (),
    limits: str | Sequence[str] | None = None,
) -> Verdict:
    """Judge a run against a stored one: pass, fail, inconclusive or not comparable.

    `tolerance` is "latency:1%:3%" (what is accepted, what is refused) or several such; `limits` are
    absolute, "latency:100ms"; `metrics` are those to gate (default: params, flops, memory, latency
    and what has a tolerance). Times need the same machine, software and settings, and six
    processes on each side (`processes=10`).

    Raises InputError `metric-unknown`, `threshold-invalid`, `file-missing`, `not-a-profile`;
    RecordError as `load`.
    """
    from torchgauge.analyze.limits import parse_limit
    from torchgauge.analyze.stored_gate import gate
    from torchgauge.analyze.tolerances import parse_tolerance

    told = [parse_tolerance(text) for text in _several(tolerance)]
    bounds = [parse_limit(text) for text in _several(limits)]
    return gate(
        _side(baseline),
        _side(current),
        metrics=metrics,
        tolerances=told,
        limits=bounds,
        labels=_labels(baseline, current),
    )


def detect_regressions(
    baseline: Profile | str | Path, current: Profile | str | Path
) -> Regressions:
    """Return what got worse: falsy where nothing did, and it prints by metric and change.

    With fewer than six processes on a side, latency counts only beyond the host's noise floor
    (20 % where it was never calibrated), and is said to be inconclusive below it.

    Raises as `compare`.
    """
    from torchgauge.analyze.regressions import regressions

    return regressions(_side(baseline), _side(current))


def load_baseline(path: str | Path) -> Profile:
    """Return the profile saved at `path`.

    Raises InputError `file-missing`, `not-a-profile`; RecordError as `load`.
    """
    return _side(path)


def _labels(baseline: object, current: object) -> tuple[str, str]:
    old = str(baseline) if isinstance(baseline, str | Path) else "baseline"
    return old, str(current) if isinstance(current, str | Path) else "current"


def _several(given: str | Sequence[str] | None) -> Sequence[str]:
    return () if given is None else [given] if isinstance(given, str) else given


def _side(given: Profile | str | Path) -> Profile:
    given = getattr(given, "profile", given)  # the record behind ModelProfiler's results
    if isinstance(given, Profile):
        return given
    if not isinstance(given, str | Path):
        raise InputError(
            f"A {type(given).__name__} cannot be compared.",
            id="not-a-profile",
            cause="Records of profiles can, and the files that hold them.",
            remedy="Give tg.profile(model, inputs), or the path of a saved run.",
        )
    found = codec.load(Path(given))
    if isinstance(found, Profile):
        return found
    raise InputError(
        f"'{given}' holds a {type(found).__name__.lower()}, not a profile.",
        id="not-a-profile",
        remedy="Give a file that `torchgauge profile --output-dir` or profile.save wrote.",
    )
