"""The layers that a failing gate names, most contribution first."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.comparison import ComparedStage, Comparison, Place
from torchgauge.records.metric import METRICS
from torchgauge.records.verdict import Ruling

MAX_LAYERS = 5
# Of the largest contribution: a far smaller one is not worth naming, even if significant.
MIN_SHARE = 0.05


def regressed_layers(comparison: Comparison, rulings: tuple[Ruling, ...]) -> tuple[str, ...]:
    """Return the regressed layers as text, marked not proven where none is significant."""
    failed = {ruling.metric: ruling for ruling in rulings if ruling.outcome == "fail"}
    descriptions: list[str] = []
    if {"flops", "macs"} & set(failed):
        descriptions += _by_work(comparison.layers)
    if any(METRICS[name].kind == "timing" for name in failed):
        descriptions += _by_time(comparison.layers)
    return tuple(descriptions)


def regressed_stages(
    stages: tuple[ComparedStage, ...], rulings: tuple[Ruling, ...]
) -> tuple[str, ...]:
    """Return the slower layers of the prefill where the first token got later, and of the step."""
    failed = {ruling.metric for ruling in rulings if ruling.outcome == "fail"}
    blamed = {"prefill": "ttft" in failed, "decode": bool({"tpot", "tokens"} & failed)}
    return tuple(
        f"{stage.label}: {layer}"
        for stage in stages
        if blamed[stage.stage]
        for layer in _by_time(stage.layers)
    )


def _by_time(layers: tuple[Place, ...]) -> list[str]:
    """Return the slower layers: those that do other work first, the largest even if not proven.

    A layer that does the same as before gets slower too, by what runs around it: its threads went
    to sleep during a slow layer, its data left the caches, other processes took the cores.
    """
    slower = sorted(
        (layer for layer in layers if layer.contribution > 0), key=lambda layer: -layer.contribution
    )
    proven = _largest([layer for layer in slower if layer.significant])
    changed = [layer for layer in slower if layer.work_changed and layer not in proven]
    named = proven or _largest(slower)[:3]
    if changed and not any(layer.work_changed for layer in named):
        named = [changed[0], *named][:MAX_LAYERS]
    mixed = any(layer.work_changed for layer in named)
    named.sort(key=lambda layer: not layer.work_changed)  # stable: by contribution
    return [_slower(layer) + _remark(layer, mixed) for layer in named]


def _remark(layer: Place, mixed: bool) -> str:
    remarks = [] if layer.significant else ["not proven"]
    if mixed and not layer.work_changed:
        remarks.append("the same work as before")
    return f" ({', '.join(remarks)})" if remarks else ""


def _largest(layers: list[Place]) -> list[Place]:
    return [
        layer
        for layer in layers[:MAX_LAYERS]
        if layer.contribution >= MIN_SHARE * layers[0].contribution
    ]


def _slower(layer: Place) -> str:
    change = "" if layer.change is None else f" {_percent(layer.change)}"
    ends = layer.interval
    if change and ends is not None:
        change += f" [{_percent(ends.low)}, {_percent(ends.high)}]"
    return f"{_name(layer)}{change}, +{units.time(layer.contribution, 3)}"


def _percent(change: float) -> str:
    return units.with_minus(f"{100 * change:+.1f} %")


def _by_work(layers: tuple[Place, ...]) -> list[str]:
    increases = [
        (layer, (layer.current_flops or 0) - (layer.baseline_flops or 0)) for layer in layers
    ]
    largest = sorted(increases, key=lambda increase: -increase[1])[:MAX_LAYERS]
    return [
        f"{_name(layer)} +{units.count(flops, 3)} FLOP" for layer, flops in largest if flops > 0
    ]


def _name(layer: Place) -> str:
    return f"{layer.name or 'the model itself'} ({layer.type})" if layer.type else layer.name
