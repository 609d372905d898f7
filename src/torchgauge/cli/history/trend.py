"""`torchgauge history trend`: figures over time, where they changed, and rules on them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.cli import formats
from torchgauge.cli.formats import say
from torchgauge.cli.history.chosen import add_run_filters, opened, selection
from torchgauge.cli.options.numbers import positive
from torchgauge.cli.options.store import add_store_option
from torchgauge.cli.output import emit, tell
from torchgauge.errors import ExitCode, option_conflict
from torchgauge.folders import typed
from torchgauge.visible import printable

if TYPE_CHECKING:
    from torchgauge.history.rules import Rules
    from torchgauge.records.trend import Trend

NAME = "trend"
SUMMARY = "show figures over time and where they changed; with --alerts hold them against rules"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this action."""
    parser.add_argument("target", nargs="?", metavar="TARGET", help="of this target (default: all)")
    add_store_option(parser)
    add_run_filters(parser, target=False)
    view_group = parser.add_argument_group("what is shown")
    view_group.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="this figure, as OpenMetrics and CSV name them; of layers host_time, device_time, "
        "flops, bytes or peak (may be repeated; default: the main ones)",
    )
    view_group.add_argument("--layer", metavar="PATH", help="of layers; * and ? stand for more")
    view_group.add_argument(
        "--points", type=positive, default=0, metavar="N", help="list the newest N runs of each"
    )
    view_group.add_argument("--json", action="store_true", help="print the record, data for charts")
    view_group.add_argument("--html", type=typed, metavar="FILE", help="write the page to FILE")
    parser.add_argument(
        "--alerts",
        type=Path,
        metavar="FILE",
        help="hold the runs against the rules of FILE: exit 3 if one is broken, 4 if one "
        "has too few runs to judge",
    )


def run(options: argparse.Namespace) -> int:
    """Show the trend or the alerts; return the exit code."""
    from torchgauge.history.trend import trend

    chosen = selection(options)
    if options.alerts is not None:
        return _alerts(options)
    with opened(options) as store:
        trend_record = trend(store, chosen, options.metric, options.layer)
    formats.show(trend_record, options, points=options.points)
    if options.html is not None:
        trend_record.to_html(options.html)
        say([options.html])
    return ExitCode.DONE


def _alerts(options: argparse.Namespace) -> int:
    """Hold the store against the rules, tell whom the file names; return the exit code."""
    from torchgauge.history import rules
    from torchgauge.history import windows as watch
    from torchgauge.report.content.trend import line

    if options.metric or options.layer is not None or options.points or options.html:
        raise option_conflict(
            "--alerts shows what its rules are about.",
            "Leave out --metric, --layer, --points and --html.",
        )
    alert_rules = rules.read(options.alerts)
    with opened(options) as store:
        trend_record = watch.watch(
            store, alert_rules.rules, selection(options), window_rules=alert_rules.window_rules
        )
    lines = [line(alert) for alert in trend_record.alerts]
    if options.json:
        formats.show(trend_record, options, points=options.points)
    else:
        rules_count = len(alert_rules.rules) + len(alert_rules.window_rules)
        count = f"{rules_count} rules, {len(trend_record.series)} series"
        emit(printable("\n".join(lines or [f"No alert ({count})."])) + "\n")
    for name in trend_record.unmatched:
        tell(
            f"torchgauge: rule '{name}' cannot be checked: there are no runs or windows, too few, "
            "or they differ too much"
        )
    _send(alert_rules, trend_record, lines)
    if trend_record.alerts:
        return ExitCode.THRESHOLD
    return ExitCode.INCONCLUSIVE if trend_record.unmatched else ExitCode.DONE


def _send(alert_rules: Rules, trend_record: Trend, lines: list[str]) -> None:
    from torchgauge.history import webhook

    if trend_record.alerts and (failed := webhook.send(alert_rules, trend_record, lines)):
        tell(f"torchgauge: warning: {failed}")
