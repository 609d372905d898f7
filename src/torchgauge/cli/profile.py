"""`torchgauge profile`: the main job."""

from __future__ import annotations

import argparse
import functools
from typing import TYPE_CHECKING

from torchgauge.cli import formats, verdicts
from torchgauge.cli.options import target, tree
from torchgauge.cli.options.latency import add_latency_options, latency_options
from torchgauge.cli.output import prints_to_stderr
from torchgauge.errors import ExitCode

if TYPE_CHECKING:
    from torchgauge.records.profile import Profile
    from torchgauge.records.verdict import Limit
    from torchgauge.report.content.document import Document

DESCRIPTION = """\
Measure a model: size, latency, throughput, memory by part, and use of the machine.

TARGET is one of
  file.py:factory, package.module:factory   a function that returns a model or (model, inputs)
  torchvision:NAME, timm:NAME               a library's model with random weights
  hf:ARCHITECTURE?key=value&…               a transformers architecture from its configuration
  hf:llama-3-8b, hf:gpt2-xl, hf:t5-3b, …    a published size of one, with random weights
  a folder                                  what Hugging Face's save_pretrained wrote
  file.pt2, file.pt                         torch.export, AOTInductor, TorchScript; needs --trust
  file.pte                                  an ExecuTorch program; needs --trust
  file.onnx                                 an ONNX file; --input gives its free dimensions

With --threshold it ends with 3 if a limit is exceeded and with 4 if one cannot be decided. A
failed measurement (1) and Ctrl-C (130) take precedence; the limits are still reported.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    target.add_target(parser)
    target.add_run_options(
        parser.add_argument_group("what is run"),
        device_help="cpu, cuda, cuda:N, meta (nothing is timed) or auto: the GPU if there is "
        "one (default)",
    )
    target.add_runtime_options(parser.add_argument_group("running an ONNX file"))
    target.add_training_options(parser.add_argument_group("training"))
    add_latency_options(parser.add_argument_group("how latency is measured"))
    tree_group = parser.add_argument_group("where it goes")
    tree.add_tree_options(tree_group)
    tree.add_energy_option(tree_group)
    target.add_threshold(parser.add_argument_group("what must hold"))
    _out(parser.add_argument_group("what comes out"))


def _out(out: argparse._ArgumentGroup) -> None:
    formats.add_all(out)
    tree.add_recording_options(out)


def _checked(options: argparse.Namespace) -> tuple[Limit, ...]:
    """Return the limits; raises InputError for options that do not go together."""
    target.check_training(options)
    limits = target.settle(options)
    verdicts.check_junit(options, limits, "latency:100ms")
    formats.check(options)
    return limits


def run(options: argparse.Namespace) -> int:
    """Measure, show, write; return the exit code."""
    limits = _checked(options)
    from torchgauge.analyze.gate.limits import judged
    from torchgauge.api.profiles import profile_request

    with prints_to_stderr():
        profile = profile_request(
            target.run_request(options),
            latency_options(options, limits, options.effort),
            tree.timeline_options(options),
        )
    verdict = judged(limits, profile) if limits else None
    interrupted = verdicts.report(
        profile, verdict, options, "profile", functools.partial(_document, profile, options)
    )
    if options.trace is not None and probe_ran(profile, "trace"):
        formats.say([options.trace])
    if profile.interrupted or interrupted:
        return ExitCode.INTERRUPTED
    if not profile.complete:
        return ExitCode.MEASUREMENT_FAILED
    return ExitCode.DONE if verdict is None else verdict.exit_code


def probe_ran(profile: Profile, probe: str) -> bool:
    """Return whether the probe ran to its end."""
    failed = any(warning.failed and warning.probe == probe for warning in profile.warnings)
    return not failed and any(probe_pass.probe == probe for probe_pass in profile.passes)


def _document(profile: Profile, options: argparse.Namespace) -> Document:
    from torchgauge.cli.steps.next_steps import with_next_steps
    from torchgauge.report import kinds

    return with_next_steps(kinds.document(profile, tree.shown_options(options)), profile, options)
