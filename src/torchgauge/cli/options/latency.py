"""How latency is measured: the options of a profile, and what those of a verb ask for."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from torchgauge.cli.options.numbers import positive, seconds, whole_number

if TYPE_CHECKING:
    from torchgauge.measure.latency.latency_options import LatencyOptions
    from torchgauge.records.verdict import Limit


def add_latency_options(group: argparse._ArgumentGroup) -> None:
    """Declare the options, and that of the roofs which are measured beside it."""
    add_call_options(group, "calls to time, in this process alone (default: 0.3 s in each process)")
    group.add_argument(
        "--processes",
        type=positive,
        metavar="N",
        help="measure in N freshly started processes, 1 for this one alone (default: in as many "
        "short ones as the budget allows)",
    )
    group.add_argument(
        "--roofs",
        action=argparse.BooleanOptionalAction,
        help="measure the peak speed of this machine again, to judge what bounds a model: about "
        "ten seconds, and it is stored (default: in two seconds if none is stored; --no-roofs: "
        "not at all)",
    )
    group.add_argument(
        "--budget",
        type=seconds,
        metavar="SECONDS",
        help="time for latency at most (default: 5; of one process 30)",
    )
    add_effort_options(
        group,
        quick="measure in this process alone and for a second or two: wider intervals",
        precise="measure for a minute: narrower intervals",
    )


def add_call_options(group: argparse._ArgumentGroup, iterations: str) -> None:
    """Declare how many calls are left out and timed, with the help of the second."""
    group.add_argument(
        "--warmup",
        type=whole_number,
        metavar="N",
        help="calls to leave out (default: found in the data)",
    )
    group.add_argument("--iterations", type=positive, metavar="N", help=iterations)


def add_effort_options(group: argparse._ArgumentGroup, *, quick: str, precise: str) -> None:
    """Declare the two options that ask for less or more samples than usual, with their help."""
    group.set_defaults(effort="usual")
    efforts = group.add_mutually_exclusive_group()
    for effort, words in (("quick", quick), ("precise", precise)):
        efforts.add_argument(
            f"--{effort}", action="store_const", const=effort, dest="effort", help=words
        )


def latency_options(
    options: argparse.Namespace, limits: Iterable[Limit], effort: str = "usual"
) -> LatencyOptions:
    """Return how to time; a limit on a percentile asks for the samples that it needs.

    Raises InputError `option-invalid`.
    """
    from torchgauge.analyze.gate.limits import percentile_of
    from torchgauge.analyze.statistics.percentiles import samples_needed
    from torchgauge.measure.effort import effort_named
    from torchgauge.measure.latency.latency_options import LatencyOptions

    return LatencyOptions(
        warmup=options.warmup,
        iterations=options.iterations,
        processes=options.processes,
        budget=options.budget,
        independent=samples_needed(percentile_of(limits)),
        effort=effort_named(effort),
    )
