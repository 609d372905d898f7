"""Which files run in a runtime of their own, and how an ONNX file does."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from torchgauge.errors import InputError, option_conflict
from torchgauge.similar import did_you_mean, similar

RUNTIMES = ("onnxruntime", "openvino")
# The levels of graph optimisation, by ONNX Runtime's own names.
LEVELS = {
    "off": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}


@dataclasses.dataclass(frozen=True)
class RuntimeOptions:
    """How an ONNX file is run.

    Attributes:
        runtime: "onnxruntime" or "openvino".
        provider: An execution provider of ONNX Runtime ("cpu", "cuda"), a device of OpenVINO
            ("cpu", "gpu"); None is the CPU.
        optimization: How far ONNX Runtime optimises the graph: "off", "basic", "extended" or
            "all"; None is as it does by itself, which is "all".
        custom_ops: Libraries of custom operators; their code runs.

    Raises InputError `runtime-unknown`, `optimization-unknown`, `option-conflict`.
    """

    runtime: str = RUNTIMES[0]
    provider: str | None = None
    optimization: str | None = None
    custom_ops: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        _check("runtime", self.runtime, RUNTIMES)
        if self.optimization is not None:
            _check("optimization", self.optimization, tuple(LEVELS))
        if self.runtime != RUNTIMES[0] and (self.optimization or self.custom_ops):
            raise option_conflict(
                "Graph optimisation levels and custom operator libraries are ONNX Runtime's.",
                "Leave the option out, or give --runtime onnxruntime.",
                cause=f"The runtime is {self.runtime}.",
            )


def is_onnx(spec: str) -> bool:
    """Return whether a target is an ONNX file, by its name."""
    return spec.lower().endswith(".onnx")


def is_program(spec: str) -> bool:
    """Return whether a target is a program of ExecuTorch, by its name."""
    return spec.lower().endswith(".pte")


def in_runtime(spec: str) -> bool:
    """Return whether a target runs in another runtime than torch, by its name."""
    return is_onnx(spec) or is_program(spec)


def check_in_runtime(options: RuntimeOptions, *specs: str) -> None:
    """Raise InputError `runtime-unsupported` for options of a runtime where no target has one."""
    if options != USUAL_RUNTIME and not any(in_runtime(spec) for spec in specs):
        raise InputError(
            f"{specs[0]} runs in torch.",
            id="runtime-unsupported",
            cause="Runtimes, providers, levels of optimisation and libraries of custom operators "
            "are those of ONNX files.",
            remedy="Leave the option out, or give an .onnx file.",
        )


def _check(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(
            f"There is no {name} '{value}'.",
            id=f"{name}-unknown",
            remedy=did_you_mean(
                similar(value, choices, limit=1), f"Give one of {', '.join(choices)}."
            ),
        )


USUAL_RUNTIME = RuntimeOptions()
