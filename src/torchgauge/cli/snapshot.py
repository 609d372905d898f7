"""`torchgauge snapshot`: what a CUDA memory snapshot says; nothing in the file is run."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchgauge.cli import formats
from torchgauge.cli.options.numbers import positive
from torchgauge.cli.output import emit
from torchgauge.errors import ExitCode

DESCRIPTION = """\
Read what torch.cuda.memory._dump_snapshot wrote: who held memory at the peak and at the end, how
fragmented it is, and why an allocation failed.

  torchgauge snapshot snapshot.pickle
  torchgauge snapshot snapshot.pickle --csv stacks > stacks.csv
  torchgauge snapshot snapshot.pickle --output-dir results
  torchgauge compare before.pickle after.pickle

Neither torch nor a GPU is needed. A pickle is a program: one that holds more than plain values is
refused, and none of it is run.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    parser.add_argument("path", type=Path, metavar="FILE", help="the snapshot")
    parser.add_argument(
        "--top", type=positive, default=10, metavar="N", help="stacks shown (default: 10)"
    )
    out = parser.add_argument_group("what comes out")
    formats.add_arguments(out)
    formats.add_printed(
        out, ("figures", "stacks", "segments", "timeline", "ooms"), "stacks", "a table"
    )


def run(options: argparse.Namespace) -> int:
    """Read, show, write; return the exit code."""
    from torchgauge.api.records import read_snapshot
    from torchgauge.records import rendering

    formats.check(options, "Snapshot")
    record = read_snapshot(options.path)
    written = formats.write(record, options, "snapshot")
    if options.csv is not None and not options.json:
        emit(rendering.text(record, "csv", table=options.csv))
    else:
        formats.show(record, options, top=options.top)
    formats.say(written)
    return ExitCode.DONE
