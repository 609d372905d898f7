"""The graph of an ONNX file or a program: who wrote it, and how its nodes' layers were found."""

from __future__ import annotations

from collections.abc import Mapping

from torchgauge import units
from torchgauge.records.onnx.graph import GraphFacts, LayerRule
from torchgauge.report.content.section import Row, Section

RULES: dict[LayerRule, str] = {
    "weights": "names of weights",
    "metadata": "the exporter's metadata",
    "names": "names of nodes and outputs",
    "neighbours": "neighbours (estimated)",
    "none": "no rule",
}


def graph(facts: GraphFacts) -> Section:
    """Say what the file is, and how many nodes, and how much time, each rule found the layer of."""
    versions = [f"{domain or 'ai.onnx'} {version}" for domain, version in facts.opsets.items()]
    writer = [f"written by {facts.producer}"] if facts.producer else []
    program = facts.format == "executorch"
    rows = [
        Row(
            "instructions" if program else "nodes",
            f"{facts.nodes:,}",
            "; ".join([*versions, *writer]),
        ),
        _layers("in layers", "of the nodes", facts.nodes_by_rule),
    ]
    if facts.time_by_rule:
        rows.append(_layers("time", "of the nodes' time, in layers", facts.time_by_rule))
    if facts.made_parameters or facts.computed_convolutions:
        rows.append(_changed(facts))
    title = "ExecuTorch program" if program else "ONNX graph"
    return Section(title, "counted", tuple(rows))


def _changed(facts: GraphFacts) -> Row:
    """Return what of the parameters is not as the module had it."""
    folded = facts.computed_convolutions
    notes = ["elements of parameters have names that the exporter made up"]
    if folded:
        notes.append(f"weights of {folded} convolutions are computed: norms folded into them")
    return Row("changed", f"{facts.made_parameters:,}", "; ".join(notes))


def _layers(label: str, subject: str, amounts: Mapping[LayerRule, float]) -> Row:
    """Return the share in layers, and by which rules."""
    total = sum(amounts.values())
    shares = {rule: amounts.get(rule, 0) / total for rule in RULES} if total else {}
    in_layers = 1 - shares["none"] if shares else None
    rules = [
        f"{name} {units.percent(shares[rule], 2)}"
        for rule, name in RULES.items()
        if shares.get(rule)
    ]
    return Row(label, units.percent(in_layers, 3), f"{subject}, by {', '.join(rules)}")
