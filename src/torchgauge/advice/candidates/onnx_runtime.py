"""How a runtime runs an ONNX file: how far it optimises the graph, memory, another runtime."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.model_facts import Facts
from torchgauge.targets.runtimes.runtime_options import LEVELS

_USUAL = "all"
_OPENVINO = """\
from torchgauge.targets.runtimes.open_runtime import open_runtime
from torchgauge.targets.runtimes.runtime_options import RuntimeOptions
model = open_runtime(model.path, RuntimeOptions("openvino"))"""


def _level(name: str) -> Candidate:
    def reason(facts: Facts) -> str | None:
        level = facts.optimization or _USUAL
        return "The graph is optimised so far already." if level == name else None

    return Candidate(
        id=f"graph-{name}",
        title=f"graph optimisation: {name}",
        code=fixed(f'model = model.reopen(graph_optimization_level="{LEVELS[name]}")'),
        reason=reason,
        step="inference",
        order="rewrite",
        group="graph",
        needs_module=False,
        runtime="onnxruntime",
        gain=0.2 if name == _USUAL else 0.02,
    )


def _openvino(facts: Facts) -> str | None:
    if facts.target.runtime.find("CPU") < 0:
        return "The file does not run on the CPU."
    return None if facts.openvino else "openvino is not installed: the extra openvino."


CANDIDATES = (
    *(_level(name) for name in ("all", "extended", "basic")),
    Candidate(
        id="openvino",
        title="OpenVINO in place of ONNX Runtime",
        code=fixed(_OPENVINO),
        reason=_openvino,
        step="inference",
        order="rewrite",
        group="graph",
        needs_module=False,
        runtime="onnxruntime",
        gain=0.2,
        setup=lambda _facts: 1.0,
    ),
    Candidate(
        id="onnx-no-arena",
        title="memory given back after each call",
        code=fixed("model = model.reopen(enable_cpu_mem_arena=False)"),
        step="inference",
        order="process",
        goal="memory",
        needs_module=False,
        runtime="onnxruntime",
    ),
)
