"""The figures as OpenMetrics text: base units in the names, one series per figure.

Only gauges are used, so that readers of Prometheus' older text format take it as well.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator

from torchgauge.model.count import Count
from torchgauge.model.figures import Figure, Unit, figures
from torchgauge.model.loop import Loop
from torchgauge.model.profile import Profile
from torchgauge.model.ranks import Ranks
from torchgauge.model.summary import identity
from torchgauge.model.sweep import Sweep

UNITS: dict[Unit, str] = {
    "": "",
    "s": "seconds",
    "B": "bytes",
    "1/s": "per_second",
    "B/s": "bytes_per_second",
    "ratio": "ratio",
    "W": "watts",
    "Hz": "hertz",
}
LABELS = ("target", "model", "device", "precision", "batch_size", "rank")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def render(record: Profile | Count | Loop | Ranks | Sweep) -> str:
    """Return the known figures; their labels say of what they are and how they were got.

    The ends of an interval are series of their own, `…_low_…` and `…_high_…`.
    """
    known = [figure for figure in figures(record) if figure.value is not None]
    who = identity(record)
    labels = {name: str(who[name]) for name in LABELS if who.get(name) not in (None, "")}
    lines: list[str] = []
    for name, same in itertools.groupby(known, key=lambda figure: figure.name):
        lines += _family(name, list(same), labels)
    if created := who.get("created"):
        # A measurement has no age in a file that is scraped; this tells how old it is.
        when = datetime.datetime.fromisoformat(str(created)).timestamp()
        text = "When the run was made, since 1970"
        lines += _family("run_time", [Figure("run_time", "s", "measured", text, when)], labels)
    return "\n".join([*lines, "# EOF", ""])


def _family(name: str, same: list[Figure], labels: dict[str, str]) -> Iterator[str]:
    first = same[0]
    yield from _series(name, first, first.text, [(one, one.value) for one in same], labels)
    if any(one.interval is not None for one in same):
        for end in ("low", "high"):
            text = f"{first.text}: the {'lower' if end == 'low' else 'upper'} end of its interval"
            ends = [(one, getattr(one.interval, end)) for one in same if one.interval is not None]
            yield from _series(f"{name}_{end}", first, text, ends, labels)


def _series(
    name: str,
    first: Figure,
    text: str,
    values: list[tuple[Figure, float | int | None]],
    labels: dict[str, str],
) -> Iterator[str]:
    unit = UNITS[first.unit]
    full = "_".join(filter(None, ("torchgauge", name, unit)))
    yield f"# TYPE {full} gauge"
    if unit:
        yield f"# UNIT {full} {unit}"
    yield f"# HELP {full} {text}."
    for figure, value in values:
        own = labels | {"how": "at_least" if figure.at_least else figure.how}
        if figure.rank is not None:
            own["rank"] = str(figure.rank)
        if text != first.text and figure.interval is not None:
            own["confidence"] = f"{figure.interval.confidence:g}"
            if figure.interval.scope is not None:
                own["interval_scope"] = figure.interval.scope
        pairs = ",".join(f'{key}="{said.translate(_ESCAPES)}"' for key, said in own.items())
        yield f"{full}{{{pairs}}} {value!r}"
