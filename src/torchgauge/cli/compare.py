"""`torchgauge compare`: two saved runs, two targets, or two memory snapshots, side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from torchgauge.cli import formats
from torchgauge.cli.options.numbers import positive, whole_number
from torchgauge.cli.options.target import (
    add_run_options,
    add_runtime_options,
    add_training_options,
    run_request,
)
from torchgauge.cli.output import command_argument, prints_to_stderr
from torchgauge.errors import ExitCode, InputError
from torchgauge.files import is_file

if TYPE_CHECKING:
    from torchgauge.records.comparison import Comparison
    from torchgauge.records.snapshot import Growth
    from torchgauge.records.trace.trace_diff import TraceDiff

DESCRIPTION = """\
Compare two saved runs, two traces or two targets: figures, layers, operators and kernels.

  torchgauge compare before.json after.json
  torchgauge compare before.json after.json --html page.html
  torchgauge compare before.json after.json --format markdown --output-dir DIR
  torchgauge compare models.py:small models.py:large
  torchgauge compare before.trace.json.gz after.trace.json.gz
  torchgauge compare before.pickle after.pickle

Times of saved runs are judged between the same machine, software and settings, where both were
recorded with --processes 10; elsewhere the records are not comparable, and the exit code is 5.
Two targets are run in turn, in fresh
processes. Of two memory snapshots it shows what grew, by stack. `torchgauge gate` gives a verdict
for CI.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    parser.add_argument("baseline", metavar="A", help="the run before, or a target")
    parser.add_argument("target", metavar="B", help="the run after, or a target")
    parser.add_argument(
        "--top",
        type=positive,
        default=10,
        metavar="N",
        help="layers, operators, kernels or stacks shown (default: 10)",
    )
    parser.add_argument(
        "--rank", type=whole_number, metavar="R", help="of traces, the rank that is compared"
    )
    run_group = parser.add_argument_group("what is run, of two targets")
    add_run_options(run_group)
    run_group.add_argument(
        "--blocks", type=positive, metavar="K", help="blocks of four processes (default: 8)"
    )
    add_runtime_options(parser.add_argument_group("running an ONNX file"))
    add_training_options(parser.add_argument_group("training"))
    formats.add_all(parser.add_argument_group("what comes out"))


def run(options: argparse.Namespace) -> int:
    """Compare, show, write; return the exit code."""
    from torchgauge.readers.tables import evidence

    kind = evidence(options.baseline, options.target)
    if kind is not None:
        return _compare_recordings(kind, options)
    formats.check(options, "Comparison")
    comparison = _compared(options)
    written = formats.write_or_show(
        comparison,
        options,
        "comparison",
        lambda: formats.show(comparison, options, top=options.top),
    )
    formats.show(comparison, options, top=options.top)
    formats.say(written)
    if any(warning.id == "interrupted" for warning in comparison.warnings):
        return ExitCode.INTERRUPTED
    return _code(comparison)


def _code(record: Comparison | TraceDiff) -> ExitCode:
    """Return 5 where the sides are not comparable in time, else 0."""
    return ExitCode.DONE if record.timing_comparable else ExitCode.NOT_COMPARABLE


def _compare_recordings(kind: Literal["trace", "snapshot"], options: argparse.Namespace) -> int:
    """Show how two traces differ, or what grew between two memory snapshots."""
    from torchgauge.api.records import compare_snapshots
    from torchgauge.api.traces import compare_traces

    formats.check(options, "TraceDiff" if kind == "trace" else "Growth")
    sides = options.baseline, options.target
    record: TraceDiff | Growth = (
        compare_traces(*sides, rank=options.rank, timeline=formats.has_page(options))
        if kind == "trace"
        else compare_snapshots(*sides)
    )
    written = formats.write(record, options, "comparison" if kind == "trace" else "growth")
    formats.show(record, options, top=options.top)
    formats.say(written)
    return ExitCode.DONE if kind == "snapshot" else _code(cast("TraceDiff", record))


def _compared(options: argparse.Namespace) -> Comparison:
    from torchgauge.api.comparisons import compare
    from torchgauge.api.gates import compare_targets

    saved = [_is_saved_run(side) for side in (options.baseline, options.target)]
    if all(saved):
        return cast("Comparison", compare(options.baseline, options.target))
    if any(saved):
        target = options.target if saved[0] else options.baseline
        raise InputError(
            "A saved run and a target cannot be compared.",
            id="compare-sides",
            cause="Two runs are read, or two targets are run in turn.",
            remedy="Save a run of the target first:\n"
            f"torchgauge profile {command_argument(target)} --processes 10 --output-dir results",
        )
    with prints_to_stderr():
        return compare_targets(run_request(options), options.baseline, blocks=options.blocks)


def _is_saved_run(argument: str) -> bool:
    """Return whether this is a file that a run was saved to; a target's file ends otherwise."""
    return argument.endswith(".json") or (Path(argument).suffix == "" and is_file(Path(argument)))
