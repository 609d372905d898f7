"""`torchgauge history trend`: figures over time, where they changed, and rules on them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.cli.formats import say
from torchgauge.cli.history.chosen import opened, selection, which_runs, which_store
from torchgauge.cli.numbers import positive
from torchgauge.cli.output import emit, print_view, tell
from torchgauge.errors import ExitCode, InputError
from torchgauge.folders import typed
from torchgauge.visible import printable

if TYPE_CHECKING:
    from torchgauge.history.rules import Rules
    from torchgauge.model.trend import Trend

NAME = "trend"
SUMMARY = "show figures over time and where they changed; with --alerts hold them against rules"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this action."""
    parser.add_argument("target", nargs="?", metavar="TARGET", help="of this target (default: all)")
    which_store(parser)
    which_runs(parser, target=False)
    what = parser.add_argument_group("what is shown")
    what.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="this figure, as OpenMetrics and CSV name them; of layers host_time, device_time, "
        "flops, bytes or peak (may be repeated; default: the main ones)",
    )
    what.add_argument("--layer", metavar="PATH", help="of layers; * and ? stand for more")
    what.add_argument(
        "--points", type=positive, default=0, metavar="N", help="list the newest N runs of each"
    )
    what.add_argument("--json", action="store_true", help="print the record, data for charts")
    what.add_argument("--html", type=typed, metavar="FILE", help="write the page to FILE")
    parser.add_argument(
        "--alerts",
        type=Path,
        metavar="FILE",
        help="hold the runs against the rules of FILE: exit 3 where one is broken, 4 where one "
        "has too few to judge",
    )


def run(options: argparse.Namespace) -> int:
    """Show the trend or the alerts; return the exit code."""
    from torchgauge.history.trend import trend

    chosen = selection(options)
    if options.alerts is not None:
        return _alerts(options)
    with opened(options) as store:
        found = trend(store, chosen, options.metric, options.layer)
    _show(found, options)
    if options.html is not None:
        found.to_html(options.html)
        say([options.html])
    return ExitCode.DONE


def _show(found: Trend, options: argparse.Namespace) -> None:
    from torchgauge.model import rendering
    from torchgauge.report import trend as report

    if options.json:
        emit(rendering.text(found, "json"))
    else:
        print_view(lambda width: report.view(found, options.points, width=width))


def _alerts(options: argparse.Namespace) -> int:
    """Hold the store against the rules, tell whom the file names; return the exit code."""
    from torchgauge.history import rules, watch
    from torchgauge.report.trend import line

    if options.metric or options.layer is not None or options.points or options.html:
        raise InputError(
            "--alerts shows what its rules are about.",
            id="option-conflict",
            remedy="Leave out --metric, --layer, --points and --html.",
        )
    asked = rules.read(options.alerts)
    with opened(options) as store:
        found = watch.watch(store, asked.rules, selection(options))
    lines = [line(alert) for alert in found.alerts]
    if options.json:
        _show(found, options)
    else:
        count = f"{len(asked.rules)} rules, {len(found.series)} series"
        emit(printable("\n".join(lines or [f"No alert ({count})."])) + "\n")
    for name in found.unmatched:
        tell(f"torchgauge: rule '{name}' has no runs, or too few: nobody can tell")
    _send(asked, found, lines)
    if found.alerts:
        return ExitCode.THRESHOLD
    return ExitCode.INCONCLUSIVE if found.unmatched else ExitCode.DONE


def _send(asked: Rules, found: Trend, lines: list[str]) -> None:
    from torchgauge.history import webhook

    if found.alerts and (failed := webhook.send(asked, found, lines)):
        tell(f"torchgauge: warning: {failed}")
