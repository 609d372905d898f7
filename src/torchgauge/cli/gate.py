"""`torchgauge gate`: pass, fail or inconclusive, for CI."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torchgauge.cli import formats, output
from torchgauge.cli.options.numbers import positive
from torchgauge.cli.options.store import add_store_option, stored_baseline
from torchgauge.cli.options.target import (
    add_run_options,
    add_runtime_options,
    add_target,
    add_threshold,
    add_training_options,
    run_request,
    settle,
)
from torchgauge.cli.verdicts import tell_github
from torchgauge.errors import ExitCode, option_conflict

if TYPE_CHECKING:
    from torchgauge.records.verdict import Limit, Verdict

DESCRIPTION = """\
Gate a model against another build of it, and name the layers that got worse.

  torchgauge gate --base-ref main TARGET       a git revision, in a work tree of its own
  torchgauge gate --base-target A TARGET       two targets that are both here
  torchgauge gate --baseline run.json TARGET   a saved run, of the same machine and software
  torchgauge gate --baseline history TARGET    the newest comparable run of the history
  torchgauge gate --calibrate TARGET           how far this host's timings scatter; it is kept

Counted figures are compared first and exactly. Times are measured in turn in fresh processes, A B B
A, as many as this host's calibration asks for (8 blocks without one), once more as many where that
does not decide. A metric fails if it got worse, significantly, by more than the first value of its
tolerance, and passes if a change as large as the second is excluded.

Exit codes: 0 pass, 3 fail, 4 inconclusive, 5 not comparable, 1 a measurement failed and left it
undecided, 2 bad input, 130 interrupted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    add_target(parser)
    _against(parser.add_argument_group("against what"))
    _add_gate_options(parser.add_argument_group("what is gated"))
    add_run_options(parser.add_argument_group("what is run"))
    add_runtime_options(parser.add_argument_group("running an ONNX file"))
    add_training_options(parser.add_argument_group("training"))
    formats.add_all(parser.add_argument_group("what comes out"))


def _against(base: argparse._ArgumentGroup) -> None:
    base.add_argument("--base-ref", metavar="REF", help="a git revision: branch, tag or commit")
    base.add_argument(
        "--base-env",
        choices=("this", "build"),
        default="this",
        help="run the revision in this environment (default), or build what it requires",
    )
    base.add_argument("--base-target", metavar="A", help="another target")
    base.add_argument(
        "--baseline",
        action="append",
        metavar="RUN",
        help="a saved run's file, of generations and loads several (repeatable); or history, the "
        "newest comparable run of it: history:UUID, "
        "history:branch=B and history:LABEL=VALUE choose among them",
    )
    add_store_option(base)
    base.add_argument(
        "--calibrate", action="store_true", help="time the target against itself, and keep that"
    )


def _add_gate_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="M",
        dest="metrics",
        help="a metric to gate; repeatable (default: params, flops, memory, latency)",
    )
    group.add_argument(
        "--tolerance",
        action="append",
        default=[],
        metavar="M:δ0:δ1",
        dest="tolerances",
        help="change accepted, and change refused, as in latency:1%%:3%%; repeatable",
    )
    add_threshold(group)
    group.add_argument(
        "--all",
        action="store_true",
        dest="everything",
        help="measure times even where a counted figure has failed",
    )
    group.add_argument("--blocks", type=positive, metavar="K", help="blocks of four processes")
    group.add_argument(
        "--max-blocks", type=positive, metavar="K", help="blocks at most (default: 40)"
    )


def run(options: argparse.Namespace) -> int:
    """Gate, show, write; return the exit code."""
    against = [options.base_ref, options.base_target, options.baseline, options.calibrate or None]
    if sum(side is not None for side in against) != 1:
        target = output.command_argument(options.target or options.model_path or "TARGET")
        raise option_conflict(
            "Say what to gate against, once.",
            f"Give --base-ref, --base-target, --baseline or --calibrate, as in\n"
            f"torchgauge gate --base-ref HEAD {target}",
        )
    limits = settle(options)
    formats.check(options, "Verdict")
    return _calibrate(options) if options.calibrate else _gate(options, limits)


def _gate(options: argparse.Namespace, limits: tuple[Limit, ...]) -> int:
    from torchgauge.api.gates import gate_stored, gate_targets
    from torchgauge.gates.gate_options import MOST_BLOCKS, BaseRequest, GateOptions
    from torchgauge.measure.interrupts import Interrupts

    block_limit = options.max_blocks or max(MOST_BLOCKS, options.blocks or 0)
    parsed_options = GateOptions.parsed(
        options.metrics,
        options.tolerances,
        [limit.text for limit in limits],
        blocks=options.blocks,
        max_blocks=block_limit,
        time_always=options.everything,
    )
    with output.prints_to_stderr():
        if options.baseline is not None:
            baseline = stored_baseline(options)
            verdict = gate_stored(baseline, run_request(options), parsed_options)
        else:
            base = BaseRequest(options.base_ref, options.base_target, options.base_env)
            verdict = gate_targets(run_request(options), base, parsed_options)
    with Interrupts() as interrupts:  # what was measured is written before a Ctrl-C ends it
        written = formats.write_or_show(
            verdict, options, "verdict", lambda: _tell(verdict, options)
        )
    _tell(verdict, options)
    formats.say(written)
    if interrupts.noted or any(warning.id == "interrupted" for warning in verdict.warnings):
        return ExitCode.INTERRUPTED
    if verdict.outcome == "inconclusive" and any(warning.failed for warning in verdict.warnings):
        return ExitCode.MEASUREMENT_FAILED  # a model that is broken is not one that scatters
    return verdict.exit_code


def _tell(verdict: Verdict, options: argparse.Namespace) -> None:
    """Print the verdict; in a workflow tell GitHub."""
    for warning in verdict.warnings:
        if warning.traceback:
            output.tell_lines(warning.traceback)
    formats.show(verdict, options)
    tell_github(verdict, options.target)


def _calibrate(options: argparse.Namespace) -> int:
    from torchgauge.api.gates import calibrate
    from torchgauge.records import rendering
    from torchgauge.report.console import blocks
    from torchgauge.report.content.doctor import calibration

    block_options = {} if options.blocks is None else {"blocks": options.blocks}
    with output.prints_to_stderr():
        noise = calibrate(run_request(options), **block_options)
    if options.json:
        output.emit(rendering.text(noise, "json"))
    else:
        output.print_view(lambda width: blocks.view(calibration(noise), width))
    return ExitCode.DONE
