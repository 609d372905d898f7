"""Facts about the environment of a run, and about the graph of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchgauge import units
from torchgauge.records.environment import Environment, Gpu, Machine
from torchgauge.records.onnx.graph import GraphFacts, LayerRule
from torchgauge.report.content.section import Row, Section


def hardware(machine: Machine, gpus: Sequence[Gpu] = ()) -> str:
    """Return GPUs with their memory, the processor, its cores and memory."""
    cores = machine.cpu_quota or machine.usable_cores
    processor = f"{machine.cpu}, {cores:g} cores, {units.size(machine.memory, 3)}"
    return "; ".join([*(f"{gpu.name}, {units.size(gpu.memory, 3)}" for gpu in gpus), processor])


def software(environment: Environment, runtime: str = "") -> str:
    """Return the versions of torch, Python, what ran the target (`runtime`), and CUDA."""
    installed = environment.software
    library = runtime.partition(",")[0]
    versions = [
        f"torch {installed.torch}" if installed.torch else "",
        f"Python {installed.python}",
        f"{library} {installed.libraries.get(library, '')}".strip(),
        f"CUDA {installed.cuda}" if installed.cuda else "",
    ]
    return ", ".join(filter(None, versions))


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
