"""Dynamic int8: weights as bytes, activations quantised as they come.

A target under the settings of one cell: loaded, changed and placed in its own process.

All happens in `open`, so that a setting that fails ends that process only.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchgauge import units
from torchgauge.device.select import resolve
from torchgauge.errors import InputError, missing_extra
from torchgauge.targets import members
from torchgauge.targets.builds.source import Source
from torchgauge.targets.inputs.batching import check_call, with_batch, with_length
from torchgauge.targets.inputs.content import with_inputs
from torchgauge.targets.inputs.input_spec import InputSpec, parse_all
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import Placement, place
from torchgauge.targets.precisions import name_of
from torchgauge.targets.runtimes.runtime_model import RuntimeModel
from torchgauge.targets.runtimes.runtime_options import RuntimeOptions, in_runtime, is_onnx
from torchgauge.targets.target import Target, TargetRequest

LAYERS = (nn.Linear, nn.LSTM, nn.GRU)


def dynamic_int8(model: object, device: str) -> nn.Module:
    """Return the model with its linear layers (on the CPU also LSTM and GRU) in dynamic int8.

    The model is changed in place where torchao does it (GPU), copied by torch.ao (CPU). Raises
    InputError `int8-unsupported`, MissingExtraError.
    """
    if not isinstance(model, nn.Module):
        raise _unsupported("A plain callable has no layers that could be quantised.")
    kinds = LAYERS if device == "cpu" else (nn.Linear,)
    if not any(isinstance(layer, kinds) for layer in model.modules()):
        raise _unsupported("It has no layer of a kind that dynamic quantisation knows (Linear).")
    return _by_torch(model, set(kinds)) if device == "cpu" else _by_torchao(model)


def share(model: nn.Module) -> float:
    """Return the share of the parameters' bytes that lies in layers that get quantised."""
    layers = [layer for layer in model.modules() if isinstance(layer, LAYERS)]
    quantized_bytes = {id(p): p.nbytes for layer in layers for p in layer.parameters(recurse=False)}
    total_bytes = [p.nbytes for p in members.parameters(model)]
    return sum(quantized_bytes.values()) / max(sum(total_bytes), 1)


def _by_torch(model: nn.Module, kinds: set[type[nn.Module]]) -> nn.Module:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated in favour of torchao, and what there is
            from torch.ao.quantization import quantize_dynamic

            quantize: Callable[..., nn.Module] = quantize_dynamic
            return quantize(model, kinds, dtype=torch.qint8)
    except (ImportError, AttributeError, RuntimeError) as error:
        raise _unsupported(f"{type(error).__name__}: {error}") from error


def _by_torchao(model: nn.Module) -> nn.Module:
    if importlib.util.find_spec("torchao") is None:
        raise missing_extra("torchao", "torchao", "int8 on a GPU")
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return model


def _unsupported(cause: str) -> InputError:
    return InputError(
        "The model cannot run in dynamic int8.",
        id="int8-unsupported",
        cause=cause,
        remedy="Use bf16 or fp16, or quantise the model yourself and measure that.",
    )


IMAGES = 4  # dimensions of what channels-last is about
MODES = ("none", "default", "reduce-overhead", "max-autotune")


@dataclasses.dataclass(frozen=True)
class ModelWithInputs:
    """A model of the caller's, and the factory of its inputs: `make(batch, seq_len)`.

    `make` takes what of the two is given, or is the inputs themselves.
    """

    model: Callable[..., Any]
    make: Any


@dataclasses.dataclass(frozen=True)
class Variant(Source):
    """A source of which `open` applies a cell's settings; None leaves each as it is.

    `memory_limit` is the bytes that the process may have of its own (the data segment on Linux),
    or may take of a GPU.
    """

    target: TargetRequest | ModelWithInputs  # type: ignore[assignment]
    batch: int | None = None
    compile: str | None = None
    channels_last: bool | None = None
    threads: int | None = None
    interop: int | None = None
    seq_len: int | None = None
    optimization: str | None = None
    runtime: str | None = None
    memory_limit: int | None = None

    def open(self) -> Placement:
        """Load the target, change it as the settings say, and place it."""
        device = resolve(self.device) if self.device is not None else None
        self._limit(device)
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        target = self._target(device)
        check_call(target.model, target.inputs)
        own_runtime = isinstance(target.model, RuntimeModel)
        if self.interop is not None and not own_runtime:
            _set_interop(self.interop)
        placement = self._placed(target, device)
        if own_runtime or self.optimization or self.runtime:
            return self._in_runtime(placement)
        if self.channels_last:
            placement = _channels_last(placement)
        if self.compile not in (None, "none"):
            mode = None if self.compile == "default" else self.compile
            compiled = torch.compile(placement.model, mode=mode)
            placement = dataclasses.replace(placement, model=compiled)
        return placement

    def _in_runtime(self, placement: Placement) -> Placement:
        """Return what runs in a runtime with its threads between operators.

        Other changes are torch's, and those of ONNX files are theirs alone.
        """
        model = placement.model
        if not isinstance(model, RuntimeModel) or (
            (self.optimization or self.runtime) and not is_onnx(model.path.name)
        ):
            raise InputError(
                f"{placement.target.name} is not an ONNX file.",
                id="runtime-unsupported",
                cause="Runtimes and levels of graph optimisation are those of ONNX files.",
                remedy="Leave these axes out.",
            )
        if self.channels_last or self.compile not in (None, "none"):
            raise InputError(
                f"{model.path.name} is not compiled or reordered by torch.",
                id="runtime-unsupported",
                remedy="Leave --compile and --channels-last out; an ONNX file has --optimization.",
            )
        if self.interop is None:
            return placement
        return dataclasses.replace(placement, model=model.with_interop(self.interop))

    def _limit(self, device: str | None) -> None:
        if self.memory_limit is None:
            return
        if device is not None and device.startswith("cuda"):
            capacity = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(
                min(self.memory_limit / capacity, 1.0), device
            )
        elif sys.platform == "linux":
            import resource

            resource.setrlimit(resource.RLIMIT_DATA, (self.memory_limit, self.memory_limit))

    def _target(self, device: str | None) -> Target:
        if isinstance(self.target, ModelWithInputs):
            target = _target_of_object(self.target, self.batch, self.seq_len)
        else:
            from torchgauge.targets.loaders.load import load

            precision = None if self.precision == "int8" else self.precision
            request = dataclasses.replace(
                self.target, batch=self.batch, device=device or "cpu", precision=precision,
                runtime=self._runtime(self.target.runtime),
            )  # fmt: skip
            if self.seq_len is not None and in_runtime(request.spec):
                # A graph's work is counted for the sizes that it is read with.
                return load(_request_of_length(request, self.seq_len))
            target = load(request)
        if self.seq_len is None or (
            isinstance(self.target, ModelWithInputs) and callable(self.target.make)
        ):
            return target
        return with_inputs(target, with_length(target.inputs, self.seq_len))

    def _runtime(self, options: RuntimeOptions) -> RuntimeOptions:
        return dataclasses.replace(
            options,
            runtime=self.runtime or options.runtime,
            optimization=self.optimization or options.optimization,
        )

    def _placed(self, target: Target, device: str | None) -> Placement:
        if self.precision != "int8":
            return place(target, device=device, precision=self.precision, owned=True)
        placement = place(target, device=device, owned=True)
        model = placement.model
        weights = share(model) if isinstance(model, nn.Module) else 0.0
        return dataclasses.replace(
            placement,
            model=dynamic_int8(model, placement.device),
            precision="int8",
            method=f"dynamic, {units.percent(weights)} of the weights",
        )


def _request_of_length(request: TargetRequest, length: int) -> TargetRequest:
    """Return the request of a graph's file with inputs whose sequences have `length`."""
    from torchgauge.targets.loaders.load import load

    inputs = with_length(load(dataclasses.replace(request, device="meta")).inputs, length)
    specs = parse_all(request.inputs)
    named = {spec.name: spec for spec in specs if spec.name in inputs.kwargs}
    unnamed = (spec for spec in specs if spec.name not in named)
    sized = []
    for name, tensor in (*((None, value) for value in inputs.args), *inputs.kwargs.items()):
        spec = named.get(name) or next(unnamed, InputSpec(name, ()))
        sized.append(dataclasses.replace(spec, name=name, shape=tuple(tensor.shape)))
    return dataclasses.replace(request, inputs=tuple(sized), batch=None)


def _target_of_object(subject: ModelWithInputs, batch: int | None, seq_len: int | None) -> Target:
    if callable(subject.make):
        sizes = [size for size in (batch, seq_len) if size is not None]
        inputs = Inputs.of(subject.make(*sizes))
    else:
        inputs = Inputs.of(subject.make)
        inputs = inputs if batch is None else with_batch(inputs, batch)
    name = name_of(subject.model)
    kind = "module" if isinstance(subject.model, nn.Module) else "callable"
    return with_inputs(Target(subject.model, inputs, spec=name, kind=kind, name=name), inputs)


def _channels_last(placement: Placement) -> Placement:
    model = placement.model
    images = [t for _, t in placement.inputs.tensors() if t.dim() == IMAGES]
    if not images or not isinstance(model, nn.Module):
        raise InputError(
            "Channels-last is not possible here.",
            id="channels-last-unsupported",
            cause="It is an order of tensors of four dimensions, and no input has four."
            if not images
            else "A plain callable has no weights that could be reordered.",
            remedy="Leave --channels-last out.",
        )

    def reordered(tensor: torch.Tensor) -> torch.Tensor:
        form = torch.channels_last if tensor.dim() == IMAGES else torch.preserve_format
        return tensor.contiguous(memory_format=form) if tensor.dim() == IMAGES else tensor

    inputs = placement.inputs.map(reordered)
    changed = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return dataclasses.replace(placement, model=changed, inputs=inputs)


def _set_interop(number: int) -> None:
    try:
        torch.set_num_interop_threads(number)
    except RuntimeError as error:
        raise InputError(
            "The number of interop threads cannot be set.",
            id="interop-unsupported",
            cause=f"torch takes it once, before parallel work began: {error}",
            remedy="Take torch.set_num_interop_threads out of the model's file.",
        ) from error
