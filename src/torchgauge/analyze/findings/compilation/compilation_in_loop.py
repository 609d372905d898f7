"""torch.compile compiles, or Triton tunes, in steps that should only run."""

from __future__ import annotations

from torchgauge.analyze.findings.host.delay import delay_rule

RULE = delay_rule(
    "compilation",
    "compilation",
    "compilation",
    remedy="Compile before, by steps with each shape that occurs. TORCH_LOGS=recompiles says "
    "why code is compiled again; for shapes that vary torch.compile(dynamic=True), or padding "
    "to few sizes.",
    source="https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/compile/programming_model.recompilation.html",
    explains=("idle-host", "hottest-operator", "outside-layers"),
)
