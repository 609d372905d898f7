"""`torchgauge count`: parameters, FLOPs and bytes, without running anything on a device."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torchgauge.cli import formats
from torchgauge.cli.options import target
from torchgauge.cli.options.numbers import levels
from torchgauge.cli.output import emit, prints_to_stderr, tell, tell_lines
from torchgauge.errors import ExitCode, option_conflict

if TYPE_CHECKING:
    from torchgauge.measure.work.count_options import CountOptions
    from torchgauge.records.parallel.parallel import Parallel
    from torchgauge.records.work.size import Count

DESCRIPTION = """\
Count the work of one call, from the shapes of every operator that it runs: MACs, FLOPs, bytes.

The model is made of meta tensors, which have shapes and no values, so that a model of any size
is counted in seconds. Where its code reads values (.item(), a mask that decides what runs), it is
counted on real tensors, with a note. An operator without formula is listed as unknown, and
the totals say "at least"; torchgauge.flop_formula gives it one. An .onnx file is counted from its
graph: nothing of it runs, so that its counts are the same whatever runtime and provider are named.

With --mesh, one rank of a training job on many devices is counted, without any: what it holds, what
it sends, whether it fits. TARGET is then a function with a parameter `mesh` that shards and returns
(model, inputs), or a plain model, which the names of the dimensions shard: fsdp, tp, ddp.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    target.add_target(parser, "what to count, as profile takes it")
    target.add_run_options(
        parser.add_argument_group("what is run"),
        device=None,
        device_help="meta, cpu or cuda (default: meta, and cpu where the model cannot run there)",
    )
    target.add_runtime_options(
        parser.add_argument_group("running an ONNX file, which changes none of its counts")
    )
    parser.add_argument(
        "--backward",
        action="store_true",
        help="count the backward pass too (no loss is counted), and the memory of a training step",
    )
    parser.add_argument(
        "--optimizer",
        metavar="NAME",
        help="whose states are part of that memory: adamw (the default), sgd, adafactor, …",
    )
    parser.add_argument(
        "--loss",
        metavar="LOSS",
        help="loss of that step: mean (of the outputs) or file.py:function (default: the model's "
        "own, else mean)",
    )
    parser.add_argument(
        "--autocast",
        choices=["bf16", "fp16"],
        help="that step's forward pass and loss run under autocast, parameters stay as they are",
    )
    parser.add_argument(
        "--on",
        type=lambda text: [name.strip() for name in text.split(",")],
        default=[],
        metavar="DEVICE,…",
        help="estimate time and memory on other devices, such as h100,a100,l4",
    )
    _add_mesh_arguments(parser.add_argument_group("a job on many devices"))
    parser.add_argument(
        "--by",
        choices=["layer", "operator", "type"],
        default="layer",
        help="what the table's lines are (default: layer)",
    )
    parser.add_argument(
        "--depth", type=levels, metavar="N", help="levels of layers to show (default: 3; csv: all)"
    )
    formats.add_arguments(parser.add_argument_group("what comes out"), page=False)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the record as JSON")
    form.add_argument("--csv", action="store_true", help="print the table as CSV")


def _add_mesh_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--mesh",
        metavar="NAME=N,…",
        help="dimensions and sizes, outermost first, such as fsdp=128,tp=8",
    )
    group.add_argument(
        "--checkpoint",
        choices=["full", "op", "none"],
        help="compute activations again: of whole layers, or all but dear operators",
    )
    group.add_argument(
        "--smallest-mesh",
        action="store_true",
        help="look for the smallest mesh that fits the first device of --on",
    )
    group.add_argument(
        "--savings",
        action="store_true",
        help="count again with one setting changed at a time: what would save memory",
    )


def run(options: argparse.Namespace) -> int:
    """Count and show; return the exit code."""
    target.settle(options)
    if options.mesh is not None:
        return _run_mesh(options)
    for name in ("checkpoint", "smallest_mesh", "savings"):
        if getattr(options, name):
            raise option_conflict(
                f"--{name.replace('_', '-')} belongs to a job on many devices.",
                "Add --mesh, such as --mesh fsdp=8.",
            )
    for name in ("optimizer", "loss", "autocast"):
        if getattr(options, name) and not options.backward:
            raise option_conflict(f"--{name} belongs to a training step.", "Add --backward.")
    formats.check(options)
    from torchgauge.api.measurements import count_request

    request = target.target_request(
        options,
        batch=options.batch,
        device="meta" if options.device is None else options.device,
        precision=options.precision,
        loss=options.loss,
    )
    with prints_to_stderr():
        count = count_request(request, _count_options(options))
    written = formats.write(count, options, "count")
    failed = [warning for warning in count.all_warnings if warning.failed]
    for warning in failed:
        tell_lines(warning.traceback)
        tell(f"torchgauge: error: {warning.message} [{warning.id}]")
    show(count, options)
    formats.say(written)
    return ExitCode.MEASUREMENT_FAILED if failed else ExitCode.DONE


def _count_options(options: argparse.Namespace) -> CountOptions:
    """Return how to count. Raises InputError `optimizer-unknown`, `device-unknown`."""
    from torchgauge.analyze.memory.training_memory import OPTIMIZER, optimizer_named
    from torchgauge.device.roofs import peaks
    from torchgauge.measure.work.count_options import CountOptions

    return CountOptions(
        backward=options.backward,
        optimizer=optimizer_named(options.optimizer or OPTIMIZER),
        autocast=options.autocast,
        on=tuple(peaks.find(name) for name in options.on),
        fall_back=options.device is None,
    )


def _run_mesh(options: argparse.Namespace) -> int:
    """Count a rank of a job and show it; return the exit code."""
    from torchgauge.device.roofs import peaks
    from torchgauge.measure.parallel.parallel_options import ParallelOptions, mesh_of

    for name in ("device", "autocast", "csv"):
        if getattr(options, name):
            raise option_conflict(
                f"--{name} does not belong to --mesh.",
                "Leave it out.",
                cause="A rank is counted on fake tensors, in the precision of --precision.",
            )
    job = ParallelOptions(
        mesh=mesh_of(options.mesh),
        optimizer=options.optimizer,
        precision=options.precision,
        checkpoint=options.checkpoint,
        on=tuple(peaks.find(name) for name in options.on),
        smallest=options.smallest_mesh,
        batch=options.batch,
        savings=options.savings,
    )
    formats.check(options)
    from torchgauge.api.parallels import count_parallel_request

    options.device = "meta"
    request = target.target_request(options, batch=options.batch, loss=options.loss, training=True)
    with prints_to_stderr():
        count = count_parallel_request(request, job)
    written = formats.write(count, options, "count")
    show(count, options)
    formats.say(written)
    return ExitCode.DONE


def show(count: Count | Parallel, options: argparse.Namespace) -> None:
    """Print the record as JSON, its table as CSV, or the report; colours on a terminal only."""
    from torchgauge.records.work.size import Count
    from torchgauge.report.csv import count_csv, csv

    if options.csv and isinstance(count, Count) and not options.json:
        emit(csv.text(*count_csv.rows(count, options.by, options.depth)))
    else:
        formats.show(count, options, depth=options.depth, by=options.by)
