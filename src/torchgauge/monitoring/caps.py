"""How much a monitor records apart: what is beyond counts as "other", and a problem says so."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from torchgauge.records.headline.figure import Unit
from torchgauge.records.monitoring.window import Key, Window

MOST_SERIES = 500  # of a monitor in a process; further ones share the label "other"
MOST_IN_FOLDER = 2000  # of a monitor in all its processes
MOST_NAMES = 50  # of those further ones; then they are one "other" a unit
MOST_KINDS = 50  # of errors of a series
LONGEST_TEXT = 200  # characters of a name, a label or a kind

OTHER = "other"


def short_text(text: object) -> str:
    """Return a name, a label or a kind as text; one that is too long is "other"."""
    return str(text) if len(str(text)) <= LONGEST_TEXT else OTHER


def key_of(name: str, labels: Mapping[str, str]) -> Key:
    """Return what tells a series from other_labels."""
    return name, tuple(sorted(labels.items()))


def place(
    name: str, unit: Unit, labels: dict[str, str], keys: Collection[Key], limit: int = MOST_SERIES
) -> tuple[str, dict[str, str]]:
    """Return the name and labels of a series beside those that are keys: "other" beyond `limit`."""
    if len(keys) < limit or key_of(name, labels) in keys:
        return name, labels
    other_labels = dict.fromkeys(labels, OTHER)
    if len(keys) < limit + MOST_NAMES or key_of(name, other_labels) in keys:
        return name, other_labels
    return f"{OTHER} {unit}".strip(), {}


def capped(windows: Iterable[Window]) -> Iterator[Window]:
    """Yield windows, of a monitor with very many series the youngest ones as "other".

    Those of older processes come first, so that a series that was seen stays. Readings pass.
    """
    by_monitor: dict[str, set[Key]] = {}
    for window in sorted(windows, key=lambda window: (window.begin, window.key)):
        if window.last is not None:
            yield window
            continue
        own = {"monitor": window.labels.get("monitor", "")}
        keys = by_monitor.setdefault(own["monitor"], set())
        labels = {name: text for name, text in window.labels.items() if name not in own}
        placed = place(window.series, window.unit, labels, keys, MOST_IN_FOLDER)
        keys.add(key_of(*placed))
        if placed != (window.series, labels):
            window = msgspec.structs.replace(window, series=placed[0], labels=own | placed[1])
        yield window
