"""The model of a ModelProfiler: loaded once, measured by `api`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from torchgauge.api import profiles
from torchgauge.api.preparation import measuring, require_torch
from torchgauge.compat.subject import given_inputs, is_torch
from torchgauge.errors import InputError, option_invalid
from torchgauge.measure.latency.latency_options import LatencyOptions, SamplingPlan
from torchgauge.records.latency.latency import Latency
from torchgauge.records.profile import Profile
from torchgauge.targets.inputs.inputs import Inputs

EXAMPLE = "1x3x224x224"
CONFIGURABLE = ("batch_size", "precision", "device")


class HeldModel:
    """A model with its device and precision; `model` is a Target where it was loaded by name."""

    def __init__(
        self, model_or_path: Any, device: str | None, precision: str | None, *, trust: bool = False
    ) -> None:
        self.model_or_path, self.precision, self.trust = model_or_path, precision, trust
        self.named = isinstance(model_or_path, str | Path)
        if self.named or device not in (None, "cpu"):
            require_torch()
        self.device = _resolved(device, named=self.named)
        self.model: Any = None if self.named else model_or_path
        if self.named:
            self._load()

    def _load(self, texts: tuple[str, ...] = ()) -> None:
        """Load the target; where it needs inputs from the caller, they come with the first call."""
        from torchgauge.targets.loaders.load import load
        from torchgauge.targets.target import TargetRequest

        request = TargetRequest(
            str(self.model_or_path), texts, device=self.device or "cpu", precision=self.precision,
            trust=self.trust,
        )  # fmt: skip
        try:
            self.model = load(request)
        except InputError as error:
            if error.id == "untrusted-file":
                error.remedy = "If you trust the file, give trust=True: it is loaded here."
            if texts or error.id != "input-missing":
                raise
            error.remedy = f"Give profile() a tensor, a mapping by name, or shapes: '{EXAMPLE}'."
            self._missing = error

    def profile(
        self,
        input_data: Any,
        *,
        warmup: int | None = None,
        iterations: int | None = None,
        detail: Any = "summary",
    ) -> Profile:
        """Return the record of the model with these inputs. Raises as `tg.profile`."""
        inputs = self.inputs(input_data)
        if not self._uses_torch(inputs):
            from torchgauge.compat.arrays.profile import profile

            return profile(self.model, inputs, SamplingPlan(warmup, iterations))
        return profiles.profile(
            self.model, inputs, device=self.device, precision=self.precision, detail=detail,
            warmup=warmup, iterations=iterations,
        )  # fmt: skip

    def end_to_end(
        self,
        input_data: Any,
        preprocess: Callable[[Any], Any] | None,
        postprocess: Callable[[Any], Any] | None,
        **options: Any,
    ) -> Latency:
        """Return the latency with its stages around the model."""
        require_torch()
        from torchgauge.measure.plan import measure_latency
        from torchgauge.targets.builds.source import Source

        source = Source.of_object(
            self.model,
            input_data,
            device=self.device,
            precision=self.precision,
            raw=preprocess is not None,
        )
        latency = LatencyOptions(preprocess=preprocess, postprocess=postprocess, **options)
        with measuring(None) as progress:
            return measure_latency(source, latency, progress)

    def inputs(self, input_data: Any) -> Inputs:
        """Return the inputs of a call: those given, else the target's own.

        The model's own path, given again, stands for the target's inputs. Raises InputError
        `input-missing` where there are none, `other-model` for a path of another one.
        """
        if self._is_own_path(input_data):
            input_data = None
        if self.named and self.model is None:
            if input_data is None:
                raise self._missing
            self._load(("1",))  # any will do: what is given replaces it
        if input_data is None:
            own = getattr(self.model, "inputs", None) if self.named else None
            return own if isinstance(own, Inputs) else Inputs()
        texts = _texts(input_data)
        if texts:
            return _parsed_inputs(texts)
        call_inputs = given_inputs(input_data)
        return (
            _as_tensors(call_inputs, self.model) if self._uses_torch(call_inputs) else call_inputs
        )

    def _is_own_path(self, input_data: Any) -> bool:
        """Return whether it names this model. Raises InputError `other-model` for another path."""
        if not isinstance(input_data, str | Path) or not str(input_data):
            return False
        if self.named and _same_target(str(self.model_or_path), str(input_data)):
            return True
        if isinstance(input_data, str) and not _exists(input_data):
            return False  # a text of shapes
        held_name = (
            str(self.model_or_path) if self.named else f"a {type(self.model_or_path).__name__}"
        )
        raise InputError(
            f"{str(input_data)!r} is not the model of this profiler, and no inputs.",
            id="other-model",
            cause=f"It holds {held_name}.",
            remedy="Make a ModelProfiler of that path, or give this one tensors or shapes.",
        )

    def _uses_torch(self, inputs: Inputs) -> bool:
        if self.named or is_torch(self.model, inputs):
            return True
        if self.device not in (None, "cpu") or self.precision is not None:
            raise InputError(
                "A model without torch has no device and no precision to choose.",
                id="not-a-module",
                cause=f"It is a {type(self.model).__name__}, and its inputs are not tensors.",
                remedy="Leave device and precision out, or give a torch.nn.Module.",
            )
        return False

    def configured(
        self, configuration: Mapping[str, Any], input_data: Any
    ) -> tuple[HeldModel, Inputs]:
        """Return the model and inputs of a benchmark's configuration.

        Raises InputError `option-unknown`, `option-invalid`, and as a new ModelProfiler does.
        """
        unknown = [name for name in configuration if name not in CONFIGURABLE]
        if unknown:
            raise InputError(
                f"A configuration has no '{unknown[0]}'.",
                id="option-unknown",
                remedy=f"Give {', '.join(CONFIGURABLE)}.",
            )
        inputs = self.inputs(input_data)
        batch = configuration.get("batch_size")
        device = configuration.get("device")
        other = self._with(
            _resolved(device, named=False) if device else self.device,
            configuration.get("precision", self.precision),
        )
        return other, inputs if batch is None else _repeated(inputs, batch)

    def on_gpu(self) -> HeldModel:
        """Return the model to be measured on the GPU. Raises InputError `device-absent`."""
        require_torch()
        on_cuda = self.device is not None and self.device.startswith("cuda")
        return self if on_cuda else self._with(_resolved("cuda", named=False), self.precision)

    def _with(self, device: str | None, precision: str | None) -> HeldModel:
        other = object.__new__(HeldModel)
        other.__dict__.update(self.__dict__, device=device, precision=precision)
        return other

    def nvtx(self, input_data: Any) -> None:
        """Run some steps with layers as NVTX ranges. Raises MeasurementError `nvtx-unavailable`."""
        from torchgauge.measure.timeline import ranges

        ranges.check_available()
        from torchgauge.targets.builds.source import Source

        source = Source.of_object(
            self.model, self.inputs(input_data), device=self.device, precision=self.precision
        )
        ranges.run(source.open(), train=None)


def _resolved(device: str | None, *, named: bool) -> str | None:
    """Return torch's name of the device; a target that is loaded goes to the CPU unless told."""
    from torchgauge.device.select import resolve

    return resolve(device) if device is not None or named else None


def _same_target(first: str, second: str) -> bool:
    """Return whether two texts name one target, as they stand or as paths."""
    paths = Path(first), Path(second)
    return first == second or (_exists(first) and paths[0].resolve() == paths[1].resolve())


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long for a path, or with a null character
        return False


def _texts(input_data: Any) -> tuple[str, ...]:
    """Return the inputs where they are written as on the command line, else nothing."""
    if isinstance(input_data, str):
        return (input_data,)
    several = isinstance(input_data, tuple | list) and bool(input_data)
    return (
        tuple(input_data) if several and all(isinstance(text, str) for text in input_data) else ()
    )


def _parsed_inputs(texts: tuple[str, ...]) -> Inputs:
    from torchgauge.targets.inputs.fake_tensors import RandomTensors
    from torchgauge.targets.inputs.input_spec import make_inputs

    try:
        return make_inputs(texts, None, RandomTensors("cpu"))
    except InputError as error:
        error.message = error.message.replace("--input", "The input")
        raise


def _as_tensors(inputs: Inputs, model: Any) -> Inputs:
    """Return the inputs with arrays as tensors of their own, in float32 unless the model has more.

    NumPy makes float64 where nobody said so.
    """
    torch = sys.modules["torch"]
    from torchgauge.targets import members
    from torchgauge.targets.hygiene import module_of
    from torchgauge.targets.modules import check_tree
    from torchgauge.targets.target import Target

    module = module_of(model.model if isinstance(model, Target) else model)
    if module is not None:
        check_tree(module)
    wide = module is None or any(
        tensor.dtype == torch.float64 for tensor in members.tensors(module)
    )

    def convert(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        tensor = torch.from_numpy(np.array(value))
        return tensor if wide or tensor.dtype != torch.float64 else tensor.float()

    return inputs.map_arguments(convert)


def _repeated(inputs: Inputs, batch: int) -> Inputs:
    """Return the inputs with samples taken in turn until there are `batch`."""
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise option_invalid(
            f"batch_size = {batch!r} is not possible.", "Give a batch_size of 1 or more."
        )

    def repeat(value: Any) -> Any:
        shape: Any = getattr(value, "shape", ())
        if not len(shape) or not shape[0]:
            return value
        return value[[row % shape[0] for row in range(batch)]]

    return inputs.map_arguments(repeat)
