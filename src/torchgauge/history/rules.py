"""Alert rules from a TOML file: [[threshold]], [[change]], [[budget]], on windows, [webhook]."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torchgauge.analyze.history.alerts import NEWS_RUNS, Rule
from torchgauge.analyze.monitoring.level_change import DAY, Budget
from torchgauge.analyze.monitoring.window_alerts import BURN, PREFIX, Objective, WindowRule
from torchgauge.analyze.statistics.change_points import SMALLEST
from torchgauge.errors import InputError
from torchgauge.quantities import period, setting
from torchgauge.reading import RULES, read_bytes
from torchgauge.records.monitoring.window import LATENCY

_WINDOW_RULES_COMMON = {"name", "series", "monitor"}
FIELDS = {
    "objective": _WINDOW_RULES_COMMON | {"share", "under", "burn"},
    "level": _WINDOW_RULES_COMMON | {"by", "within", "false_alarm_in"},
}


class UnfitError(Exception):
    """Reports invalid rules of a file."""


def window_rule(kind: str, label: str, table: Mapping[str, Any]) -> WindowRule:
    """Return the rule of one table. Raises UnfitError, InputError `quantity`."""
    if unknown := set(table) - FIELDS[kind]:
        raise UnfitError(f"{label} has no field {', '.join(sorted(unknown))}")
    texts = {name: table[name] for name in _WINDOW_RULES_COMMON if name in table}
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


_RULES_COMMON = {"name", "metric", "layer", "target", "branch"}
_FIELDS = {
    "threshold": _RULES_COMMON | {"above", "below"},
    "change": _RULES_COMMON | {"by", "within"},
    "budget": _RULES_COMMON | {"sum", "growth", "over"},
}
_WEBHOOK = {"url", "url_env"}


class Rules(NamedTuple):
    """What a file asks for; `url` is a secret, `url_env` names the variable that holds it."""

    rules: tuple[Rule, ...]
    url: str = ""
    url_env: str = ""
    window_rules: tuple[WindowRule, ...] = ()

    @property
    def all_rules(self) -> tuple[Rule | WindowRule, ...]:
        """Those on runs and those on windows."""
        return (*self.rules, *self.window_rules)


def read(path: Path) -> Rules:
    """Return the rules of a file.

    Raises InputError `file-missing`, `file-not-regular`, `file-too-large`, `alerts-invalid` for
    what is no rule, `quantity`.
    """
    text = read_bytes(path, RULES)
    try:
        content = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise _invalid(path, str(error)) from error
    try:
        return _rules(content)
    except UnfitError as error:
        raise _invalid(path, str(error)) from error


def _rules(content: Mapping[str, Any]) -> Rules:
    if unknown := set(content) - {*_FIELDS, *FIELDS, "webhook"}:
        raise UnfitError(f"there is nothing named {', '.join(sorted(unknown))}")
    rules = tuple(
        _rule(kind, label, table) for kind in _FIELDS for label, table in _tables(content, kind)
    )
    window_rules = tuple(
        window_rule(kind, label, table)
        for kind in FIELDS
        for label, table in _tables(content, kind)
    )
    hook = content.get("webhook", {})
    is_known = isinstance(hook, dict) and set(hook) <= _WEBHOOK
    if not is_known or not all(isinstance(value, str) for value in hook.values()):
        raise UnfitError("a [webhook] has 'url' or 'url_env', both text")
    return Rules(rules, window_rules=window_rules, **hook)


def _tables(content: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the tables of a kind, each with what it is called without a name."""
    tables = content.get(kind, [])
    if not isinstance(tables, list) or not all(isinstance(entry, dict) for entry in tables):
        raise UnfitError(f"rules begin with [[{kind}]]")
    for number, table in enumerate(tables, start=1):
        yield f"{kind} {number}", table


def _rule(kind: str, label: str, table: Mapping[str, Any]) -> Rule:
    if unknown := set(table) - _FIELDS[kind]:
        raise UnfitError(f"{label} has no field {', '.join(sorted(unknown))}")
    texts = {name: table[name] for name in _RULES_COMMON if name in table}
    if not all(isinstance(value, str) for value in texts.values()) or not texts.get("metric"):
        raise UnfitError(f"{label} needs a 'metric'; name, layer, target and branch are texts")
    if kind == "change" and texts["metric"].startswith(PREFIX):
        raise UnfitError(f"{label}: of monitors a change is found by a rule [[level]]")
    name = texts.pop("name", label)
    return Rule(name=name, **texts, **_limits(kind, label, table))


def _limits(kind: str, label: str, table: Mapping[str, Any]) -> dict[str, Any]:
    limit_names = [name for name in ("above", "below", "sum", "growth") if name in table]
    if kind == "change":
        limit, _ = setting(table.get("by", SMALLEST))
        within = table.get("within", NEWS_RUNS)
        if not isinstance(within, int) or within < 1 or limit < 0:
            raise UnfitError(f"{label} needs 'within' in runs and 'by' as 3%")
        return {"kind": "change", "limit": limit, "unit": "ratio", "within": within}
    if len(limit_names) != 1:
        choices = "'above' or 'below'" if kind == "threshold" else "'sum' or 'growth'"
        raise UnfitError(f"{label} needs either {choices}")
    limit, unit = setting(table[limit_names[0]])
    if limit_names[0] == "sum" and table["metric"] == "peak":
        raise UnfitError(f"{label}: peaks of layers do not add up")
    if kind == "threshold":
        return {"kind": kind, "limit": limit, "unit": unit, "side": limit_names[0]}
    if ("over" in table) != (limit_names[0] == "growth"):
        raise UnfitError(f"{label}: growth is 'over' a time such as 30d, and a sum is not")
    over = {"over": period(table["over"])} if "over" in table else {}
    return {"kind": limit_names[0], "limit": limit, "unit": unit, **over}


def _invalid(path: Path, cause: str) -> InputError:
    return InputError(
        f"'{path}' holds no alert rules.",
        id="alerts-invalid",
        cause=cause,
        remedy='See "Alerts" in the documentation\'s page on the history.',
    )
