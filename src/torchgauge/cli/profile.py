"""`torchgauge profile`: the main job."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.cli import formats, verdicts
from torchgauge.cli.numbers import levels, positive
from torchgauge.cli.output import emit, print_view, prints_to_stderr, tell_lines
from torchgauge.cli.target_option import add_target, add_threshold, settle
from torchgauge.errors import ExitCode, InputError
from torchgauge.folders import typed

if TYPE_CHECKING:
    from torchgauge.records.profile import Profile
    from torchgauge.records.verdict import Limit, Verdict

DESCRIPTION = """\
Measure a model: size, latency, throughput, memory by part, and use of the machine.

TARGET is one of
  file.py:factory, package.module:factory   a function that returns a model or (model, inputs)
  torchvision:NAME, timm:NAME               a library's model with random weights
  hf:ARCHITECTURE?key=value&…               a transformers architecture from its configuration
  a folder                                  what Hugging Face's save_pretrained wrote
  file.pt2, file.pt                         a program of torch.export or TorchScript; needs --trust

With --threshold it ends with 3 where a limit is broken and with 4 where one cannot be told. A
failed measurement (1) and Ctrl-C (130) come before both; the limits are told all the same.
"""
OF_A_VERDICT = ("json", "text", "csv", "markdown", "junit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    add_target(parser)
    add_run_options(
        parser.add_argument_group("what is run"),
        device="auto",
        device_help="cpu, cuda, cuda:N, meta (nothing is timed) or auto: the GPU where there is "
        "one (default)",
    )
    training(parser.add_argument_group("training"))
    _add_timing_options(parser.add_argument_group("how latency is measured"))
    _tree(parser.add_argument_group("where it goes"))
    add_threshold(parser.add_argument_group("what must hold"))
    _out(parser.add_argument_group("what comes out"))


def add_run_options(
    group: argparse._ArgumentGroup, *, device: str | None, device_help: str
) -> None:
    """Declare the options that say what is run and where; other verbs take them too."""
    group.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="SPEC",
        dest="inputs",
        help="shape of an input, such as 1x3x224x224 or input_ids=2x128:int64<50257; repeatable",
    )
    group.add_argument("--batch", type=int, metavar="N", help="leading dimension of every input")
    group.add_argument("--weights", type=typed, metavar="FILE", help="state dict to load")
    group.add_argument("--device", default=device, metavar="DEVICE", help=device_help)
    group.add_argument(
        "--precision", metavar="P", help="fp32, tf32, bf16 or fp16 (default: as the model is)"
    )
    group.add_argument(
        "--trust",
        action="store_true",
        help="load a file that holds a program, in a process of its own",
    )


def training(training: argparse._ArgumentGroup) -> None:
    """Declare the options of a training step; other verbs take them too."""
    training.add_argument(
        "--train", action="store_true", help="measure a training step in place of inference"
    )
    training.add_argument(
        "--loss",
        metavar="L",
        help="file.py:function or module:function of (outputs, inputs), or 'mean' of the outputs "
        "(default: the loss that the model returns)",
    )
    training.add_argument(
        "--optimizer", metavar="NAME", help="a class of torch.optim, such as adamw (the default)"
    )


def _add_timing_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--warmup", type=int, metavar="N", help="calls to leave out (default: found in the data)"
    )
    group.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        help="calls to time, in this process alone (default: 0.3 s in each process)",
    )
    group.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="measure in N freshly started processes, 1 for this one alone (default: in as many "
        "short ones as the budget allows)",
    )
    group.add_argument(
        "--roofs",
        action=argparse.BooleanOptionalAction,
        help="measure anew what this machine can do at most, which tells what bounds a model: some "
        "ten seconds, and it is kept (default: in two seconds where nothing is kept; --no-roofs: "
        "not at all)",
    )
    group.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="time for latency at most (default: 6; of one process 30)",
    )


def _tree(tree: argparse._ArgumentGroup) -> None:
    tree.add_argument(
        "--detail",
        choices=("summary", "layers", "operators", "kernels"),
        default="kernels",
        help="how far down: summary makes no tree, layers records nothing (default: kernels)",
    )
    add_view_options(tree, depth=2, depth_help="2")
    tree.add_argument(
        "--lines",
        action="store_true",
        help="tell the time that Python takes between operators by line of your source",
    )
    tree.add_argument(
        "--all-threads",
        action="store_true",
        help="operators of threads that the model starts are in the tree too; torch may crash "
        "where threads run on after the step",
    )


def add_view_options(group: argparse._ArgumentGroup, *, depth: int | None, depth_help: str) -> None:
    """Declare the options that say what of a tree is shown; other verbs take them too."""
    group.add_argument(
        "--depth",
        type=levels,
        default=depth,
        metavar="N",
        help=f"levels of layers shown (default: {depth_help})",
    )
    group.add_argument(
        "--top", type=positive, default=10, metavar="N", help="operators shown (default: 10)"
    )
    group.add_argument(
        "--sort",
        choices=("self", "total", "calls", "average", "flops", "bytes", "memory"),
        default="self",
        help="the order of the operators (default: self)",
    )
    group.add_argument(
        "--group-by-shape",
        action="store_true",
        help="tell an operator on inputs of other shapes apart",
    )


def _out(out: argparse._ArgumentGroup) -> None:
    formats.add_arguments(out)
    out.add_argument(
        "--trace",
        type=typed,
        metavar="FILE",
        help="write the recording to FILE (.json or .json.gz), which Perfetto opens",
    )
    out.add_argument(
        "--nvtx",
        action="store_true",
        help="run some steps at the end with layers as NVTX ranges, for Nsight Systems",
    )
    out.add_argument(
        "--json", action="store_true", help="print the record as JSON instead of the summary"
    )


def _checked(options: argparse.Namespace) -> tuple[Limit, ...]:
    """Return the limits; raises InputError for options that do not go together."""
    if (options.loss or options.optimizer) and not options.train:
        raise InputError(
            "--loss and --optimizer belong to a training step.",
            id="option-conflict",
            remedy="Add --train.",
        )
    limits = settle(options)
    if "junit" in (options.formats or ()) and not limits:
        raise InputError(
            "JUnit tells which limits hold, and there is none.",
            id="option-conflict",
            remedy="Add --threshold, such as --threshold latency:100ms.",
        )
    formats.check(options)
    return limits


def run(options: argparse.Namespace) -> int:
    """Measure, show, write; return the exit code."""
    limits = _checked(options)
    from torchgauge import api
    from torchgauge.analyze.gate.limits import judged, percentile_of

    with prints_to_stderr():
        profile = api.profile_request(
            options.target,
            inputs=tuple(options.inputs),
            weights=options.weights,
            batch=options.batch,
            device=options.device,
            precision=options.precision,
            trust=options.trust,
            train=options.train,
            loss=options.loss,
            optimizer=options.optimizer,
            detail=options.detail,
            trace=options.trace,
            lines=options.lines,
            nvtx=options.nvtx,
            all_threads=options.all_threads,
            warmup=options.warmup,
            iterations=options.iterations,
            processes=options.processes,
            budget=options.budget,
            roofs=options.roofs,
            percentile=percentile_of(limits),
        )
    verdict = judged(limits, profile) if limits else None
    from torchgauge.measure.interrupts import Interrupts

    with Interrupts() as interrupts:  # what was measured is written before a Ctrl-C ends it
        try:
            # First, since the reader of our output may go away.
            written = write(profile, verdict, options)
        except InputError:
            tell(profile, verdict, options)  # or the measurement would be lost
            options.json = False  # standard output holds one document
            raise
    tell(profile, verdict, options)
    if options.trace is not None and probe_ran(profile, "trace"):
        written.append(options.trace)
    formats.say(written)
    if profile.interrupted or interrupts.noted:
        return ExitCode.INTERRUPTED
    if not profile.complete:
        return ExitCode.MEASUREMENT_FAILED
    return ExitCode.DONE if verdict is None else verdict.exit_code


def write(profile: Profile, verdict: Verdict | None, options: argparse.Namespace) -> list[Path]:
    """Write the record in the formats asked for, and the verdict in those that fit it."""

    def options_with(forms: list[str], **overrides: object) -> argparse.Namespace:
        return argparse.Namespace(**{**vars(options), "formats": forms, **overrides})

    forms = options.formats or ["json"]
    try:
        return formats.write(
            profile, options_with([form for form in forms if form != "junit"]), "profile"
        )
    finally:
        if verdict is not None:
            fitting = [form for form in forms if form in OF_A_VERDICT]
            formats.say(formats.write(verdict, options_with(fitting, html=None), "verdict"))


def tell(profile: Profile, verdict: Verdict | None, options: argparse.Namespace) -> None:
    """Print the record, then the verdict; in a workflow tell GitHub."""
    show(profile, options)
    if verdict is not None:
        verdicts.show(verdict, to_stderr=options.json)
        verdicts.tell_github(verdict, profile.target.spec)


def probe_ran(profile: Profile, probe: str) -> bool:
    """Return whether the probe ran to its end."""
    failed = any(warning.failed and warning.probe == probe for warning in profile.warnings)
    return not failed and any(probe_pass.probe == probe for probe_pass in profile.passes)


def show(profile: Profile, options: argparse.Namespace) -> None:
    """Print the record as JSON, or the summary; colours on a terminal only."""
    from torchgauge.records import rendering

    for warning in profile.all_warnings:
        if warning.traceback:
            tell_lines(warning.traceback)
    if options.json:
        emit(rendering.text(profile, "json"))
        return
    from torchgauge.report.console.console import view
    from torchgauge.report.console.tree import View

    tree_view = View(options.depth, options.top, options.sort, options.group_by_shape)
    print_view(lambda width: view(profile, tree_view, width=width))
