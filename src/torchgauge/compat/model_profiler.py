"""ModelProfiler: one object for a model, its measurements and its reports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from torchgauge.api import profiles
from torchgauge.api.preparation import measuring, require_torch
from torchgauge.compat import results as layer_figures
from torchgauge.compat.results import Figures, Results, rows_in_ms
from torchgauge.compat.subject import given_inputs, is_torch
from torchgauge.errors import InputError, MeasurementError, option_invalid
from torchgauge.measure.latency.latency_options import LatencyOptions, SamplingPlan
from torchgauge.records import rendering
from torchgauge.records.latency.latency import Latency
from torchgauge.records.profile import Profile
from torchgauge.targets.inputs.inputs import Inputs

TRANSFERS = ("memcpy", "memset")


def memory(
    record: Profile, *, allocations: bool, deallocations: bool, snapshots: bool
) -> dict[str, Any]:
    """Return the memory of a call, in bytes, and the requested parts of its course.

    Of more than 2,000 events the record keeps the highest and lowest of equal stretches: rises and
    falls are then "at least".
    """
    usage = record.memory
    if usage is None:
        return {"peak": None, "average": None, "parts": {}}
    fragmentation = usage.fragmentation
    steps = [after.live - before.live for before, after in pairwise(usage.timeline)]
    result: dict[str, Any] = {
        "peak": usage.peak,
        "average": usage.average,
        "per_sample": usage.per_sample,
        "parts": usage.parts,
        "fragmentation": None if fragmentation is None else fragmentation.reserved_unused,
        "method": usage.method,
    }
    if allocations:
        result["allocations"] = _events([step for step in steps if step > 0], bool(steps))
    if deallocations:
        result["deallocations"] = _events([-step for step in steps if step < 0], bool(steps))
    if snapshots:
        result["snapshots"] = [
            {"time": point.time * 1e-6, "bytes": point.live} for point in usage.timeline
        ]
    return result


def _events(sizes: list[int], recorded: bool) -> dict[str, Any]:
    if not recorded:
        return {"count": None, "bytes": None, "largest": None}
    return {"count": len(sizes), "bytes": sum(sizes), "largest": max(sizes, default=0)}


def gpu(record: Profile, *, kernels: bool, transfers: bool, nvtx: bool) -> dict[str, Any]:
    """Return what the GPU did, in ms and bytes, with rows of kernels and copies."""
    rows = [] if record.tree is None else rows_in_ms(record.table("kernels"))
    copies = [row for row in rows if row["name"].lower().startswith(TRANSFERS)]
    latency, system = record.latency, record.system
    used = system.gpus[0] if system is not None and system.gpus else None
    device_time = None if latency is None else latency.device_time
    result: dict[str, Any] = {
        "device": record.target.device,
        "device_time": None if device_time is None else device_time * 1e3,
        "utilization": None if used is None or used.utilization is None else used.utilization.mean,
        "memory": None if used is None or used.memory is None else used.memory.max,
        "nvtx": nvtx,
    }
    if kernels:
        result["kernels"] = [row for row in rows if row not in copies]
    if transfers:
        result["memory_transfers"] = copies
    return result


GRAPHS = ("roofline", "latency", "memory", "system")
DETAILS = ("tree", "tables", "method", "environment")
FEW_RUNS, FEW_WARMUP = 50, 5


class ModelProfiler:
    """Profile a model: a path or target as the command line takes it, a module, or any callable.

    `device` ("cpu", "cuda", "cuda:N", "auto") and `precision` ("fp32", "tf32", "bf16", "fp16") None
    leave the model as it is; a change is made on a copy. An array of float64 becomes float32 for a
    model of torch's that has no float64. `trust` loads a file that holds a program, into this
    process. A model that needs no torch, with NumPy inputs, is called by `predict` where it cannot
    be called itself, and has no layers.

    Raises InputError `device-absent` where a GPU is asked for and none is there, and what loading
    the target raises.
    """

    def __init__(
        self,
        model_path: str | Path | Callable[..., Any] | object,
        device: str | None = None,
        precision: str | None = None,
        *,
        trust: bool = False,
    ) -> None:
        self.model = HeldModel(model_path, device, precision, trust=trust)
        self.results: Results | None = None
        self._inputs: Any = None

    def profile(
        self,
        input_data: Any = None,
        num_runs: int = 100,
        warmup_runs: int = 10,
        detailed_analysis: bool = False,
        *,
        preprocess: Callable[[Any], Any] | None = None,
        postprocess: Callable[[Any], Any] | None = None,
    ) -> Results:
        """Measure `num_runs` calls after the warm-up, and return the figures.

        `input_data` is a tensor, an array, a tuple, a mapping or a text like "1x3x224x224"; a
        target that knows its own inputs needs none, or takes its own path. `detailed_analysis` adds
        layers and operators. With `preprocess` (input_data to what the model takes) or
        `postprocess` (of its outputs) the end-to-end latency and its stages are measured as well.

        Raises MeasurementError where the model raises, InputError for options that make no sense.
        """
        self._inputs = input_data
        inputs = input_data if preprocess is None else preprocess(input_data)
        detail = "kernels" if detailed_analysis else "summary"
        record = self._measured(inputs, num_runs, warmup_runs, detail=detail)
        end_to_end = None
        if preprocess is not None or postprocess is not None:
            end_to_end = self.model.end_to_end(
                input_data, preprocess, postprocess, warmup=warmup_runs, iterations=num_runs
            )
        self.results = Results(record, end_to_end=end_to_end)
        return self.results

    def benchmark(
        self,
        configurations: Iterable[Mapping[str, Any]],
        input_data: Any = None,
        *,
        num_runs: int = FEW_RUNS,
        warmup_runs: int = FEW_WARMUP,
    ) -> list[Results]:
        """Return one result per configuration: `batch_size`, `precision`, `device`.

        The inputs are repeated to the batch; without `input_data` they are those of the last
        profile, or the target's own. One that fails is a result with its `error`; the rest goes on.
        """
        inputs = self._inputs if input_data is None else input_data
        results = []
        for requested in configurations:
            record: Profile | None = None
            error: Exception | None = None
            configuration: dict[str, Any] = {}
            try:
                configuration = dict(requested)
                model, model_inputs = self.model.configured(configuration, inputs)
                record = model.profile(
                    model_inputs, warmup=warmup_runs, iterations=num_runs, detail="summary"
                )
                error = failure(record)
            except Exception as raised:  # noqa: BLE001 - a failing configuration is a result
                error = raised
            valid_record = record if error is None else None
            results.append(Results(valid_record, configuration=configuration, error=error))
        return results

    def profile_layers(
        self, input_data: Any = None, layer_names: Sequence[str] = ("*",)
    ) -> dict[str, dict[str, Any]]:
        """Return figures of the layers of each name: a path, a pattern ("*.attn"), part of a name.

        Those of one name are summed, a layer inside of another of them once: `latency` in ms and
        its `share`, `flops`, `memory` and `parameters`; `layers` are their paths. Figures of a name
        that no layer has are None.

        Raises InputError `layer-unknown` where no name fits any, `no-tree` of what has no layers.
        """
        record = self._measured(self._current_inputs(input_data), detail="operators")
        return Figures(layer_figures.by_name(record, layer_names))

    def memory_profile(
        self,
        track_allocations: bool = True,
        track_deallocations: bool = True,
        memory_snapshots: bool = True,
        *,
        input_data: Any = None,
    ) -> dict[str, Any]:
        """Return the memory of a call in bytes: its parts at the peak, and how it came and went.

        `allocations` and `deallocations` are the rises and falls of what is alive, `snapshots` what
        is alive from each time in ms on. The inputs are those of the last profile unless given.
        """
        record = self._measured(self._current_inputs(input_data), detail="summary")
        figures = memory(
            record,
            allocations=track_allocations,
            deallocations=track_deallocations,
            snapshots=memory_snapshots,
        )
        return Figures(figures)

    def gpu_profile(
        self,
        track_kernels: bool = True,
        track_memory_transfers: bool = True,
        profile_nvtx: bool = True,
        *,
        input_data: Any = None,
    ) -> dict[str, Any]:
        """Return kernels, memory transfers and use of the GPU, on a copy of the model there.

        `profile_nvtx` runs ten steps with layers as NVTX ranges, which Nsight Systems shows.

        Raises InputError `device-absent` where there is no GPU.
        """
        model = self.model.on_gpu()
        inputs = self._current_inputs(input_data)
        record = checked(
            model.profile(inputs, warmup=FEW_WARMUP, iterations=FEW_RUNS, detail="kernels")
        )
        if profile_nvtx:
            model.nvtx(inputs)
        figures = gpu(
            record, kernels=track_kernels, transfers=track_memory_transfers, nvtx=profile_nvtx
        )
        return Figures(figures)

    def generate_html_report(
        self, output_path: str | Path, include_graphs: bool = True, include_details: bool = True
    ) -> Path:
        """Write the last profile as one HTML page, and return its path."""
        hidden = (*(() if include_graphs else GRAPHS), *(() if include_details else DETAILS))
        rendering.text(self._last(), "html", output_path, leave_out=hidden)
        return Path(output_path)

    def export_json(self, path: str | Path) -> Path:
        """Write the last profile as JSON, which `tg.load_baseline` reads, and return its path."""
        return self._last().save(path)

    def export_csv(self, path: str | Path) -> Path:
        """Write the figures of the last profile as CSV, and return its path."""
        self._last().to_csv(path)
        return Path(path)

    def _current_inputs(self, input_data: Any) -> Any:
        if input_data is not None:
            self._inputs = input_data
        return self._inputs

    def _measured(
        self, inputs: Any, runs: int = FEW_RUNS, warmup: int = FEW_WARMUP, *, detail: str
    ) -> Profile:
        record = self.model.profile(inputs, warmup=warmup, iterations=runs, detail=detail)
        return checked(record)

    def _last(self) -> Profile:
        if self.results is None or self.results.profile is None:
            raise InputError(
                "Nothing has been measured yet.",
                id="nothing-measured",
                remedy="Call profile(input_data) first.",
            )
        return self.results.profile


def checked(record: Profile) -> Profile:
    """Return the record. Raises the MeasurementError that left it without a latency."""
    error = failure(record)
    if error is not None:
        raise error
    return record


def failure(record: Profile) -> MeasurementError | None:
    """Return why there is no latency; None if there is."""
    if record.latency is not None:
        return None
    failed = [warning for warning in record.warnings if warning.failed]
    if not failed:
        return MeasurementError("Nothing could be timed.", id="not-timed")
    first = failed[0]
    return MeasurementError(first.message, id=first.id, cause=first.cause, remedy=first.remedy)


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
