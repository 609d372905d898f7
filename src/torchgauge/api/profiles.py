"""Profile a model given in Python, or a target named on the command line."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchgauge.api.preparation import check_torch, measuring, require_torch
from torchgauge.device.energy import check_available as check_energy
from torchgauge.errors import ModelError
from torchgauge.files import check_replaceable
from torchgauge.measure.effort import EffortName, effort_named
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.timeline.timeline_options import TimelineOptions
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.tree import DETAIL, Detail
from torchgauge.targets.runtimes.runtime_options import RuntimeOptions, check_in_runtime, is_onnx

if TYPE_CHECKING:
    from torch import nn

    from torchgauge.measure.loop.loop import Timeline
    from torchgauge.measure.loop.schedule import Schedule
    from torchgauge.targets.builds.source import Source
    from torchgauge.targets.inputs.inputs import Inputs
    from torchgauge.targets.target import TargetRequest
    from torchgauge.targets.training.training import Training


def profile(
    model: Callable[..., Any] | str | Path,
    inputs: Any = None,
    *,
    device: str | None = None, precision: str | None = None, train: Training | bool | None = None,
    runtime: str = "onnxruntime", provider: str | None = None, optimization: str | None = None,
    detail: Detail = DETAIL, trace: str | Path | None = None,
    lines: bool = False, all_threads: bool = False, roofs: bool | None = None, energy: bool = False,
    warmup: int | None = None, iterations: int | None = None,
    processes: int | None = None, budget: float | None = None,
    effort: EffortName = "usual", keep_going: bool = False, progress: bool | None = None,
) -> Profile:  # fmt: skip
    """Measure size, work, time and memory of a model and where they go, and return the record.

    A later probe that fails leaves a warning; Ctrl-C returns what was measured (`interrupted`).

    Args:
        model: A torch.nn.Module, any function, or the path of an ONNX file.
        inputs: A tensor, a tuple (positional), a mapping (keyword) or `tg.Inputs(args, kwargs)`.
        device: "cpu", "cuda", "cuda:N" or "auto", to which a copy is moved; None leaves it there.
        precision: "fp32", "tf32", "bf16" or "fp16", of a copy; None leaves the model as it is.
        train: A training step to measure instead of inference.
        runtime: What runs an ONNX file, "onnxruntime" or "openvino".
        provider: What of the runtime computes, "cpu" (None) or "cuda".
        optimization: How far ONNX Runtime optimises the graph: "off", "basic", "extended", "all".
        detail: How deep the tree is: "layers" times them without a recording, "summary" makes none.
        trace: A file (.json or .json.gz) to write the timeline's recording to, for Perfetto.
        lines: Measure your own Python between operators by line (`tree.lines`).
        all_threads: Put operators of threads that the model starts into the tree; torch may crash.
        warmup: As `measure_latency` takes it, like `iterations`, `processes` and `budget`.
        iterations: Exactly so many calls after the warm-up.
        processes: Fresh processes that time the call; 1 is this process alone.
        budget: Seconds for the latency (5).
        roofs: True measures the device's roofs anew, None where none are stored, False not at all.
        energy: Measure joules by the counters of processors and GPUs (extra `energy`).
        effort: "quick" takes some two seconds in this process alone, "precise" about a minute.
        keep_going: Return a record also where the model raises: its size, and a failed warning.
        progress: Show progress; None does so on a terminal.

    Raises InputError for an unknown or absent device, an unknown precision or detail, a runtime of
    what is no ONNX file, and where the model raises, whose own error is then the `__cause__`.

    Examples:
        >>> import torch, torchgauge as tg
        >>> model, x = torch.nn.Linear(4, 2), torch.ones(8, 4)
        >>> profile = tg.profile(model, x, effort="quick", roofs=False)
        >>> profile.size.parameters, profile.cost.macs
        (10, 64)
    """
    file = None if trace is None else Path(trace).absolute()  # the model may change folders
    how_long = effort_named(effort)
    timeline = TimelineOptions(detail, file, lines=lines, roofs=roofs, all_threads=all_threads)
    timeline = dataclasses.replace(timeline, energy=energy, effort=how_long)
    latency = LatencyOptions(None, warmup, iterations, processes, None, budget, effort=how_long)
    _check(timeline)
    placed: dict[str, Any] = {"device": device, "precision": precision}
    chosen = RuntimeOptions(runtime, provider, optimization)
    if isinstance(model, str | Path) and is_onnx(str(model)):
        request, inputs = _request(model, inputs, training=bool(train), runtime=chosen, **placed)
        record = profile_request(request, latency, timeline, inputs=inputs, progress=progress)
        return record if keep_going else _ran(record)
    check_in_runtime(chosen, "The model")
    source, latency = _prepared(model, inputs, train, placed, latency)
    from torchgauge.measure import plan

    with measuring(progress) as display:
        return plan.profile(source, latency, display, timeline, keep_going=keep_going)


def _ran(record: Profile) -> Profile:
    """Return the record of a process of its own; raise ModelError where its model did."""
    failed = next((w for w in record.warnings if w.failed and w.probe == "latency"), None)
    if record.latency is None and failed is not None:
        raise ModelError(failed.message, id=failed.id, cause=failed.cause, remedy=failed.remedy)
    return record


def _request(model: str | Path, inputs: Any, **fields: Any) -> tuple[TargetRequest, Inputs | None]:
    """Return the request of an ONNX file for inputs of these sizes, and the inputs as tensors."""
    require_torch()
    from torchgauge.targets.inputs.input_spec import InputSpec
    from torchgauge.targets.target import TargetRequest

    fields["device"] = fields["device"] or "cpu"
    if inputs is None:
        return TargetRequest(str(model), **fields), None
    call_inputs = _tensors(inputs)
    specs = tuple(
        InputSpec(name, tuple(getattr(value, "shape", ())))
        for name, value in (
            *((None, value) for value in call_inputs.args),
            *call_inputs.kwargs.items(),
        )
    )
    return TargetRequest(str(model), inputs=specs, own_inputs=True, **fields), call_inputs


def _tensors(inputs: Any) -> Inputs:
    """Return the inputs of an ONNX file with tensors in place of arrays.

    Those of unsigned types that torch cannot send to another process are arrays.
    """
    import numpy as np

    from torchgauge.targets.inputs.inputs import Inputs
    from torchgauge.targets.runtimes.runtime_model import as_tensors

    def tensor(value: Any) -> Any:
        name = str(getattr(value, "dtype", "")).removeprefix("torch.")
        wide = name in ("uint16", "uint32", "uint64")
        return np.asarray(value) if wide else as_tensors([value])[0]

    return Inputs.of(inputs).map_arguments(tensor)


def _prepared(
    model: Any,  # also what is no model, which `Source.of_object` refuses
    inputs: Any,
    train: Training | bool | None,
    placed: Mapping[str, str | None],
    latency: LatencyOptions,
) -> tuple[Source, LatencyOptions]:
    """Return what is measured, and how with its training step; imports torch."""
    require_torch()
    from torchgauge.targets.builds.source import Source
    from torchgauge.targets.training.training import Training

    device, precision, training = placed["device"], placed["precision"], bool(train)
    source = Source.of_object(model, inputs, device=device, precision=precision, training=training)
    return source, dataclasses.replace(latency, train=Training.resolve(train))


def profile_request(
    request: TargetRequest,
    latency: LatencyOptions,
    timeline: TimelineOptions,
    *,
    inputs: Any = None,
    progress: bool | None = None,
) -> Profile:
    """Profile a target named as on the command line; `inputs` replace its own.

    A trusted file contains a program, and an ONNX file runs in a library that may crash: they are
    measured in a separate process.
    """
    check_torch()
    _check(timeline)
    from torchgauge.measure.processes.fork_server import forking

    with measuring(progress) as display, contextlib.ExitStack() as stack:
        display.start("importing torch")
        server = None
        if latency.several and not request.in_own_process and request.device != "meta":
            # It imports torch on another core while this process does.
            server = stack.enter_context(forking(request.spec))
        require_torch()
        from torchgauge.measure import plan
        from torchgauge.measure.processes.separate_process import profile_in_separate_process
        from torchgauge.targets.builds.source import Source
        from torchgauge.targets.inputs.inputs import Inputs
        from torchgauge.targets.training.named_training import requested_training

        source = Source.of_request(request)
        if inputs is not None:
            source = dataclasses.replace(source, inputs=Inputs.of(inputs))
        latency = dataclasses.replace(latency, train=requested_training(request))
        if request.in_own_process:
            return profile_in_separate_process(source, latency, display, timeline)
        return plan.profile(source, latency, display, timeline, server)


def _check(timeline: TimelineOptions) -> None:
    """Find before minutes of measuring, not after, what cannot be written, marked or read."""
    if timeline.energy:
        check_energy()
    if timeline.trace is not None:
        check_replaceable(timeline.trace)
    if timeline.nvtx:
        from torchgauge.measure.timeline.ranges import check_available

        check_available()


def timeline(
    model: nn.Module | Iterable[nn.Module] | None = None,
    *,
    schedule: Schedule | None = None,
    memory_budget: int | None = None,
    all_threads: bool = False,
    on_oom: str | Path | None = None,
    memory: bool = False,
) -> Timeline:
    """Return a context manager that records some steps of your own loop: `with … as run:`.

    `model` is a module, several, or None for those that the loop calls. A step ends with the
    optimizer's step, in inference with a call of the model, or where the loop calls `run.step()`.
    `schedule` selects the recorded steps; fewer are recorded if all would take more memory than
    `memory_budget` bytes (1 GiB, a quarter of the free memory if that is less). `tg.mark(name)`
    names parts of the loop. After the block use `run.tree`, `run.steps`, `run.captured` and
    `run.record`. The stepping thread is recorded, with autograd's. `all_threads` records the others
    too: torch may end the process if one of them runs operators while a recording begins or ends.
    Other threads cannot measure until the block ends. `on_oom` is a folder: where memory runs out,
    `oom.json` there says what was alive, and on a GPU the allocator's snapshot is written too.
    `memory` watches the memory of the selected steps in place of their times: `run.record.memory`
    is what lives in each by layer, phase and line, and what outlives it.

    Raises InputError `not-a-module`, `budget-invalid`; on entering `timeline-active`, and
    MeasurementError `profiler-active`.

    Examples:
        >>> import torch, torchgauge as tg
        >>> model, x = torch.nn.Linear(4, 2), torch.ones(8, 4)
        >>> with tg.timeline(model) as run:
        ...     for _ in range(12):
        ...         y = model(x)
        >>> run.record.count, run.captured.recorded
        (12, 5)
    """
    require_torch()
    from torchgauge.measure.loop.loop import Timeline

    return Timeline(
        model,
        schedule=schedule,
        memory_budget=memory_budget,
        all_threads=all_threads,
        on_oom=on_oom,
        watch_memory=memory,
    )


def nvtx(model: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    """Return a context manager that marks the model's layers by NVTX ranges, for Nsight Systems.

    Put your own loop into the block. Raises MeasurementError `nvtx-unavailable`.

    Examples:
        >>> import torch, torchgauge as tg
        >>> model, x = torch.nn.Linear(4, 2), torch.ones(8, 4)
        >>> with tg.nvtx(model):  # doctest: +SKIP
        ...     y = model(x)  # below `nsys profile`, where there is a GPU
    """
    require_torch()
    from torchgauge.measure.timeline.ranges import nvtx as marked

    return marked(model)
