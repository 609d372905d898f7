"""Where rows run, and the models that they measure."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from torchgauge.targets.placement import Placement
    from torchgauge.targets.target import TargetRequest

SPECS: dict[str, dict[str, Any]] = {
    "ResNet-50": {"spec": "torchvision:resnet50", "batch": 32},
    "ResNet-18": {"spec": "torchvision:resnet18", "batch": 32},
    "BERT": {"spec": "hf:bert", "inputs": ("input_ids=8x128:int64<30522",)},
    # The shape of Llama 3.2 1B.
    "Llama 1B": {
        "spec": "hf:llama?hidden_size=2048&intermediate_size=8192&num_hidden_layers=16"
        "&num_attention_heads=32&num_key_value_heads=8&vocab_size=128256",
        "inputs": ("input_ids=4x512:int64<128256",),
        "precision": "bf16",
    },
}
SPECS["BERT, 2 layers"] = SPECS["BERT"] | {"spec": "hf:bert?num_hidden_layers=2"}
SPECS["Llama 1B, 2 layers"] = SPECS["Llama 1B"] | {
    "spec": SPECS["Llama 1B"]["spec"].replace("layers=16", "layers=2")
}
# The same code paths in a second, on a CPU, of models whose names begin so.
TINY: dict[str, dict[str, Any]] = {
    "ResNet": {"spec": "torchvision:resnet18", "inputs": ("2x3x32x32",)},
    "BERT": {
        "spec": "hf:bert?hidden_size=32&intermediate_size=64&num_hidden_layers=1"
        "&num_attention_heads=2&vocab_size=100",
        "inputs": ("input_ids=1x8:int64<100",),
    },
    "Llama 1B": {
        "spec": "hf:llama?hidden_size=32&intermediate_size=64&num_hidden_layers=1"
        "&num_attention_heads=2&num_key_value_heads=1&vocab_size=100",
        "inputs": ("input_ids=1x8:int64<100",),
        "precision": "bf16",
    },
}


@dataclasses.dataclass(frozen=True)
class Machine:
    """The device of a run: "cuda:0", or "cpu" for a trial of the code.

    `tiny` takes small models and few repetitions. `recordings` is the folder to keep recordings in.
    `pretended` is a GPU that is a fake.
    """

    device: str
    tiny: bool = False
    recordings: Path | None = None
    pretended: bool = False

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def warm_up(self, call: Callable[[], object]) -> None:
        """Call for half a second: a GPU raises its clocks over some tenths of one."""
        end = time.monotonic() + self.seconds(0.5)
        while time.monotonic() < end:
            call()
            self.synchronize()

    def few(self, count: int) -> int:
        """Return how often to repeat: `count`, or 2 of a trial."""
        return 2 if self.tiny else count

    def seconds(self, budget: float) -> float:
        """Return how long to measure: `budget`, or 0.2 s of a trial."""
        return 0.2 if self.tiny else budget

    def request(self, name: str, *, device: str = "", training: bool = False) -> TargetRequest:
        """Return one of the models as the command line asks for it; it is trained in fp32."""
        from torchgauge.targets.target import TargetRequest

        tiny = next(settings for model, settings in TINY.items() if name.startswith(model))
        settings = dict(tiny if self.tiny else SPECS[name])
        if training:
            settings.pop("precision", None)
        return TargetRequest(device=device or self.device, training=training, **settings)

    def model(self, name: str, *, training: bool = False) -> Placement:
        """Load one of the models onto the device, with its inputs."""
        from torchgauge.measure.plan import opened
        from torchgauge.targets.builds.source import Source

        return opened(Source.of_request(self.request(name, training=training)))


def call_of(placement: Placement, model: nn.Module | None = None) -> Callable[[], Any]:
    """Return a call of the model in inference mode."""
    run: Any = placement.model if model is None else model
    if isinstance(run, nn.Module):
        run.eval()
    inputs = placement.inputs

    def call() -> Any:
        with torch.inference_mode():
            return run(*inputs.args, **inputs.kwargs)

    return call


def mean_square(outputs: Any, _: Any) -> torch.Tensor:
    """Return a loss of whatever a model puts out."""
    tensor = outputs if isinstance(outputs, torch.Tensor) else outputs[0]
    return tensor.float().square().mean()
