"""Alert rules from a TOML file: [[threshold]], [[change]], [[budget]] and [webhook]."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torchgauge.analyze.alerts import NEWS, Rule
from torchgauge.analyze.change_points import SMALLEST
from torchgauge.errors import InputError
from torchgauge.history.quantity import amount, period
from torchgauge.reading import RULES, whole

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


def read(path: Path) -> Rules:
    """Return the rules of a file.

    Raises InputError `file-missing`, `file-not-regular`, `file-too-large`, `alerts-invalid` for
    what is no rule, `quantity`.
    """
    text = whole(path, RULES)
    try:
        content = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise _invalid(path, str(error)) from error
    try:
        return _rules(content)
    except _UnfitError as error:
        raise _invalid(path, str(error)) from error


class _UnfitError(Exception):
    """Says what of a file is no rule."""


def _rules(content: Mapping[str, Any]) -> Rules:
    if unknown := set(content) - {*_FIELDS, "webhook"}:
        raise _UnfitError(f"there is nothing named {', '.join(sorted(unknown))}")
    rules = tuple(_each(content))
    hook = content.get("webhook", {})
    known = isinstance(hook, dict) and set(hook) <= _WEBHOOK
    if not known or not all(isinstance(value, str) for value in hook.values()):
        raise _UnfitError("a [webhook] has 'url' or 'url_env', both text")
    return Rules(rules, **hook)


def _each(content: Mapping[str, Any]) -> Iterator[Rule]:
    for kind, fields in _FIELDS.items():
        tables = content.get(kind, [])
        if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
            raise _UnfitError(f"rules begin with [[{kind}]]")
        for number, table in enumerate(tables, start=1):
            where = f"{kind} {number}"
            if unknown := set(table) - fields:
                raise _UnfitError(f"{where} has no field {', '.join(sorted(unknown))}")
            texts = {name: table[name] for name in _COMMON if name in table}
            if not all(isinstance(value, str) for value in texts.values()) or not texts.get(
                "metric"
            ):
                raise _UnfitError(
                    f"{where} needs a 'metric'; name, layer, target and branch are texts"
                )
            name = texts.pop("name", where)
            yield Rule(name=name, **texts, **_limits(kind, where, table))


def _limits(kind: str, where: str, table: Mapping[str, Any]) -> dict[str, Any]:
    told = [name for name in ("above", "below", "sum", "growth") if name in table]
    if kind == "change":
        limit, _ = amount(table.get("by", SMALLEST))
        within = table.get("within", NEWS)
        if not isinstance(within, int) or within < 1 or limit < 0:
            raise _UnfitError(f"{where} needs 'within' in runs and 'by' as 3%")
        return {"kind": "change", "limit": limit, "unit": "ratio", "within": within}
    if len(told) != 1:
        wanted = "'above' or 'below'" if kind == "threshold" else "'sum' or 'growth'"
        raise _UnfitError(f"{where} needs either {wanted}")
    limit, unit = amount(table[told[0]])
    if told[0] == "sum" and table["metric"] == "peak":
        raise _UnfitError(f"{where}: peaks of layers do not add up")
    if kind == "threshold":
        return {"kind": kind, "limit": limit, "unit": unit, "side": told[0]}
    if ("over" in table) != (told[0] == "growth"):
        raise _UnfitError(f"{where}: growth is 'over' a time such as 30d, and a sum is not")
    over = {"over": period(table["over"])} if "over" in table else {}
    return {"kind": told[0], "limit": limit, "unit": unit, **over}


def _invalid(path: Path, cause: str) -> InputError:
    return InputError(
        f"'{path}' holds no alert rules.",
        id="alerts-invalid",
        cause=cause,
        remedy='See "Alerts" in the documentation\'s page on the history.',
    )
