"""The one place that joins target, measurement and record; the command line calls only this."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchgauge.errors import missing_extra
from torchgauge.files import check_replaceable
from torchgauge.model import codec
from torchgauge.model.cost import Cost
from torchgauge.model.count import Count
from torchgauge.model.doctor import Diagnosis
from torchgauge.model.latency import Latency
from torchgauge.model.memory import Memory
from torchgauge.model.profile import Profile
from torchgauge.model.size import Size
from torchgauge.model.tree import DETAIL, Detail
from torchgauge.progress import Progress
from torchgauge.progress import progress as progress_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from torchgauge.measure.loop import Timeline
    from torchgauge.measure.schedule import Schedule
    from torchgauge.measure.timeline_options import TimelineOptions
    from torchgauge.model.ranks import Ranks
    from torchgauge.target.source import Source
    from torchgauge.target.training import Training


def profile(
    model: Callable[..., Any],
    inputs: Any = None,
    *,
    device: str | None = None,
    precision: str | None = None,
    train: Training | bool | None = None,
    detail: Detail = DETAIL,
    trace: str | Path | None = None,
    lines: bool = False,
    warmup: int | None = None,
    iterations: int | None = None,
    processes: int = 1,
    budget: float | None = None,
    progress: bool | None = None,
) -> Profile:
    """Measure size, work, time and memory of a model and where they go, and return the record.

    `inputs` is a tensor (one positional argument), a tuple (positional), a mapping (keyword) or
    `tg.Inputs(args, kwargs)`. `device` ("cpu", "cuda", "cuda:N", "auto") and `precision` ("fp32",
    "tf32", "bf16", "fp16") None leave the model as it is; a change is made on a copy. `train`
    measures a training step in place of inference. `detail` is how far down the tree goes: "layers"
    times them with nothing recorded, "summary" makes no tree. `trace` is a file (.json or .json.gz)
    to which the recording of the timeline is written, for Perfetto. `lines` tells the time that
    your own Python takes between operators by line (`tree.lines`). `budget` is the time in seconds
    that sampling the latency may take. Ctrl-C ends the run early and returns what was measured,
    with `interrupted` set. A probe that fails leaves a warning with `failed` on the record.

    Raises InputError for what cannot be measured at all: an unknown device, precision or detail, a
    device that is not there.
    """
    wanted = _timeline(detail, trace, lines=lines)
    source, options = _prepare(
        model,
        inputs,
        device=device,
        precision=precision,
        train=train,
        warmup=warmup,
        iterations=iterations,
        processes=processes,
        budget=budget,
    )
    return _profile(source, options, wanted, progress)


def profile_request(
    target: str,
    *,
    inputs: tuple[str, ...] = (),
    weights: Path | None = None,
    batch: int | None = None,
    device: str = "auto",
    precision: str | None = None,
    trust: bool = False,
    train: bool = False,
    loss: str | None = None,
    optimizer: str | None = None,
    detail: Detail = DETAIL,
    trace: str | Path | None = None,
    lines: bool = False,
    nvtx: bool = False,
    warmup: int | None = None,
    iterations: int | None = None,
    processes: int = 1,
    budget: float | None = None,
    roofs: bool = False,
    progress: bool | None = None,
) -> Profile:
    """Do the same for a target as the command line names it; `inputs` are texts of --input.

    `trust` allows files that hold a program, and measures in a process of its own. `loss` is "mean"
    or names a function, `optimizer` a class of torch.optim. `roofs` measures anew what the device
    can do at most, and keeps it for later profiles. `nvtx` runs steps with NVTX ranges at the end.
    """
    _require_torch()
    wanted = _timeline(detail, trace, lines=lines, nvtx=nvtx)
    from torchgauge.device.select import resolve
    from torchgauge.measure.latency import LatencyOptions
    from torchgauge.target.source import Source
    from torchgauge.target.target import TargetRequest

    request = TargetRequest(
        spec=target,
        inputs=inputs,
        weights=weights,
        batch=batch,
        device=resolve(device),
        precision=precision,
        training=train,
        trust=trust,
    )
    training = None
    if train:
        from torchgauge.target.named_training import named_training

        training = named_training(loss, optimizer, precision=precision, device=request.device)
    options = LatencyOptions(
        train=training,
        warmup=warmup,
        iterations=iterations,
        processes=processes,
        **_given(budget=budget),
    )
    source = Source.of_request(request)
    if roofs:
        from torchgauge.device.roofs import roofs as measure_roofs

        with _shown(progress) as shown:
            measure_roofs(request.device, refresh=True, progress=shown)
    if not trust:
        return _profile(source, options, wanted, progress)
    from torchgauge.measure.apart import profile_apart

    with _shown(progress) as shown:
        return profile_apart(source, options, shown, wanted)


def measure_size(model: object) -> Size:
    """Count parameters, buffers and bytes, each tensor once; nothing is run.

    Raises InputError `not-a-module` for what has no parameters that could be counted.
    """
    _require_torch()
    from torchgauge.measure.size import measure

    return measure(model)


def count_cost(model: Callable[..., Any], inputs: Any = None, *, backward: bool = False) -> Cost:
    """Count FLOPs and bytes of one call by layer and operator, from the shapes that it runs with.

    On whatever device the model is: with meta or fake tensors nothing is computed. Without
    `backward` in evaluation mode; with it in training mode, and ones are sent into every
    differentiable output (no loss is counted). An operator without formula is in `unknown`.

    Raises MeasurementError where the call raises.
    """
    _require_torch()
    from torchgauge.measure.count import cost_of
    from torchgauge.target.source import Source

    return cost_of(Source.of_object(model, inputs, training=backward), backward=backward)


def count_request(
    target: str,
    *,
    inputs: tuple[str, ...] = (),
    weights: Path | None = None,
    batch: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    trust: bool = False,
    backward: bool = False,
    optimizer: str | None = None,
    on: tuple[str, ...] = (),
) -> Count:
    """Do the same for a target as the command line names it, and count its size.

    `device` None means meta, and the CPU where the model cannot run there. With `backward` the
    memory of a training step is part of it, with `optimizer` ("adamw" if None). `on` names devices
    of the datasheet table ("h100", "l4"), for which time and memory are estimated. Raises
    InputError `device-unknown`, `optimizer-unknown`.
    """
    _require_torch()
    from torchgauge.analyze.training_memory import OPTIMIZER, optimizer_named
    from torchgauge.device import peaks
    from torchgauge.device.select import resolve
    from torchgauge.measure.count import CountOptions, count
    from torchgauge.target.target import TargetRequest

    request = TargetRequest(
        spec=target,
        inputs=inputs,
        weights=weights,
        batch=batch,
        device="meta" if device is None else resolve(device),
        precision=precision,
        trust=trust,
    )
    options = CountOptions(
        backward=backward,
        optimizer=optimizer_named(optimizer or OPTIMIZER),
        on=tuple(peaks.find(name) for name in on),
    )
    return count(request, options, fall_back=device is None)


def measure_latency(
    model_or_callable: Callable[..., Any],
    inputs: Any = None,
    *,
    train: Training | bool | None = None,
    warmup: int | None = None,
    iterations: int | None = None,
    processes: int = 1,
    target_rel_error: float = 0.01,
    budget: float | None = None,
    preprocess: Callable[[Any], Any] | None = None,
    postprocess: Callable[[Any], Any] | None = None,
    cold_cache: bool = False,
    progress: bool | None = None,
) -> Latency:
    """Time calls until the median is known to ±`target_rel_error` (95 %), or `budget` s are over.

    `preprocess` takes `inputs` as given and returns what the model takes; `postprocess` takes the
    outputs. Both are timed as stages, and the latency is then end to end. `cold_cache` pushes the
    last-level cache out before each call. `iterations` times exactly so many calls after the
    warm-up. Ctrl-C returns what was measured, with `stop` "interrupted".

    Raises InputError for options that make no sense, MeasurementError where the call raises.
    """
    source, options = _prepare(
        model_or_callable,
        inputs,
        train=train,
        warmup=warmup,
        iterations=iterations,
        processes=processes,
        target_rel_error=target_rel_error,
        budget=budget,
        preprocess=preprocess,
        postprocess=postprocess,
        cold_cache=cold_cache,
    )
    from torchgauge.measure.plan import measure_latency as measure

    with _shown(progress) as shown:
        shown.start("latency")
        return measure(source, options, shown)


def measure_memory(
    model: Callable[..., Any], inputs: Any = None, *, train: Training | bool | None = None
) -> Memory:
    """Measure the bytes of tensors alive during one step, and what the peak consists of.

    Raises MeasurementError where the step raises, memory runs out or another profiler is active.
    """
    source, options = _prepare(model, inputs, train=train)
    from torchgauge.measure.memory import measure
    from torchgauge.measure.plan import opened

    return measure(opened(source), train=options.train)


def timeline(
    model: nn.Module | Iterable[nn.Module] | None = None,
    *,
    schedule: Schedule | None = None,
    memory_budget: int | None = None,
) -> Timeline:
    """Return a context manager that records some steps of your own loop: `with … as run:`.

    `model` is a module, several, or None for those that the loop calls. A step ends with the
    optimizer's step, in inference with a call of the model, or where the loop says `run.step()`.
    `schedule` says which steps are recorded; fewer are where more would take more memory than
    `memory_budget` bytes (1 GiB, a quarter of what is free if that is less). `tg.mark(name)` names
    parts of the loop. After the block `run.tree`, `run.steps`, `run.captured` and `run.record`.

    Raises InputError `not-a-module`, `budget-invalid`; on entering `timeline-active`, and
    MeasurementError `profiler-active`.
    """
    _require_torch()
    from torchgauge.measure.loop import Timeline

    return Timeline(model, schedule=schedule, memory_budget=memory_budget)


def nvtx(model: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    """Return a context manager that marks the model's layers by NVTX ranges, for Nsight Systems.

    Put your own loop into the block. Raises MeasurementError `nvtx-unavailable`.
    """
    _require_torch()
    from torchgauge.measure.nvtx import nvtx as marked

    return marked(model)


def diagnose(*, quick: bool = False, progress: bool | None = None) -> Diagnosis:
    """Find what makes timings lie on this machine; `quick` leaves out the A/A run of 10 s."""
    from torchgauge.measure.doctor import diagnose as examine

    with _shown(progress) as shown:
        return examine(quick=quick, progress=shown)


def load(path: str | Path) -> codec.Saved:
    """Return the record saved at `path`; torch is not needed.

    A folder is that of a distributed loop: its ranks' records (`*.rank*.json`) come side by side.

    Raises InputError `file-missing`; RecordError `record-unreadable`, `record-foreign`,
    `record-newer`, `record-invalid`; of ranks what `analyze.ranks.merged` raises.
    """
    path = Path(path)
    return load_ranks(path) if path.is_dir() else codec.load(path)


def load_ranks(folder: Path) -> Ranks:
    """Return the ranks whose records are in a folder, side by side."""
    from torchgauge.analyze.ranks import merged
    from torchgauge.model.loop import Loop

    found = [codec.load(path) for path in sorted(folder.glob("*.rank*.json"))]
    return merged([one for one in found if isinstance(one, Loop)])


def _prepare(
    model: Callable[..., Any],
    inputs: Any,
    *,
    device: str | None = None,
    precision: str | None = None,
    train: Training | bool | None = None,
    **options: Any,
) -> tuple[Source, Any]:
    _require_torch()
    from torchgauge.device.select import resolve
    from torchgauge.measure.latency import LatencyOptions
    from torchgauge.target.source import Source
    from torchgauge.target.training import Training

    training = Training.resolve(train)
    source = Source.of_object(
        model,
        inputs,
        device=None if device is None else resolve(device),
        precision=precision,
        training=training is not None,
    )
    return source, LatencyOptions(train=training, **_given(**options))


def _timeline(
    detail: Detail, trace: str | Path | None, *, lines: bool, nvtx: bool = False
) -> TimelineOptions:
    from torchgauge.measure.timeline_options import TimelineOptions

    wanted = TimelineOptions(detail, None if trace is None else Path(trace), lines=lines, nvtx=nvtx)
    if wanted.trace is not None:
        check_replaceable(wanted.trace)  # before minutes of measuring, not after
    if wanted.nvtx:
        from torchgauge.measure.nvtx import check_available

        check_available()
    return wanted


def _given(**options: Any) -> dict[str, Any]:
    """Leave out what is None, so that the defaults stand in one place."""
    return {name: value for name, value in options.items() if value is not None}


def _profile(
    source: Source, options: Any, timeline: TimelineOptions, progress: bool | None
) -> Profile:
    from torchgauge.measure import plan

    with _shown(progress) as shown:
        return plan.profile(source, options, shown, timeline)


@contextlib.contextmanager
def _shown(choice: bool | None) -> Iterator[Progress]:
    shown = progress_for(choice)
    try:
        yield shown
    finally:
        shown.close()


def _require_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise missing_extra("torch", "torch", "Measuring a model")
