"""Code of kernels is loaded at their first launch, while the device has nothing to do."""

from __future__ import annotations

from torchgauge.analyze.findings.host.delay import delay_rule

RULE = delay_rule(
    "first-launches",
    "first launch",
    "first launches of kernels",
    remedy="They occur once: leave the first steps out of a measurement, and run the model "
    "before it serves. CUDA_MODULE_LOADING=EAGER loads all code at the start.",
    source="https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/lazy-loading.html",
)
