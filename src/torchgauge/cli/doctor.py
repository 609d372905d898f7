"""`torchgauge doctor`: what on this machine distorts timings."""

from __future__ import annotations

import argparse

from torchgauge.cli import formats
from torchgauge.cli.output import prints_to_stderr
from torchgauge.errors import ExitCode

DESCRIPTION = """\
Look for what distorts timings on this machine: other load, quotas, threads, clocks, heat,
memory, debug builds, switches. Each finding has its evidence and a remedy.

At the end the same work is timed on both sides of an A/A comparison, in fresh processes, for
about ten seconds. How far the sides differ is this machine's noise floor; it is kept for gates.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    parser.add_argument("--json", action="store_true", help="print the record as JSON")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 where anything above info is found (default: exit with 0)",
    )
    parser.add_argument("--quick", action="store_true", help="leave out the A/A run")


def run(options: argparse.Namespace) -> int:
    """Examine, show; return the exit code."""
    from torchgauge.api.measurements import diagnose

    with prints_to_stderr():
        diagnosis = diagnose(quick=options.quick)
    formats.show(diagnosis, options)
    # Not "a measurement failed": a shell's plain "no", as grep and diff say it.
    failed = options.strict and not diagnosis.healthy
    return 1 if failed else ExitCode.DONE
