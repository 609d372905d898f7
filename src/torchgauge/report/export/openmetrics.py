"""The figures as OpenMetrics text: base units in the names, one series per figure.

Only gauges are used, so that readers of Prometheus' older text format take it as well.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Iterator

from torchgauge.records.figures import figures
from torchgauge.records.headline.figure import Figure
from torchgauge.records.summary import Summarized, identity
from torchgauge.report.windows.families import Family, Sample, gauges, metrics_text

LABELS = ("target", "model", "device", "precision", "batch_size", "rank")
_ENDS = {"low": "lower", "high": "upper"}


def render(record: Summarized) -> str:
    """Return the known figures; their labels hold the target and how each was obtained.

    The ends of an interval are series of their own, `…_low_…` and `…_high_…`.
    """
    known_figures = [figure for figure in figures(record) if figure.value is not None]
    run_identity = identity(record)
    labels = {
        name: str(run_identity[name]) for name in LABELS if run_identity.get(name) not in (None, "")
    }
    if created := run_identity.get("created"):
        # A measurement has no age in a file that is scraped; this tells how old it is.
        timestamp = datetime.datetime.fromisoformat(str(created)).timestamp()
        text = "When the run was made, since 1970"
        known_figures.append(Figure("run_time", "s", "measured", text, timestamp))
    return metrics_text(_families(known_figures, labels))


def _families(known_figures: Iterable[Figure], labels: dict[str, str]) -> Iterator[Family]:
    for name, group in itertools.groupby(known_figures, key=lambda figure: figure.name):
        family = [(figure, labels | _own_labels(figure)) for figure in group]
        first = family[0][0]
        samples = [Sample(tuple(own.items()), figure.value or 0) for figure, own in family]
        yield gauges(name, first.unit, first.text, samples)
        for end, side in _ENDS.items():
            samples = [
                Sample(tuple((own | _scope(figure)).items()), getattr(figure.interval, end))
                for figure, own in family
                if figure.interval is not None
            ]
            if samples:
                text = f"{first.text}: the {side} end of its interval"
                yield gauges(f"{name}_{end}", first.unit, text, samples)


def _own_labels(figure: Figure) -> dict[str, str]:
    rank = {} if figure.rank is None else {"rank": str(figure.rank)}
    how = "at_least" if figure.at_least else figure.how
    return {key: str(label) for key, label in figure.labels} | {"how": how} | rank


def _scope(figure: Figure) -> dict[str, str]:
    if figure.interval is None:
        return {}
    confidence = {"confidence": f"{figure.interval.confidence:g}"}
    scope = figure.interval.scope
    return confidence if scope is None else confidence | {"interval_scope": scope}
