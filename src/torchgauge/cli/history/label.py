"""`torchgauge history label`: change the labels of a run that is kept."""

from __future__ import annotations

import argparse

from torchgauge.cli.history.chosen import label, opened
from torchgauge.cli.options.store import add_store_option
from torchgauge.cli.output import print_view
from torchgauge.errors import ExitCode, InputError

NAME = "label"
SUMMARY = "change the labels of a run that is kept; its record stays as it was measured"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this action."""
    parser.add_argument("name", metavar="RUN", help="the beginning of its uuid, or latest")
    parser.add_argument(
        "labels", nargs="*", type=label, metavar="K=V", help="attach a label, or replace its value"
    )
    parser.add_argument(
        "--remove",
        action="append",
        default=[],
        metavar="K",
        help="take a label away (may be repeated)",
    )
    add_store_option(parser)


def run(options: argparse.Namespace) -> int:
    """Change the labels and show what the run has now; return the exit code."""
    from torchgauge.report.console import line as runs

    if not options.labels and not options.remove:
        raise InputError(
            "No label is given.",
            id="option-missing",
            remedy="Give labels as KEY=VALUE, or --remove KEY.",
        )
    with opened(options) as store:
        uuid = store.find(options.name).uuid
        store.label(uuid, dict(options.labels), removed=options.remove)
        labelled_run = store.find(uuid)
    print_view(lambda _width: runs.head(labelled_run))
    return ExitCode.DONE
