"""The target of a measurement: a model with its inputs, and the request that loads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchgauge.device.select import device_named
from torchgauge.errors import InputError, option_conflict, option_invalid
from torchgauge.records.onnx.graph import Graph
from torchgauge.targets.inputs.input_spec import InputSpec
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.precisions import precision_named
from torchgauge.targets.runtimes.runtime_options import (
    USUAL_RUNTIME,
    RuntimeOptions,
    in_runtime,
    is_onnx,
    is_program,
)


@dataclasses.dataclass(frozen=True)
class TargetRequest:
    """A target as given on the command line; enough to load it again in another process.

    Attributes:
        spec: What to load: `file.py:factory`, `torchvision:NAME`, a folder.
        inputs: The texts of --input, or what they say.
        own_inputs: Whether the caller gives the values: `inputs` are their sizes.
        weights: A state dict to load.
        batch: Replaces the leading dimension of the inputs.
        device: "cpu", "cuda", "cuda:N", "meta", or "auto" until a `Source` is made of it.
        precision: None leaves the model as it is.
        training: Asks for inputs with labels where the target knows them.
        trust: Allows files that hold a program.
        loss: The text of --loss; None is the loss that the model returns.
        optimizer: The text of --optimizer; None is AdamW.
        runtime: How an ONNX file is run.
        etrecord: How a program of ExecuTorch was lowered: its layers and parameters.

    Device and precision are kept by the names that the program has for them.

    Raises InputError `option-invalid`, `device-unknown`, `precision-unknown`.
    """

    spec: str
    inputs: tuple[str | InputSpec, ...] = ()
    weights: Path | None = None
    batch: int | None = None
    device: str = "cpu"
    precision: str | None = None
    training: bool = False
    trust: bool = False
    loss: str | None = None
    optimizer: str | None = None
    runtime: RuntimeOptions = USUAL_RUNTIME
    etrecord: Path | None = None
    own_inputs: bool = False

    def __post_init__(self) -> None:
        if self.batch is not None and self.batch < 1:
            raise option_invalid(
                f"batch = {self.batch} is not possible.",
                "Give the batch as 1 or more.",
                cause="A batch holds at least one sample.",
            )
        object.__setattr__(self, "device", device_named(self.device))
        self._check_runtime()
        if self.precision is not None:
            object.__setattr__(self, "precision", precision_named(self.precision))

    @property
    def in_own_process(self) -> bool:
        """Whether the target runs code or a library that the caller's process is kept from."""
        return self.trust or (is_onnx(self.spec) and self.device != "meta")

    def _check_runtime(self) -> None:
        """Refuse options of runtimes for other targets; what a file takes is on the host."""
        program = is_program(self.spec)
        if self.etrecord is not None and not program:
            raise option_conflict(
                "--etrecord belongs to a program of ExecuTorch (.pte).", "Leave it out."
            )
        if not in_runtime(self.spec):
            return
        if program and self.runtime != USUAL_RUNTIME:
            raise InputError(
                "A program of ExecuTorch runs in ExecuTorch's runtime, as it was lowered.",
                id="runtime-unsupported",
                cause="ONNX files alone have runtimes, providers and levels of optimisation.",
                remedy="Leave the option out.",
            )
        subject = "A program of ExecuTorch" if program else "An ONNX file"
        if self.device == "auto":
            object.__setattr__(self, "device", "cpu")
        if self.device not in ("cpu", "meta"):
            raise option_conflict(
                f"{subject} does not run on --device {self.device}.",
                "Leave --device out: it runs where it was lowered for."
                if program
                else "Give --provider cuda in place of --device.",
                cause="What runs it is a provider of its runtime; its inputs are on the host.",
            )
        if self.training or self.precision is not None:
            raise option_conflict(
                f"{subject} is measured as it is: without a training step, in its own precision.",
                "Leave --train and --precision out, or measure the torch model.",
            )
        if self.runtime.custom_ops and not self.trust:
            raise InputError(
                "A library of custom operators was not loaded: its code would run.",
                id="untrusted-file",
                remedy="If you trust it, add --trust.",
            )


@dataclasses.dataclass(frozen=True)
class Target:
    """A loaded model (or any callable) with example inputs.

    `kind` names how it was got ("module", "callable", "python", "torchvision", "timm",
    "huggingface", "exported", "aotinductor", "torchscript", "onnx", "executorch"); `files` are the
    weight files that were read; `graph` is what an ONNX file or an ExecuTorch program computes;
    `tokens` and `images` are what one call processes, None where nothing says so.
    """

    model: Callable[..., Any]
    inputs: Inputs
    spec: str
    kind: str
    name: str
    weights: str = "as given"
    files: tuple[Path, ...] = ()
    batch: int | None = None
    tokens: int | None = None
    images: int | None = None
    graph: Graph | None = None
