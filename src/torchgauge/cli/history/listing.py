"""`torchgauge history list`: what is there."""

from __future__ import annotations

import argparse

from torchgauge.cli.history.chosen import add_run_filters, opened, selection
from torchgauge.cli.options.numbers import positive
from torchgauge.cli.options.store import add_store_option
from torchgauge.cli.output import emit, print_view
from torchgauge.errors import ExitCode

NAME = "list"
SUMMARY = "list the runs that are kept, the newest last"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this action."""
    add_store_option(parser)
    add_run_filters(parser)
    parser.add_argument(
        "--limit", type=positive, default=20, metavar="N", help="the newest N (default: 20)"
    )
    parser.add_argument("--json", action="store_true", help="print them as JSON")


def run(options: argparse.Namespace) -> int:
    """Show the runs; return the exit code."""
    import msgspec

    from torchgauge.report.console import line as runs

    with opened(options) as store:
        all_runs = store.runs(selection(options))
    newest_runs = all_runs[-options.limit :]
    if options.json:
        emit(msgspec.json.format(msgspec.json.encode(newest_runs), indent=1).decode() + "\n")
        return ExitCode.DONE
    print_view(lambda width: runs.view(newest_runs, width))
    if len(newest_runs) < len(all_runs):
        emit(f"{len(newest_runs)} of {len(all_runs)} runs; --limit N shows more.\n")
    return ExitCode.DONE
