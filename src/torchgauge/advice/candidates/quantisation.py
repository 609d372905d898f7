"""Weights as bytes: dynamic int8 on the CPU, weight-only int8 by torchao."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.model.facts import Facts

INT8 = 0.1


def _linear(facts: Facts) -> str | None:
    if "float32" not in facts.dtypes:
        return "The model has no fp32 weights."
    return None if facts.count("Linear") else "The model has no Linear layer."


def _dynamic(facts: Facts) -> str | None:
    if facts.kind != "cpu":
        return "torch's own dynamic quantisation runs on the CPU only."
    return _linear(facts)


def _weights(facts: Facts) -> str | None:
    if not facts.torchao:
        return "torchao is not installed: pip install 'torchgauge[torchao]'."
    return _linear(facts)


CANDIDATES = (
    Candidate(
        id="int8-dynamic",
        title="dynamic int8 of linear layers",
        code=fixed(
            "from torch.ao.quantization import quantize_dynamic\n"
            "model = quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)"
        ),
        reason=_dynamic,
        step="inference",
        order="quantise",
        group="precision",
        tolerance=INT8,
        gain=0.15,
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
