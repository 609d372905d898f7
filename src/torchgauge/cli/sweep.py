"""`torchgauge sweep`: batch sizes, precisions and the like, each in a process of its own."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING

from torchgauge.cli import formats
from torchgauge.cli.options import target
from torchgauge.cli.options.latency import add_call_options, latency_options
from torchgauge.cli.options.numbers import positive, seconds, size
from torchgauge.cli.output import prints_to_stderr
from torchgauge.errors import ExitCode
from torchgauge.folders import typed
from torchgauge.targets.runtimes.runtime_options import LEVELS, RUNTIMES, RuntimeOptions

if TYPE_CHECKING:
    from pathlib import Path

    from torchgauge.records.sweep import Sweep
    from torchgauge.sweeps.sweep_options import SweepOptions

DESCRIPTION = """\
Measure every combination of settings, each in a process of its own: latency, throughput, memory.

  torchgauge sweep TARGET --batch 1,2,4,8 --precision fp32,bf16
  torchgauge sweep TARGET --batch auto --where "p99<20ms and memory<2GB" --best throughput

A cell that runs out of memory, crashes or is not supported is a result, and the rest goes on.
Along the batch a row ends where throughput saturates or memory would not fit, and the report says
so. With --output-dir or --resume, a sweep that was ended goes on from where it was.
"""
AXES = (
    *("batch", "precision", "compile", "channels_last", "threads", "interop", "seq_len"),
    *("optimization", "runtime"),
)
FORMS = ("json", "text", "csv", "brief", "markdown", "html", "openmetrics")
JOURNAL = "sweep.cells.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    target.add_target(parser, "what to measure, as profile takes it")
    _axes(parser.add_argument_group("the grid (values with commas between them)"))
    _add_run_options(parser.add_argument_group("what is run"))
    _add_timing_options(parser.add_argument_group("how it is measured"))
    _choice(parser.add_argument_group("what is chosen"))
    formats.add_all(parser.add_argument_group("what comes out"), forms=FORMS)


def _axes(grid: argparse._ArgumentGroup) -> None:
    grid.add_argument(
        "--batch", metavar="N,N", help="batch sizes, or auto: 1, 2, 4, 8, … (default: as it is)"
    )
    grid.add_argument(
        "--precision", metavar="P,P", help="fp32, tf32, bf16, fp16, int8 (dynamic quantisation)"
    )
    grid.add_argument(
        "--compile", metavar="M,M", help="none, default, reduce-overhead, max-autotune"
    )
    grid.add_argument("--channels-last", metavar="yes,no", help="order of image tensors in memory")
    grid.add_argument("--threads", metavar="N,N", help="threads of an operator on the CPU")
    grid.add_argument("--interop", metavar="N,N", help="threads between operators")
    grid.add_argument("--seq-len", metavar="N,N", help="lengths of the inputs' sequences")
    grid.add_argument(
        "--optimization",
        metavar="L,L",
        help=f"graph optimisation of an ONNX file: {', '.join(LEVELS)}",
    )
    grid.add_argument(
        "--runtime", metavar="R,R", help=f"what runs an ONNX file: {', '.join(RUNTIMES)}"
    )
    target.add_model_option(grid, "--device", default="auto", metavar="D,D")


def _add_run_options(group: argparse._ArgumentGroup) -> None:
    target.add_model_option(
        group,
        "--input",
        help="shape of an input, such as 1x3x224x224; repeatable; --batch replaces its first size",
    )
    target.add_model_option(group, "--weights")
    target.add_model_option(group, "--trust")
    target.add_runtime_options(group, axes=False)


def _add_timing_options(group: argparse._ArgumentGroup) -> None:
    group.set_defaults(processes=None)
    group.add_argument(
        "--repeats",
        type=positive,
        default=1,
        metavar="N",
        help="processes per cell, measured in turn with the other cells (default: 1)",
    )
    group.add_argument(
        "--budget",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="time for sampling in each process at most (default: 10)",
    )
    add_call_options(group, "calls to time (default: until the median is known to ±1 %%)")
    group.add_argument(
        "--memory-limit", metavar="SIZE", help="limit the memory of each process, such as 8GB"
    )
    group.add_argument(
        "--every",
        action="store_true",
        help="measure also where throughput saturates or memory would not fit",
    )
    group.add_argument(
        "--executor",
        choices=("process", "ray"),
        default="process",
        help="fresh processes here (default), or a Ray cluster",
    )
    group.add_argument(
        "--resume",
        type=typed,
        metavar="FILE",
        help=f"keep finished cells in FILE (default: {JOURNAL} in --output-dir)",
    )


def _choice(choice: argparse._ArgumentGroup) -> None:
    choice.add_argument(
        "--where",
        default="",
        metavar="LIMITS",
        help='conditions for the best cell, such as "p99<20ms and memory<2GB"',
    )
    choice.add_argument(
        "--best", metavar="M,M", help="metrics to choose by (default: latency,throughput,memory)"
    )


def run(options: argparse.Namespace) -> int:
    """Measure, show, write; return the exit code."""
    target.settle(options)
    formats.check(options)
    formats.check_forms(options, FORMS, "A sweep")
    from torchgauge.analyze.sweep.constraints import parse
    from torchgauge.api.sweeps import sweep_request

    journal = options.resume
    if journal is None and options.output_dir is not None:
        journal = options.output_dir / JOURNAL
    devices = [name.strip() for name in options.device.split(",")]
    grid = {name: getattr(options, name) for name in AXES}
    grid["device"] = devices if len(devices) > 1 else None
    with prints_to_stderr():
        sweep = sweep_request(
            target.target_request(options, device=devices[0], runtime=_runtime(options)),
            grid,
            _sweep_options(options, journal),
            latency_options(options, parse(options.where)),
        )
    written = formats.write_or_show(sweep, options, "sweep", lambda: formats.show(sweep, options))
    if written and journal is not None and not sweep.interrupted and options.resume is None:
        with contextlib.suppress(OSError):
            journal.unlink()  # the record holds all of it now
    formats.show(sweep, options)
    formats.say(written)
    return code(sweep)


def _runtime(options: argparse.Namespace) -> RuntimeOptions:
    """Return what the cells have in common; runtime and optimisation are axes."""
    return RuntimeOptions(provider=options.provider, custom_ops=tuple(options.custom_ops))


def _sweep_options(options: argparse.Namespace, journal: Path | None) -> SweepOptions:
    from torchgauge.sweeps.sweep_options import BY, SweepOptions

    best = BY if options.best is None else [name.strip() for name in options.best.split(",")]
    return SweepOptions(
        options.executor,
        options.where,
        tuple(best),
        options.repeats,
        options.every,
        size(options.memory_limit),
        journal,
    )


def code(sweep: Sweep) -> ExitCode:
    """Return the exit code: 1 where no cell was measured, 3 or 4 where none keeps the limits."""
    if sweep.interrupted:
        return ExitCode.INTERRUPTED
    if not any(cell.done for cell in sweep.cells):
        return ExitCode.MEASUREMENT_FAILED
    if sweep.constraints and all(choice.cell is None for choice in sweep.best):
        unknown = any(choice.unknown for choice in sweep.best)
        return ExitCode.INCONCLUSIVE if unknown else ExitCode.THRESHOLD
    return ExitCode.DONE
