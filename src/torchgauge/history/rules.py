"""Alert rules from a TOML file: [[threshold]], [[change]], [[budget]], on windows, [webhook]."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torchgauge.analyze.history.alerts import NEWS_RUNS, Rule
from torchgauge.analyze.monitoring.window_alerts import PREFIX, WindowRule
from torchgauge.analyze.statistics.change_points import SMALLEST
from torchgauge.errors import InputError
from torchgauge.history.window_rules import FIELDS, UnfitError, window_rule
from torchgauge.quantities import period, setting
from torchgauge.reading import RULES, read_bytes

_COMMON = {"name", "metric", "layer", "target", "branch"}
_FIELDS = {
    "threshold": _COMMON | {"above", "below"},
    "change": _COMMON | {"by", "within"},
    "budget": _COMMON | {"sum", "growth", "over"},
}
_WEBHOOK = {"url", "url_env"}


class Rules(NamedTuple):
    """What a file asks for; `url` is a secret, `url_env` names the variable that holds it."""

    rules: tuple[Rule, ...]
    url: str = ""
    url_env: str = ""
    window_rules: tuple[WindowRule, ...] = ()


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
    texts = {name: table[name] for name in _COMMON if name in table}
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
