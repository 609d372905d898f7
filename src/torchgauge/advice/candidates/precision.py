"""Fewer bits: by autocast, by a cast, or TF32 inside matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.advice.candidate import ByLayer, Candidate, converted, fixed, layer_condition
from torchgauge.records.target import Facts

# Relative to the largest output: eight bits of bf16 and eleven of fp16, some layers deep.
BF16, FP16, TF32 = 5e-2, 1e-2, 1e-2
# Layers of one input and one output, around which the numbers can be cast.
KINDS = ("Linear", "Conv1d", "Conv2d", "Conv3d")


def _autocast(dtype: str) -> Candidate:
    short = {"bfloat16": "bf16", "float16": "fp16"}[dtype]

    def code(facts: Facts) -> str:
        return f'model.forward = torch.autocast("{facts.kind}", torch.{dtype})(model.forward)'

    return Candidate(
        id=f"{short}-autocast",
        title=f"{short} by autocast",
        code=code,
        reason=lambda facts: _reason(facts, short),
        group="precision",
        tolerance=BF16 if short == "bf16" else FP16,
        gain=0.2 if short == "bf16" else 0.1,
    )


def _cast(dtype: str) -> Candidate:
    short = {"bfloat16": "bf16", "float16": "fp16"}[dtype]

    def code(facts: Facts) -> str:
        to = f"to(torch.{dtype}) if {{0}}.is_floating_point() else {{0}}"
        return converted(facts, f"model = model.to(torch.{dtype})", to)

    def reason(facts: Facts) -> str | None:
        if (facts.float_args or facts.float_kwargs) and not facts.plain_inputs:
            return "Its inputs are not plain tensors, which could be cast one by one."
        return _reason(facts, short)

    return Candidate(
        id=f"{short}-cast",
        title=f"{short} weights",
        code=code,
        reason=reason,
        step="inference",
        order="cast",
        group="precision",
        tolerance=BF16 if short == "bf16" else FP16,
        gain=0.3 if short == "bf16" else 0.1,
        by_layer=_layers_cast(dtype),
    )


def _layers_cast(dtype: str) -> ByLayer:
    def code(facts: Facts, paths: Sequence[str]) -> str:
        condition = layer_condition(KINDS, facts, paths)
        return (
            f"for m in [m for n, m in model.named_modules() if {condition}]:\n"
            f"    m.to(torch.{dtype}).register_forward_pre_hook("
            f"lambda _, args: (args[0].to(torch.{dtype}),))\n"
            "    m.register_forward_hook(lambda _, args, output: output.float())"
        )

    return ByLayer(KINDS, code)


def _reason(facts: Facts, short: str) -> str | None:
    if "float32" not in facts.dtypes:
        return "The model has no fp32 weights."
    if short == "bf16" and not facts.bf16:
        return "The device has no bf16 arithmetic."
    if short == "fp16" and not facts.fp16:
        return "The device has no fp16 arithmetic."
    if short == "fp16" and facts.training:
        return "Training in fp16 needs a scaler in your loop: profile it with tg.Training(scaler=)."
    return None


def _tf32(facts: Facts) -> str | None:
    if not facts.cuda:
        return "TF32 exists on NVIDIA GPUs only."
    if not facts.tf32:
        return "The GPU is older than Ampere and has no TF32."
    return None if "float32" in facts.dtypes else "The model has no fp32 weights."


CANDIDATES = (
    _autocast("bfloat16"),
    _cast("bfloat16"),
    _autocast("float16"),
    _cast("float16"),
    Candidate(
        id="tf32",
        title="TF32 in matrix products",
        code=fixed(
            "torch.backends.cuda.matmul.allow_tf32 = True\ntorch.backends.cudnn.allow_tf32 = True"
        ),
        reason=_tf32,
        order="process",
        group="precision",
        tolerance=TF32,
        gain=0.3,
    ),
)
