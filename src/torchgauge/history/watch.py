"""Alert rules held against a store."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.analyze.alerts import Rule, alerts
from torchgauge.history.store import EVERY, Selection, Store
from torchgauge.history.trend import trend
from torchgauge.model.trend import Alert, Trend


def watch(store: Store, rules: Sequence[Rule], selection: Selection = EVERY) -> Trend:
    """Return the series that the rules are about, with alerts and the rules that fit no run.

    Raises InputError `alert-unit`, MissingExtraError for ruptures.
    """
    read: dict[tuple[str, str | None], Trend] = {}
    found: list[Alert] = []
    unmatched = []
    for rule in rules:
        key = (rule.metric, rule.layer)
        if key not in read:
            read[key] = trend(store, selection, [rule.metric], rule.layer)
        broken = alerts(rule, read[key].series)
        if broken is None:
            unmatched.append(rule.name)
        found += broken or []
    series = tuple(one for each in read.values() for one in each.series)
    return Trend(store=store.shown, series=series, alerts=tuple(found), unmatched=tuple(unmatched))
