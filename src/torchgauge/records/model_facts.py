"""Facts of a model that candidates need before a trial; readable without torch."""

from __future__ import annotations

import msgspec

from torchgauge.records.record import MeasurementWarning, Record
from torchgauge.records.target import TargetDescription


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
