"""The description of a measured target."""

from __future__ import annotations

from torchgauge.records.record import GradMode, Record


class InputDescription(Record, frozen=True, kw_only=True):
    """One tensor (or other value) of the example inputs."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = ""


class TargetDescription(Record, frozen=True, kw_only=True):
    """The model as it was run: where it came from, on what, with which inputs.

    `precision` is the dtype of the arithmetic that was asked for ("fp32", "bf16", …) or "native"
    where the model was left as it is; `precision_method` is "native", "cast", "autocast" or
    "tf32". `batch`, `tokens` and `images` per call are None where the inputs do not say.
    `runtime` is what runs an ONNX file, with its provider and level of optimisation. `grad_mode` is
    what torch did about gradients: another than inference mode where the forward needs gradients
    itself, and in training.
    """

    spec: str
    kind: str
    name: str
    device: str
    precision: str
    precision_method: str
    inputs: tuple[InputDescription, ...] = ()
    batch: int | None = None
    tokens: int | None = None
    images: int | None = None
    training: bool = False
    weights: str = "as given"
    runtime: str = ""
    grad_mode: GradMode = "inference_mode"

    @property
    def step(self) -> str:
        """What was run: a training step, or an inference, and its grad mode if not the usual."""
        if self.training:
            return "training step"
        usual = self.grad_mode == "inference_mode"
        return "inference" if usual else f"inference under torch.{self.grad_mode}"
