"""`torchgauge history show`: one run again."""

from __future__ import annotations

import argparse

from torchgauge.cli.history.chosen import opened, which_store
from torchgauge.cli.output import emit, print_view
from torchgauge.cli.profile import what_is_shown
from torchgauge.cli.report import view
from torchgauge.errors import ExitCode

NAME = "show"
SUMMARY = "show a run that is kept as it was shown when it was measured"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this action."""
    parser.add_argument("name", metavar="RUN", help="the beginning of its uuid, or latest")
    which_store(parser)
    shown = parser.add_argument_group("what the summary shows")
    what_is_shown(shown, depth=None, depth_help="2")
    parser.add_argument("--json", action="store_true", help="print the record as JSON")


def run(options: argparse.Namespace) -> int:
    """Show the run; return the exit code."""
    from torchgauge.model import rendering
    from torchgauge.report import runs

    with opened(options) as store:
        found = store.find(options.name)
        profile = store.profile(found.uuid)
    if options.json:
        emit(rendering.text(profile, "json"))
    else:
        print_view(lambda _width: runs.head(found))
        print_view(lambda width: view(profile, options, width))
    return ExitCode.DONE
