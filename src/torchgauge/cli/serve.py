"""`torchgauge serve`: a page over histories and monitors that stays up to date, read-only."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.cli.options.store import add_store_option
from torchgauge.cli.output import emit, tell, tell_lines
from torchgauge.errors import ExitCode, StoreError, option_invalid
from torchgauge.folders import typed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from torchgauge.analyze.history.alerts import Rule
    from torchgauge.analyze.monitoring.window_alerts import WindowRule
    from torchgauge.errors import TorchgaugeError
    from torchgauge.live.history_reader import HistoryReader
    from torchgauge.live.routes import Site
    from torchgauge.records.monitoring.window import Window

    Read = Callable[[], list[Window]]
    Source = tuple[str, Read | None, Callable[[], TorchgaugeError | None], Read]

DESCRIPTION = """\
Show a history and running monitors in a browser: each model with its newest figures and alerts,
the trend of a figure and where it changed, the distribution of a window, the page of a run.
Nothing is measured or written.

  torchgauge serve                                          the project's history
  torchgauge serve --store runs.db --alerts   rules.toml    with rules
  torchgauge serve --monitor                                what runs now

Only programs of this machine can reach it. With --host it listens elsewhere, and asks for a token
that is part of the address it prints; nothing is encrypted, so that `ssh -L` is better.
"""
TOKEN = "TORCHGAUGE_SERVE_TOKEN"  # noqa: S105 - the name of the variable
PORT = 7878
USUAL_FOLDER = Path()  # in place of a typed one, which is absolute


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    add_store_option(parser)
    parser.add_argument(
        "--monitor",
        type=typed,
        nargs="?",
        const=USUAL_FOLDER,
        metavar="FOLDER",
        help="monitors that run: the folder that they write to (default: the usual one)",
    )
    parser.add_argument(
        "--alerts", type=Path, metavar="FILE", help="the rules (default: changes for the worse)"
    )
    address = parser.add_argument_group("where it listens")
    address.add_argument(
        "--host", default="127.0.0.1", metavar="NAME", help="address (default: %(default)s)"
    )
    address.add_argument(
        "--port",
        type=port,
        default=PORT,
        metavar="N",
        help="port, 0 for any (default: %(default)s)",
    )


def port(text: str) -> int:
    """Return the number of a port; argparse reports an invalid one."""
    if not (text.isascii() and text.isdecimal()) or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port from 0 to 65535")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; return the exit code."""
    from concurrent.futures import ThreadPoolExecutor

    from torchgauge.live.server import LiveServer

    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="analyses")
    try:
        site = _site(options, executor)
        token = _chosen_token()
        with LiveServer(options.host, options.port, site, token, tell_lines) as server:
            emit(f"torchgauge serves {server.url} – Ctrl-C ends it\n")
            if server.access.token is not None:
                tell("torchgauge: whoever has this address reads the page; it is not encrypted")
            server.serve_forever()
    except KeyboardInterrupt:
        tell("torchgauge: stopped")
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    return ExitCode.DONE


def _site(options: argparse.Namespace, executor: Executor) -> Site:
    """Open what there is to show. Raises what opening a history and reading rules raise."""
    from torchgauge.history import rules
    from torchgauge.history.retention import location
    from torchgauge.live import history_reader, monitor_view
    from torchgauge.live.history_view import HistoryView
    from torchgauge.live.routes import Site

    chosen_rules = rules.Rules(
        history_reader.DEFAULT_RULES, window_rules=monitor_view.DEFAULT_RULES
    )
    if options.alerts is not None:
        chosen_rules = rules.read(options.alerts)
    reader = history = monitors = None
    try:
        reader = history_reader.HistoryReader(location(options.store))
    except StoreError as error:
        # Where monitors are to be shown a history is welcome, not needed.
        if error.id != "store-missing" or options.store or options.monitor is None:
            raise
    if reader is not None:
        history = HistoryView(reader, executor, chosen_rules.rules)
    origin, read, trouble, totals = _source(options, reader, chosen_rules.all_rules)
    if read is not None:
        stored = history_reader.StoredJudgements(reader, chosen_rules.all_rules, executor)
        judge = monitor_view.judge(chosen_rules.rules, chosen_rules.window_rules, stored)
        monitors = monitor_view.MonitorView(origin, read, judge, trouble=trouble)
        monitors.update_for_ever()
    if history is not None:
        history.fleet()  # the first page shall not wait for it
    return Site(history, monitors, totals)


def _source(
    options: argparse.Namespace, reader: HistoryReader | None, rules: Sequence[Rule | WindowRule]
) -> Source:
    """Return where windows of monitors come from: a folder, else the history."""
    from torchgauge.analyze.monitoring.buckets import with_limits
    from torchgauge.live.history_reader import StoredWindows
    from torchgauge.monitoring.folder import MonitorFolder

    if options.monitor is not None:
        chosen = None if options.monitor == USUAL_FOLDER else options.monitor
        looked_at, scraped = MonitorFolder(chosen), MonitorFolder(chosen)
        return (
            *(str(looked_at.path), looked_at.windows, looked_at.trouble),
            lambda: [with_limits(window, rules) for window in scraped.scraped()],
        )
    if reader is not None and (stored := StoredWindows(reader)).has_any():
        return reader.display_name, stored, lambda: None, list
    return "", None, lambda: None, list


def _chosen_token() -> str | None:
    """Return the token of the environment. Raises InputError `option-invalid` for a short one."""
    from torchgauge.live.server import MIN_TOKEN

    token = os.environ.get(TOKEN)
    if token and (len(token) < MIN_TOKEN or not token.isalnum() or not token.isascii()):
        raise option_invalid(
            f"{TOKEN} is not a token.",
            f"Unset {TOKEN}: a random one is made.",
            cause=f"It needs {MIN_TOKEN} letters and digits or more, and nothing else.",
        )
    return token or None
