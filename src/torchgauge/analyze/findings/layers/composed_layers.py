"""Normalisations and activations made of operators for which torch has one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, calls_further
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.analyze.work.categories import category
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node, base_name, own_nodes


class _Composition(NamedTuple):
    """What a layer that torch has whole is made of: its class, one operator of each set."""

    type: re.Pattern[str]
    operators: tuple[frozenset[str], ...]
    remedy: str


_COMPOSITIONS = (
    _Composition(
        re.compile(r"RMSNorm|T5LayerNorm", re.IGNORECASE),
        (frozenset({"aten::rsqrt", "aten::sqrt"}), frozenset({"aten::mean"})),
        "torch.nn.RMSNorm (torch.nn.functional.rms_norm) is one kernel on GPUs; torch.compile "
        "makes one of them everywhere.",
    ),
    _Composition(
        re.compile(r"gelu", re.IGNORECASE),
        (frozenset({"aten::tanh", "aten::erf"}), frozenset({"aten::mul"})),
        "torch.nn.functional.gelu(x, approximate='tanh') is one kernel.",
    ),
)
# Operators over the whole input; fewer have little to gain.
ENOUGH_OPERATORS = 4


def _find(evidence: Evidence) -> Iterator[Finding]:
    for composition in _COMPOSITIONS:
        layers = [layer for layer in evidence.leaves if _is_composed(layer, composition)]
        time = evidence.within(sum(layer.time or 0.0 for layer in layers))
        if share(time, evidence.time) < NOTICEABLE:
            continue
        longest = max(layers, key=lambda layer: layer.time or 0.0)
        operators = _working_operators(longest)
        names = list(dict.fromkeys(base_name(node.name) for node in operators))
        yield RULE.costs(
            time,
            evidence.time,
            title=f"{longest.row.type} is written out, and takes "
            f"{units.percent(time / evidence.time)} of the time",
            evidence=f"{units.time(time)} in {len(layers):,} layer{'s' * (len(layers) != 1)} of "
            f"{sum(node.calls for node in operators):,} operators each: {', '.join(names[:6])}.",
            remedy=composition.remedy,
            node=longest,
        )


def _is_composed(layer: Node, composition: _Composition) -> bool:
    if not composition.type.search(layer.row.type):
        return False
    names = {base_name(node.name) for node in own_nodes(layer)}
    count = sum(node.calls for node in _working_operators(layer))
    has_all = all(names & needed for needed in composition.operators)
    return has_all and count >= ENOUGH_OPERATORS * max(layer.calls, 1)


def _working_operators(layer: Node) -> list[Node]:
    """Return the operators of a layer that do elementwise work or reduce."""
    return [
        node
        for node in own_nodes(layer)
        if node.kind == "operator"
        and category(base_name(node.name)) in ("elementwise", "reduction")
        and not calls_further(node)
    ]


RULE = Rule(
    "composed-layers",
    _find,
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.rms_norm.html",
    explains=("unfused-elementwise", "casts"),
)
