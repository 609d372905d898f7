"""Profile a model given in Python, or a target named on the command line."""

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
    from torchgauge.measure.latency.latency_options import LatencyOptions
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

    A probe that fails leaves a warning with `failed`; Ctrl-C returns what was measured so far, with
    `interrupted` set. If another thread is measuring, this call waits for it.

    Args:
        model: A torch.nn.Module, or any function.
        inputs: A tensor, a tuple (positional), a mapping (keyword) or `tg.Inputs(args, kwargs)`.
        device: "cpu", "cuda", "cuda:N" or "auto"; None leaves it there. A copy of the model is
            moved.
        precision: "fp32", "tf32", "bf16" or "fp16", of a copy; None leaves the model as it is.
        train: A training step to measure instead of inference.
        detail: How deep the tree is: "layers" times them without a recording, "summary" makes none.
        trace: A file (.json or .json.gz) to write the timeline's recording to, for Perfetto.
        lines: Measure the time of your own Python between operators by line (`tree.lines`).
        all_threads: Put operators of threads that the model starts into the tree; torch may crash.
        warmup: As `measure_latency` takes it, like `iterations`, `processes` and `budget`.
        iterations: Exactly so many calls after the warm-up.
        processes: How many fresh processes time the call; 1 is this process alone.
        budget: Seconds for the latency (default 5).
        roofs: True measures the device's roofs fully, in some ten seconds, and stores them; None
            measures them in about two if none are stored for this machine; False not at all.
        progress: Show progress; None does so on a terminal.

    Raises InputError for an unknown device, precision or detail, and for a device that is absent.
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
    """Profile a target named as on the command line; `inputs` are texts of --input.

    `trust` allows files that contain a program, and measures in a separate process. `loss` is
    "mean" or names a function, `optimizer` a class of torch.optim. With a `percentile` (0.99)
    sampling continues until there are enough samples for its interval, within the budget. `nvtx`
    runs steps with NVTX ranges at the end.
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
    from torchgauge.measure.latency.latency_options import LatencyOptions

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
