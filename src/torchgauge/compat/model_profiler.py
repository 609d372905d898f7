"""ModelProfiler: one object for a model, its measurements and its reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from torchgauge.compat import results as layer_figures
from torchgauge.compat.held_model import HeldModel
from torchgauge.compat.results import Figures, Results, rows_in_ms
from torchgauge.errors import InputError, MeasurementError
from torchgauge.records import rendering
from torchgauge.records.profile import Profile

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
