"""Saved programs beside the models that they were made of: layers, FLOPs, time.

    python benchmarks/exported_programs.py [--only NAME] [--forms FORM …] [--seconds S]

Each model is exported, traced and scripted, saved, and loaded as `torchgauge profile FILE --trust`
does; some are compiled by AOTInductor as well. Of each program: layers whose calls, parameters and
FLOPs are those of the model's own count; its FLOPs less the model's; the time of a call over the
model's, in turn; and what running its layers from Python costs over running it flat, in turn.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import torchgauge as tg
from onnx_models import builders
from torchgauge.analyze.statistics.median import median_interval
from torchgauge.targets.loaders.load import load
from torchgauge.targets.target import Target, TargetRequest

MODELS = (
    "torchvision-resnet18 torchvision-mobilenet_v3_small torchvision-squeezenet1_0 "
    "torchvision-shufflenet_v2_x1_0 torchvision-efficientnet_b0 torchvision-vit_b_32 "
    "timm-levit_128s timm-mixer_s32_224 timm-deit_tiny_patch16_224 transformers-BertModel "
    "transformers-GPT2Model transformers-LlamaModel transformers-ViTModel"
)
PACKAGED = ("torchvision-resnet18", "transformers-BertModel")
ROUNDS = 15  # at least, whatever they take


class Ratio(NamedTuple):
    """A median of ratios of times that were measured in turn, with its interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} … {self.high:.3f})"


class Layer(NamedTuple):
    """What a count says of a layer."""

    calls: int
    parameters: int
    flops: int


def exported(model: torch.nn.Module, inputs: torch.Tensor, path: Path) -> Path:
    """Save the model as torch.export writes it."""
    torch.export.save(torch.export.export(model, (inputs,)), path.with_suffix(".pt2"))
    return path.with_suffix(".pt2")


def traced(model: torch.nn.Module, inputs: torch.Tensor, path: Path) -> Path:
    """Save the model as a trace."""
    torch.jit.save(torch.jit.trace(model, inputs, strict=False), path.with_suffix(".ts"))
    return path.with_suffix(".ts")


def scripted(model: torch.nn.Module, _: torch.Tensor, path: Path) -> Path:
    """Save the model as a script, which many models cannot be."""
    torch.jit.save(torch.jit.script(model), path.with_suffix(".script.ts"))
    return path.with_suffix(".script.ts")


def packaged(model: torch.nn.Module, inputs: torch.Tensor, path: Path) -> Path:
    """Compile the model by AOTInductor."""
    program = torch.export.export(model, (inputs,))
    package = path.with_suffix(".package.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=str(package))
    return package


FORMS = {"exported": exported, "traced": traced, "scripted": scripted, "packaged": packaged}


def in_turn(first: Callable[[], object], second: Callable[[], object], seconds: float) -> Ratio:
    """Return the time of the second over that of the first, called in turn."""
    ratios = []
    for _ in range(3):
        first()
        second()
    end = time.perf_counter() + seconds
    while len(ratios) < ROUNDS or time.perf_counter() < end:
        order = (first, second) if len(ratios) % 2 else (second, first)
        times = {}
        for call in order:
            begin = time.perf_counter()
            call()
            times[call] = time.perf_counter() - begin
        ratios.append(times[second] / times[first])
    interval = median_interval(ratios)
    middle = sorted(ratios)[len(ratios) // 2]
    return Ratio(middle, *((interval.low, interval.high) if interval else (middle, middle)))


def by_layer(model: Any, inputs: torch.Tensor) -> tuple[dict[str, Layer], int]:
    """Return calls, parameters and FLOPs of each layer, and the FLOPs of all."""
    cost = tg.count_cost(model, inputs)
    flops: Counter[int] = Counter()
    for row in cost.rows:
        flops[row.node] += row.matmul_flops + row.vector_flops
    layers = {
        node.path: Layer(node.calls, node.parameters, flops[number])
        for number, node in enumerate(cost.nodes)
        if node.path
    }
    return layers, cost.flops


def layers_text(model: Any, program: Any, inputs: torch.Tensor) -> str:
    """Return how many layers are equal, absent or different, and by how much FLOPs differ."""
    truth, flops = by_layer(model, inputs)
    counted, own = by_layer(program, inputs)
    common = truth.keys() & counted.keys()
    equal = sum(truth[path] == counted[path] for path in common)
    absent = [path for path in truth if path not in counted and truth[path].flops]
    text = f"layers {equal:3} of {len(common):3} equal, {len(absent)} with FLOPs absent"
    return f"{text}; FLOPs {own - flops:+,} of {flops:,}"


def layered_cost(program: Any, inputs: torch.Tensor, seconds: float) -> str:
    """Return the time of a call whose layers run from Python over that of the flat one."""
    if hasattr(program, "bodies"):
        flat, layered = program.bodies
        ratio = in_turn(lambda: flat(program, inputs), lambda: layered(program, inputs), seconds)
        return str(ratio)
    if hasattr(program, "run_layers"):
        ratio = in_turn(lambda: program.script(inputs), lambda: program.run_layers(inputs), seconds)
        return str(ratio)
    return "no layers"


def loaded(path: Path, inputs: torch.Tensor) -> Target:
    """Load the program as the command does, in this process."""
    kind = str(inputs.dtype).removeprefix("torch.")
    spec = f"{'x'.join(map(str, inputs.shape))}:{kind}"
    return load(TargetRequest(str(path), inputs=(spec,), trust=True))


def row(name: str, form: str, folder: Path, seconds: float) -> str:
    """Return the line of one program; what making it raises is its text."""
    model, inputs = builders()[name]()
    try:
        with torch.no_grad():
            path = FORMS[form](model, inputs, folder / name)
            program: Any = loaded(path, inputs).model
    except Exception as error:  # noqa: BLE001 - an exporter may raise anything
        return f"not made: {type(error).__name__}: {str(error).strip().splitlines()[-1][:90]}"
    with torch.inference_mode():
        ratio = in_turn(lambda: model(inputs), lambda: program(inputs), seconds)
        if form == "packaged":
            return f"time {ratio} of eager; {path.stat().st_size / 1e6:.1f} MB"
        layers = layered_cost(program, inputs, seconds)
    return f"{layers_text(model, program, inputs)}; time {ratio} of eager, layered {layers} of flat"


def main() -> None:
    """Print a line for each program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="part of the models' names")
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--packaged", nargs="*", default=PACKAGED, help="what AOTInductor compiles")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each comparison")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS.split():
            for form in options.forms:
                if options.only not in name or (
                    form == "packaged" and name not in options.packaged
                ):
                    continue
                text = row(name, form, Path(folder), options.seconds)
                print(f"{name:32} {form:9} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
