"""`torchgauge history list`: what is there."""

from __future__ import annotations

import argparse

from torchgauge.cli.history.chosen import opened, selection, which_runs, which_store
from torchgauge.cli.numbers import positive
from torchgauge.cli.output import emit, print_view
from torchgauge.errors import ExitCode

NAME = "list"
SUMMARY = "list the runs that are kept, the newest last"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this action."""
    which_store(parser)
    which_runs(parser)
    parser.add_argument(
        "--limit", type=positive, default=20, metavar="N", help="the newest N (default: 20)"
    )
    parser.add_argument("--json", action="store_true", help="print them as JSON")


def run(options: argparse.Namespace) -> int:
    """Show the runs; return the exit code."""
    import msgspec

    from torchgauge.report import runs

    with opened(options) as store:
        every = store.runs(selection(options))
    shown = every[-options.limit :]
    if options.json:
        emit(msgspec.json.format(msgspec.json.encode(shown), indent=1).decode() + "\n")
        return ExitCode.DONE
    print_view(lambda width: runs.view(shown, width))
    if len(shown) < len(every):
        emit(f"{len(shown)} of {len(every)} runs; --limit N shows more.\n")
    return ExitCode.DONE
