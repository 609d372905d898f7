"""`torchgauge mcp`: records, traces and snapshots for language models, read-only."""

from __future__ import annotations

import argparse

from torchgauge.errors import ExitCode
from torchgauge.folders import typed

DESCRIPTION = """\
Serve the records, traces and snapshots of a folder to a language model, over standard input and
output (Model Context Protocol). Files outside of the folder cannot be named; nothing is measured,
written or run.

  torchgauge mcp results

A client starts it itself: give it the command `torchgauge` with the arguments `mcp FOLDER`.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    parser.add_argument("folder", type=typed, metavar="FOLDER", help="what may be read")


def run(options: argparse.Namespace) -> int:
    """Answer until the client ends; return the exit code."""
    from torchgauge.integrate.agents.server import serve

    serve(options.folder)
    return ExitCode.DONE
