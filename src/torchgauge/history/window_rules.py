"""Rules on windows of monitors from a TOML file: [[objective]] and [[level]]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchgauge.analyze.monitoring.burn_rate import BURN, Objective
from torchgauge.analyze.monitoring.level_change import DAY, Budget
from torchgauge.analyze.monitoring.window_alerts import WindowRule
from torchgauge.quantities import period, setting
from torchgauge.records.monitoring.window import LATENCY

_COMMON = {"name", "series", "monitor"}
FIELDS = {
    "objective": _COMMON | {"share", "under", "burn"},
    "level": _COMMON | {"by", "within", "false_alarm_in"},
}


class UnfitError(Exception):
    """Reports invalid rules of a file."""


def window_rule(kind: str, label: str, table: Mapping[str, Any]) -> WindowRule:
    """Return the rule of one table. Raises UnfitError, InputError `quantity`."""
    if unknown := set(table) - FIELDS[kind]:
        raise UnfitError(f"{label} has no field {', '.join(sorted(unknown))}")
    texts = {name: table[name] for name in _COMMON if name in table}
    if not all(isinstance(value, str) and value for value in texts.values()):
        raise UnfitError(f"{label}: name, series and monitor are texts")
    texts = {"name": label, "series": LATENCY, **texts}
    return _objective(label, table, texts) if kind == "objective" else _level(label, table, texts)


def _objective(label: str, table: Mapping[str, Any], texts: dict[str, Any]) -> WindowRule:
    share, unit = setting(table.get("share", ""))
    if unit != "ratio" or not 0 < share < 1:
        raise UnfitError(f"{label} needs 'share', the part of good calls, such as 99%")
    limit = None
    if "under" in table:
        limit, unit = setting(table["under"])
        if unit in ("ratio", "1/s") or limit <= 0:
            raise UnfitError(f"{label}: 'under' is what a good call takes at most, such as 100ms")
    burn = table.get("burn", BURN)
    if isinstance(burn, bool) or not isinstance(burn, int | float) or not 0 < burn < 1e6:
        raise UnfitError(f"{label}: 'burn' is a number such as {BURN}")
    if burn * (1 - share) >= 1:
        raise UnfitError(
            f"{label} can never burn ×{burn:g}: with all calls bad it is ×{1 / (1 - share):.3g}"
        )
    return WindowRule(kind="objective", objective=Objective(share, limit), burn=burn, **texts)


def _level(label: str, table: Mapping[str, Any], texts: dict[str, Any]) -> WindowRule:
    step, unit = setting(table.get("by", "10%"))
    if unit != "ratio" or not 0.01 <= step <= 10:
        raise UnfitError(f"{label} needs 'by' as 10%, from 1% on")
    within = period(table["within"]).total_seconds() if "within" in table else DAY
    days = period(table.get("false_alarm_in", "30d")).total_seconds() / DAY
    if within <= 0 or days <= 0:
        raise UnfitError(f"{label}: 'within' and 'false_alarm_in' are times such as 30d")
    return WindowRule(kind="level", step=step, within=within, budget=Budget(1.0, days), **texts)
