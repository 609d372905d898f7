"""The description of a measured target."""

from __future__ import annotations

import msgspec

from torchgauge.records.record import GradMode, MeasurementWarning, Record


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


class Facts(Record, frozen=True, kw_only=True):
    """A model as it stands: what is in it, what it runs on, what is installed beside it.

    `layers` are numbers of modules by class name. `dtypes` and sizes are of parameters;
    `image_inputs` says that a floating input has four dimensions; `float_args` and `float_kwargs`
    that floating tensors are among the inputs of each kind, and `plain_inputs` that all inputs are
    tensors. `attention` is what transformers' switch says ("" without a switch). `switches` are
    names of methods that switch something. `allocators` are preloadable libraries by name.
    `runtime` runs an ONNX file, with this `optimization` ("" for its own), and `openvino` says that
    it is installed. Sizes are in bytes, `step` and the user's `latency_limit` in seconds.
    `warnings` say who else used the machine.
    """

    target: TargetDescription
    module: bool = True
    layers: dict[str, int] = msgspec.field(default_factory=dict)
    dtypes: tuple[str, ...] = ("float32",)
    image_inputs: bool = False
    float_args: bool = True
    float_kwargs: bool = False
    plain_inputs: bool = True
    attention: str = ""
    switches: tuple[str, ...] = ()
    compiled: bool = False
    optimizer: str = ""
    parameter_bytes: int = 0
    trainable_bytes: int = 0
    activation_bytes: int | None = None
    memory: int | None = None
    step: float = 0.0
    threads: int = 1
    interop: int = 1
    cores: int = 1
    physical_cores: int | None = None
    compiler: bool = False
    torchao: bool = False
    tf32: bool = False
    fp16: bool = True
    bf16: bool = True
    glibc: bool = False
    allocators: dict[str, str] = msgspec.field(default_factory=dict)
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    runtime: str = ""
    openvino: bool = False
    optimization: str = ""
    latency_limit: float | None = None
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def training(self) -> bool:
        """Whether a training step is what is timed."""
        return self.target.training

    @property
    def cuda(self) -> bool:
        """Whether it runs on an NVIDIA GPU."""
        return self.target.device.startswith("cuda")

    @property
    def kind(self) -> str:
        """The kind of device: "cpu", "cuda"."""
        return self.target.device.partition(":")[0]

    def count(self, *names: str) -> int:
        """Return how many modules have one of these classes."""
        return sum(self.layers.get(name, 0) for name in names)
