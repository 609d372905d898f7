"""`torchgauge trace --replay`: one recorded call of an operator, timed on this machine."""

from __future__ import annotations

import argparse

from torchgauge.cli.output import print_view
from torchgauge.errors import ExitCode, InputError


def add_arguments(
    parser: argparse.ArgumentParser, printed: argparse._MutuallyExclusiveGroup
) -> None:
    """Declare the options; `printed` are those of which one alone says what is printed."""
    printed.add_argument(
        "--replay",
        metavar="OPERATOR[#N]",
        help="time the N-th recorded call of an operator again here, such as aten::mm#12, with "
        "tensors of its sizes, types and strides",
    )
    parser.add_argument("--device", metavar="DEVICE", help="where --replay runs: cpu, cuda, cuda:1")


def check(options: argparse.Namespace) -> None:
    """Raise InputError `option-conflict` for options that have nothing to do with each other."""
    if options.replay is None and options.device is not None:
        raise InputError(
            "--device says where an operator is replayed.",
            id="option-conflict",
            remedy="Add --replay aten::mm#12.",
        )


def run(options: argparse.Namespace) -> int:
    """Replay the call and print its times; return the exit code."""
    from torchgauge import api
    from torchgauge.report.console import blocks
    from torchgauge.report.content.replay import document

    replay = api.replay_operator(
        options.path,
        options.replay,
        rank=options.rank,
        device=options.device,
        partial=options.partial,
        cache=options.cache,
    )
    print_view(lambda width: blocks.view(document(replay), width))
    return ExitCode.DONE
