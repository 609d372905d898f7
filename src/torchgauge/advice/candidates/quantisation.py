"""Weights as bytes: dynamic int8 on the CPU, weight-only int8 by torchao."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.advice.candidate import ByLayer, Candidate, classes, fixed, layer_condition
from torchgauge.records.target import Facts

INT8 = 0.1
# What torch's dynamic quantisation takes.
KINDS = ("Linear", "LSTM", "GRU")


def _linear(facts: Facts, *other_kinds: str) -> str | None:
    if "float32" not in facts.dtypes:
        return "The model has no fp32 weights."
    return None if facts.count("Linear", *other_kinds) else "The model has no Linear layer."


def _dynamic(facts: Facts) -> str | None:
    if facts.kind != "cpu":
        return "torch's own dynamic quantisation runs on the CPU only."
    return _linear(facts, *KINDS[1:])


def _all_layers(facts: Facts) -> str:
    return (
        "from torch.ao.quantization import quantize_dynamic\n"
        f"model = quantize_dynamic(model, {classes(KINDS, facts)}, dtype=torch.qint8)"
    )


def _some_layers(facts: Facts, paths: Sequence[str]) -> str:
    condition = layer_condition(KINDS, facts, paths)
    return (
        "from torch.ao.quantization import quantize_dynamic\n"
        f"names = {{n for n, m in model.named_modules() if {condition}}}\n"
        "model = quantize_dynamic(model, names, dtype=torch.qint8)"
    )


def _weights(facts: Facts) -> str | None:
    if not facts.torchao:
        return "torchao is not installed: pip install 'torchgauge-profiler[torchao]'."
    return _linear(facts)


CANDIDATES = (
    Candidate(
        id="int8-dynamic",
        title="dynamic int8 of linear layers",
        code=_all_layers,
        reason=_dynamic,
        step="inference",
        order="quantise",
        group="precision",
        tolerance=INT8,
        gain=0.15,
        by_layer=ByLayer(KINDS, _some_layers),
    ),
    Candidate(
        id="int8-weights",
        title="int8 weights (torchao)",
        code=fixed(
            "from torchao.quantization import Int8WeightOnlyConfig, quantize_\n"
            "quantize_(model, Int8WeightOnlyConfig())"
        ),
        reason=_weights,
        step="inference",
        order="quantise",
        group="precision",
        tolerance=INT8,
    ),
)
