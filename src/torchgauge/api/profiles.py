"""A whole profile, of a model or of what the command line names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchgauge.api.preparation import measuring, prepared, require_torch, timing_options
from torchgauge.files import check_replaceable
from torchgauge.progress import Progress
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.tree import DETAIL, Detail

if TYPE_CHECKING:
    from torchgauge.measure.latency.latency import LatencyOptions
    from torchgauge.measure.processes.fork_server import ForkServer
    from torchgauge.measure.timeline.timeline_options import TimelineOptions
    from torchgauge.targets.builds.source import Source
    from torchgauge.targets.target import TargetRequest
    from torchgauge.targets.training.training import Training


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
    all_threads: bool = False,
    warmup: int | None = None,
    iterations: int | None = None,
    processes: int | None = None,
    budget: float | None = None,
    roofs: bool | None = None,
    progress: bool | None = None,
) -> Profile:
    """Measure size, work, time and memory of a model and where they go, and return the record.

    `inputs` is a tensor (one positional argument), a tuple (positional), a mapping (keyword) or
    `tg.Inputs(args, kwargs)`. `device` ("cpu", "cuda", "cuda:N", "auto") and `precision` ("fp32",
    "tf32", "bf16", "fp16") None leave the model as it is; a change is made on a copy. `train`
    measures a training step in place of inference. `detail` is how far down the tree goes: "layers"
    times them with nothing recorded, "summary" makes no tree. `trace` is a file (.json or .json.gz)
    to which the recording of the timeline is written, for Perfetto. `lines` tells the time that
    your own Python takes between operators by line (`tree.lines`). `all_threads` puts operators of
    threads that the model starts into the tree; torch may then crash where other threads run
    operators meanwhile. `processes` fresh processes time the call, 1 stands for this one alone;
    None: as many short ones as the `budget` for the latency allows (5 s), unless `iterations` are
    given, which this process takes. `roofs` True measures anew what the device can do at most, in
    some ten seconds, and keeps it for later profiles; None does so quickly, in about two, where
    nothing is kept of this machine; False not at all. Ctrl-C ends the run early and returns what
    was measured, with `interrupted` set. A probe that fails leaves a warning with `failed` on the
    record. Where another thread of the process measures, this one waits for it.

    Raises InputError for what cannot be measured at all: an unknown device, precision or detail, a
    device that is not there.
    """
    timeline_options = _timeline_options(
        detail, trace, lines=lines, roofs=roofs, all_threads=all_threads
    )
    source, options = prepared(
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
    with measuring(progress) as display:
        return _profile(source, options, timeline_options, display)


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
    all_threads: bool = False,
    warmup: int | None = None,
    iterations: int | None = None,
    processes: int | None = None,
    budget: float | None = None,
    roofs: bool | None = None,
    percentile: float | None = None,
    progress: bool | None = None,
) -> Profile:
    """Do the same for a target as the command line names it; `inputs` are texts of --input.

    `trust` allows files that hold a program, and measures in a process of its own. `loss` is "mean"
    or names a function, `optimizer` a class of torch.optim. `percentile` (0.99) has sampling go on
    until there are samples enough for its interval, within the budget. `nvtx` runs steps with NVTX
    ranges at the end.
    """
    require_torch()
    timeline_options = _timeline_options(
        detail, trace, lines=lines, nvtx=nvtx, roofs=roofs, all_threads=all_threads
    )
    from torchgauge.measure.processes.fork_server import forking

    is_multiprocess = processes is None and iterations is None and not trust and device != "meta"
    with contextlib.ExitStack() as stack:
        display = stack.enter_context(measuring(progress))
        display.start("importing torch")
        # It imports torch on another core while this process does.
        server = stack.enter_context(forking(target)) if is_multiprocess else None
        from torchgauge.device.select import resolve
        from torchgauge.targets.builds.source import Source
        from torchgauge.targets.target import TargetRequest

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
        options = _options(
            request,
            loss,
            optimizer,
            warmup=warmup,
            iterations=iterations,
            processes=processes,
            budget=budget,
            percentile=percentile,
        )
        source = Source.of_request(request)
        return _profile(source, options, timeline_options, display, server, separate=trust)


def _options(
    request: TargetRequest, loss: str | None, optimizer: str | None, **timing: Any
) -> LatencyOptions:
    """Return how to time a request, and with which training step."""
    from torchgauge.measure.latency.latency import LatencyOptions

    training = None
    if request.training:
        from torchgauge.targets.training.named_training import named_training

        training = named_training(
            loss, optimizer, precision=request.precision, device=request.device
        )
    return LatencyOptions(train=training, **timing_options(**timing))


def _timeline_options(
    detail: Detail,
    trace: str | Path | None,
    *,
    lines: bool,
    nvtx: bool = False,
    roofs: bool | None = None,
    all_threads: bool = False,
) -> TimelineOptions:
    from torchgauge.measure.timeline.timeline_options import TimelineOptions

    file = None if trace is None else Path(trace).absolute()  # the model may change folders
    options = TimelineOptions(
        detail, file, lines=lines, nvtx=nvtx, roofs=roofs, all_threads=all_threads
    )
    if options.trace is not None:
        check_replaceable(options.trace)  # before minutes of measuring, not after
    if options.nvtx:
        from torchgauge.measure.timeline.nvtx import check_available

        check_available()
    return options


def _profile(
    source: Source,
    options: LatencyOptions,
    timeline: TimelineOptions,
    progress: Progress,
    server: ForkServer | None = None,
    *,
    separate: bool = False,
) -> Profile:
    """Measure here, or `apart`: in a process of its own."""
    if separate:
        from torchgauge.measure.processes.separate_process import profile_in_separate_process

        return profile_in_separate_process(source, options, progress, timeline)
    from torchgauge.measure import plan

    return plan.profile(source, options, progress, timeline, server)
