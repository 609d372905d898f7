"""Two runs that were saved or are at hand, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.errors import InputError
from torchgauge.model import codec
from torchgauge.model.profile import Profile

if TYPE_CHECKING:
    from torchgauge.model.comparison import Comparison


def compare(baseline: Profile | str | Path, current: Profile | str | Path) -> Comparison:
    """Compare two records, or the files that hold them: every metric, layers, operators, kernels.

    Times are judged between the same machine, software and settings, from six processes on each
    side (`processes=10`); exact figures always where inputs are the same.

    Raises InputError `file-missing`, `not-a-profile`; RecordError as `load`.
    """
    from torchgauge.analyze.compare import compare as compared

    sides = [_side(one) for one in (baseline, current)]
    labels = [
        str(given) if isinstance(given, str | Path) else name
        for given, name in ((baseline, "baseline"), (current, "current"))
    ]
    return compared(sides[0], sides[1], labels=(labels[0], labels[1]))


def load_baseline(path: str | Path) -> Profile:
    """Return the profile saved at `path`.

    Raises InputError `file-missing`, `not-a-profile`; RecordError as `load`.
    """
    return _side(path)


def _side(given: Profile | str | Path) -> Profile:
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
