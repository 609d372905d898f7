"""`torchgauge compare`: two saved runs side by side."""

from __future__ import annotations

import argparse

from torchgauge.cli import formats
from torchgauge.cli.numbers import positive
from torchgauge.cli.output import emit, print_view
from torchgauge.errors import ExitCode

NAME = "compare"
SUMMARY = "show what changed between two runs, and where"
DESCRIPTION = """\
Compare two saved runs: every figure, layers, operators and kernels.

  torchgauge compare before.json after.json
  torchgauge compare before.json after.json --html page.html
  torchgauge compare before.json after.json --format markdown --output-dir DIR

Times are judged between the same machine, software and settings, where both runs were recorded
with --processes 10; sizes and counts always. `torchgauge gate` gives a verdict for CI.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    parser.add_argument("baseline", metavar="A", help="the run before")
    parser.add_argument("current", metavar="B", help="the run after")
    parser.add_argument(
        "--top", type=positive, default=10, metavar="N", help="places shown (default: 10)"
    )
    out = parser.add_argument_group("what comes out")
    formats.add_arguments(out)
    out.add_argument(
        "--json", action="store_true", help="print the record as JSON instead of the summary"
    )


def run(options: argparse.Namespace) -> int:
    """Compare, show, write; return the exit code."""
    formats.check(options)
    from torchgauge import api
    from torchgauge.model import rendering
    from torchgauge.report.comparison import view

    found = api.compare(options.baseline, options.current)
    written = formats.write(found, options, "comparison")
    if options.json:
        emit(rendering.text(found, "json"))
    else:
        print_view(lambda width: view(found, width=width, top=options.top))
    formats.say(written)
    return ExitCode.DONE
