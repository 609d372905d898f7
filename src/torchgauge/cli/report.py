"""`torchgauge report`: any format again from a saved run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchgauge.cli import formats
from torchgauge.cli.output import emit, print_view
from torchgauge.cli.profile import what_is_shown
from torchgauge.errors import ExitCode, InputError
from torchgauge.files import is_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from torchgauge.model.codec import Saved

DESCRIPTION = """\
Show what profile, run, count, doctor or history saved, on any machine; torch is not needed.

  torchgauge report profile.json                             the summary
  torchgauge report profile.json --html page.html            the page
  torchgauge report profile.json --format markdown           one format, printed
  torchgauge report profile.json --format csv,speedscope --output-dir DIR

RUN is a file, or a folder with the ranks of a distributed loop.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    parser.add_argument("run_file", type=Path, metavar="RUN", help="the saved run")
    shown = parser.add_argument_group("what the summary shows")
    what_is_shown(shown, depth=None, depth_help="2, of a count 3")
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
        raise InputError(
            "Standard output holds one format.",
            id="option-conflict",
            remedy="Add --output-dir DIR, or ask for one format.",
        )
    asked = {*(options.formats or ())}
    if options.weight is not None and "folded" not in asked:
        raise InputError(
            "--weight belongs to folded stacks.",
            id="option-conflict",
            remedy="Add --format folded.",
        )
    from torchgauge import api

    record = api.load(options.run_file)
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


def view(record: Saved, options: argparse.Namespace, width: int) -> RenderableType:
    """Return the record's summary as something rich prints in `width` columns."""
    from torchgauge.model.advice import Advice
    from torchgauge.model.comparison import Comparison
    from torchgauge.model.count import Count
    from torchgauge.model.doctor import Diagnosis
    from torchgauge.model.loop import Loop
    from torchgauge.model.profile import Profile
    from torchgauge.model.ranks import Ranks
    from torchgauge.model.snapshot import Growth, Snapshot
    from torchgauge.model.sweep import Sweep
    from torchgauge.model.trace import Trace
    from torchgauge.model.trace_diff import TraceDiff
    from torchgauge.model.trend import Trend
    from torchgauge.model.verdict import Verdict
    from torchgauge.report import (
        advice,
        comparison,
        console,
        count,
        doctor,
        growth,
        loop,
        ranks,
        snapshot,
        sweep,
        trace,
        trace_diff,
        trend,
        verdict,
    )
    from torchgauge.report.tree import View

    depth: dict[str, Any] = {} if options.depth is None else {"depth": options.depth}
    shown = View(top=options.top, sort=options.sort, by_shape=options.group_by_shape, **depth)
    one: Any = record
    views: dict[type, Callable[[], RenderableType]] = {
        Advice: lambda: advice.view(one, width=width),
        Comparison: lambda: comparison.view(one, width=width, top=options.top),
        Count: lambda: count.view(one, **depth, width=width),
        Diagnosis: lambda: doctor.view(one),
        Growth: lambda: growth.view(one, width=width),
        Loop: lambda: loop.view(one, shown, width=width),
        Profile: lambda: console.view(one, shown, width=width),
        Ranks: lambda: ranks.view(one),
        Snapshot: lambda: snapshot.view(one, width=width),
        Sweep: lambda: sweep.view(one, width=width),
        Trace: lambda: trace.view(one, shown, width=width),
        TraceDiff: lambda: trace_diff.view(one, width=width, top=options.top),
        Trend: lambda: trend.view(one, width=width),
        Verdict: lambda: verdict.view(one, width=width),
    }
    return views[type(record)]()
