"""`torchgauge history show`: one run again."""

from __future__ import annotations

import argparse

from torchgauge.cli.history.chosen import opened
from torchgauge.cli.options.store import add_store_option
from torchgauge.cli.options.tree import add_view_options, shown_options
from torchgauge.cli.output import emit, print_view
from torchgauge.errors import ExitCode

NAME = "show"
SUMMARY = "show a run that is kept as it was shown when it was measured"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this action."""
    parser.add_argument("name", metavar="RUN", help="the beginning of its uuid, or latest")
    add_store_option(parser)
    view_group = parser.add_argument_group("what the summary shows")
    add_view_options(view_group, depth=None, depth_help="2")
    parser.add_argument("--json", action="store_true", help="print the record as JSON")


def run(options: argparse.Namespace) -> int:
    """Show the run; return the exit code."""
    from torchgauge.records import rendering
    from torchgauge.report.console import console
    from torchgauge.report.console import line as runs

    with opened(options) as store:
        stored_run = store.find(options.name)
        profile = store.profile(stored_run.uuid)
    if options.json:
        emit(rendering.text(profile, "json"))
    else:
        print_view(lambda _width: runs.head(stored_run))
        print_view(lambda width: console.view(profile, shown_options(options), width=width))
    return ExitCode.DONE
