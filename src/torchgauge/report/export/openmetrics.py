"""The figures as OpenMetrics text: base units in the names, one series per figure.

Only gauges are used, so that readers of Prometheus' older text format take it as well.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator

from torchgauge.records.figures import figures
from torchgauge.records.headline.figure import Figure, Unit
from torchgauge.records.summary import Summarized, identity

UNITS: dict[Unit, str] = {
    "": "",
    "s": "seconds",
    "B": "bytes",
    "1/s": "per_second",
    "B/s": "bytes_per_second",
    "ratio": "ratio",
    "W": "watts",
    "J": "joules",
    "Hz": "hertz",
}
LABELS = ("target", "model", "device", "precision", "batch_size", "rank")
ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def render(record: Summarized) -> str:
    """Return the known figures; their labels hold the target and how each was obtained.

    The ends of an interval are series of their own, `…_low_…` and `…_high_…`.
    """
    known_figures = [figure for figure in figures(record) if figure.value is not None]
    run_identity = identity(record)
    labels = {
        name: str(run_identity[name]) for name in LABELS if run_identity.get(name) not in (None, "")
    }
    lines: list[str] = []
    for name, family in itertools.groupby(known_figures, key=lambda figure: figure.name):
        lines += _family(name, list(family), labels)
    if created := run_identity.get("created"):
        # A measurement has no age in a file that is scraped; this tells how old it is.
        timestamp = datetime.datetime.fromisoformat(str(created)).timestamp()
        text = "When the run was made, since 1970"
        lines += _family("run_time", [Figure("run_time", "s", "measured", text, timestamp)], labels)
    return "\n".join([*lines, "# EOF", ""])


def _family(name: str, family: list[Figure], labels: dict[str, str]) -> Iterator[str]:
    first = family[0]
    yield from _series(
        name, first, first.text, [(figure, figure.value) for figure in family], labels
    )
    if any(figure.interval is not None for figure in family):
        for end in ("low", "high"):
            text = f"{first.text}: the {'lower' if end == 'low' else 'upper'} end of its interval"
            ends = [
                (figure, getattr(figure.interval, end))
                for figure in family
                if figure.interval is not None
            ]
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
        own = (
            labels
            | {key: str(label) for key, label in figure.labels}
            | {"how": "at_least" if figure.at_least else figure.how}
        )
        if figure.rank is not None:
            own["rank"] = str(figure.rank)
        if text != first.text and figure.interval is not None:
            own["confidence"] = f"{figure.interval.confidence:g}"
            if figure.interval.scope is not None:
                own["interval_scope"] = figure.interval.scope
        pairs = ",".join(f'{key}="{label.translate(ESCAPES)}"' for key, label in own.items())
        yield f"{full}{{{pairs}}} {value!r}"
