"""`torchgauge report`: any format again from a saved run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.cli import formats
from torchgauge.cli.options.tree import add_view_options, shown_options
from torchgauge.cli.output import command_argument, emit, print_view
from torchgauge.errors import ExitCode, InputError, option_conflict
from torchgauge.files import is_folder

if TYPE_CHECKING:
    from rich.console import RenderableType

    from torchgauge.records.codec import Saved

DESCRIPTION = """\
Show any saved record again, a recorded trace or a memory snapshot too; on any machine, without
torch.

  torchgauge report profile.json                             the summary
  torchgauge report profile.json --html page.html            the page
  torchgauge report profile.json --format markdown           one format, printed
  torchgauge report profile.json --format csv,speedscope --output-dir DIR

RUN is a file, or a folder with the ranks of a distributed loop.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    parser.add_argument("run_file", type=Path, metavar="RUN", help="the saved run")
    view_group = parser.add_argument_group("what the summary shows")
    add_view_options(view_group, depth=None, depth_help="2, of a count 3")
    out = parser.add_argument_group("what comes out")
    formats.add_arguments(out, "json; without --output-dir one format is printed")
    out.add_argument(
        "--weight",
        choices=("time", "host", "device", "flops", "bytes", "memory"),
        help="what folded stacks are weighed by (default: time, the device's where it worked)",
    )


def run(options: argparse.Namespace) -> int:
    """Read the run, show it or write it; return the exit code."""
    printed = options.formats if options.output_dir is None else None
    if printed and len(printed) > 1:
        raise option_conflict(
            "Standard output holds one format.", "Add --output-dir DIR, or ask for one format."
        )
    requested = {*(options.formats or ())}
    if options.weight is not None and "folded" not in requested:
        raise option_conflict("--weight belongs to folded stacks.", "Add --format folded.")
    from torchgauge.api.records import load

    _check_saved(options.run_file)
    record = load(options.run_file)
    weight = {} if options.weight is None else {"weight": options.weight}
    stem = "ranks" if is_folder(options.run_file) else options.run_file.stem
    if printed:
        emit(formats.text(record, printed[0], weight))
        options.formats = None
    written = formats.write(record, options, stem, weight)
    if not printed and not written:
        print_view(lambda width: view(record, options, width))
    formats.say(written)
    return ExitCode.DONE


def _check_saved(run_file: Path) -> None:
    """Raise InputError `file-missing` for a target, which has to be measured first."""
    if ":" in run_file.name and not run_file.exists():
        raise InputError(
            f"'{run_file}' is not a saved run.",
            id="file-missing",
            remedy=f"Measure it: torchgauge profile {command_argument(str(run_file))}",
        )


def view(record: Saved, options: argparse.Namespace, width: int) -> RenderableType:
    """Return the record's summary as something rich prints in `width` columns."""
    from torchgauge.report.console import console

    return console.view(record, shown_options(options), width=width)
