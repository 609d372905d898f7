"""Candidates that run the same operators in another way."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, converted, fixed
from torchgauge.records.target import Facts
from torchgauge.targets.runtimes.runtime_options import LEVELS

_USUAL = "all"
_OPENVINO = """\
from torchgauge.targets.loaders.onnx_file import open_runtime
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


def _attention_reason(facts: Facts) -> str | None:
    if "set_attn_implementation" not in facts.switches or not facts.attention:
        return "The model has no switch for its attention; code of its own is not rewritten."
    if facts.attention != "eager":
        return f"It uses {facts.attention} already."
    return None


KINDS = ("1d", "2d", "3d")


def _folding_reason(facts: Facts) -> str | None:
    if any(facts.count(f"Conv{kind}") and facts.count(f"BatchNorm{kind}") for kind in KINDS):
        return None
    return "The model has no batch normalisation after a convolution."


def _channels_last_reason(facts: Facts) -> str | None:
    if not facts.count("Conv2d", "ConvTranspose2d"):
        return "The model has no two-dimensional convolution."
    if not facts.image_inputs:
        return "No input has the four dimensions of images."
    return None if facts.plain_inputs else "Its inputs are not plain tensors."


def _code(facts: Facts) -> str:
    to = "to(memory_format=torch.channels_last) if {0}.dim() == 4 else {0}"
    return converted(facts, "model = model.to(memory_format=torch.channels_last)", to)


CANDIDATES = (
    Candidate(
        id="inference-mode",
        title="eval() and inference_mode",
        code=fixed("model.eval()\nmodel.forward = torch.inference_mode()(model.forward)"),
        reason=lambda facts: (
            None
            if facts.target.grad_mode == "inference_mode"
            else "Its forward takes gradients itself, and inference mode has none."
        ),
        step="inference",
        # Every other candidate is compared with an original that runs so already.
        original="model.forward = torch.inference_mode(False)(torch.enable_grad()(model.forward))",
        group="mode",
    ),
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
    Candidate(
        id="sdpa",
        title="scaled_dot_product_attention",
        code=fixed('model.set_attn_implementation("sdpa")'),
        reason=_attention_reason,
        order="rewrite",
        gain=0.1,
    ),
    Candidate(
        id="fold-batch-norm",
        title="batch norms folded into convolutions",
        code=fixed(
            "from torch.fx.experimental.optimization import fuse\nmodel = fuse(model.eval())"
        ),
        reason=_folding_reason,
        step="inference",
        order="rewrite",
        gain=0.05,
    ),
    Candidate(
        id="channels-last",
        title="channels-last memory format",
        code=_code,
        reason=_channels_last_reason,
        order="layout",
        gain=0.1,
    ),
)
