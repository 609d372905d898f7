"""Where time goes: how far down a profile's tree goes, and what of a tree is shown."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torchgauge.cli.options.numbers import levels, positive
from torchgauge.folders import typed

if TYPE_CHECKING:
    from torchgauge.measure.timeline.timeline_options import TimelineOptions
    from torchgauge.report.content.document import Options


def add_tree_options(group: argparse._ArgumentGroup) -> None:
    """Declare what is in the tree of a profile, and what of it is shown."""
    group.add_argument(
        "--detail",
        choices=("summary", "layers", "operators", "kernels"),
        default="kernels",
        help="how far down: summary makes no tree, layers records nothing (default: kernels)",
    )
    add_view_options(group, depth=2, depth_help="2")
    group.add_argument(
        "--lines",
        action="store_true",
        help="tell the time that Python takes between operators by line of your source",
    )
    group.add_argument(
        "--all-threads",
        action="store_true",
        help="operators of threads that the model starts are in the tree too; torch may crash "
        "where threads run on after the step",
    )


def add_energy_option(group: argparse._ArgumentGroup) -> None:
    """Declare the option that measures energy."""
    group.add_argument(
        "--energy",
        action="store_true",
        help="measure joules by the counters of processors and GPUs (extra energy)",
    )


def add_view_options(group: argparse._ArgumentGroup, *, depth: int | None, depth_help: str) -> None:
    """Declare the options that say what of a tree is shown."""
    group.add_argument(
        "--depth",
        type=levels,
        default=depth,
        metavar="N",
        help=f"levels of layers shown (default: {depth_help})",
    )
    group.add_argument(
        "--top", type=positive, default=10, metavar="N", help="operators shown (default: 10)"
    )
    group.add_argument(
        "--sort",
        choices=("self", "total", "calls", "average", "flops", "bytes", "memory"),
        default="self",
        help="the order of the operators (default: self)",
    )
    group.add_argument(
        "--group-by-shape",
        action="store_true",
        help="tell an operator on inputs of other shapes apart",
    )


def add_recording_options(group: argparse._ArgumentGroup) -> None:
    """Declare what else comes of a profile's recording."""
    group.add_argument(
        "--trace",
        type=typed,
        metavar="FILE",
        help="write the recording to FILE (.json or .json.gz), which Perfetto opens",
    )
    group.add_argument(
        "--nvtx",
        action="store_true",
        help="run some steps at the end with layers as NVTX ranges, for Nsight Systems",
    )


def timeline_options(options: argparse.Namespace) -> TimelineOptions:
    """Return what is to be recorded. Raises InputError as `TimelineOptions`."""
    from torchgauge.measure.effort import effort_named
    from torchgauge.measure.timeline.timeline_options import TimelineOptions

    return TimelineOptions(
        options.detail,
        options.trace,
        nvtx=options.nvtx,
        lines=options.lines,
        roofs=options.roofs,
        all_threads=options.all_threads,
        energy=options.energy,
        effort=effort_named(options.effort),
    )


def shown_options(options: argparse.Namespace, *, rank: int | None = None) -> Options:
    """Return what of a record is to be shown; `rank` is the one whose details are."""
    from torchgauge.report.content.document import Options

    return Options(
        options.depth, options.top, options.sort, by_shape=options.group_by_shape, rank=rank
    )
