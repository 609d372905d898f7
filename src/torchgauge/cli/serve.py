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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    add_store_option(parser)
    parser.add_argument(
        "--monitor",
        type=typed,
        nargs="?",
        const="",
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
    from torchgauge.live.history_reader import DEFAULT_RULES, HistoryReader, StoredJudgements
    from torchgauge.live.history_view import HistoryView
    from torchgauge.live.monitor_view import MonitorView, judge
    from torchgauge.live.routes import Site

    file_rules = None if options.alerts is None else rules.read(options.alerts)
    reader = history = monitors = read = None
    try:
        reader = HistoryReader(location(options.store))
    except StoreError as error:
        # Where monitors are to be shown a history is welcome, not needed.
        if error.id != "store-missing" or options.store or options.monitor is None:
            raise
    if reader is not None:
        run_rules = DEFAULT_RULES if file_rules is None else file_rules.rules
        history = HistoryView(reader, executor, run_rules)
    origin, read, trouble = _windows(options, reader)
    if read is not None:
        judged = judge(())
        if file_rules is not None:
            stored = StoredJudgements(reader, file_rules.all_rules, executor)
            judged = judge(file_rules.rules, file_rules.window_rules, stored)
        monitors = MonitorView(origin, read, judged, trouble=trouble)
        monitors.update_for_ever()
    if history is not None:
        history.fleet()  # the first page shall not wait for it
    return Site(history, monitors, _totals(options, file_rules.all_rules if file_rules else ()))


def _totals(
    options: argparse.Namespace, rules: Sequence[Rule | WindowRule]
) -> Callable[[], list[Window]]:
    """Return what reads all that the monitors of a folder recorded; limits of rules are buckets."""
    from torchgauge.analyze.monitoring.buckets import with_limits
    from torchgauge.monitoring.folder import MonitorFolder

    if options.monitor is None:
        return list
    folder = MonitorFolder(options.monitor or None)
    return lambda: [with_limits(window, rules) for window in folder.scraped()]


def _windows(
    options: argparse.Namespace, reader: HistoryReader | None
) -> tuple[str, Callable[[], list[Window]] | None, Callable[[], TorchgaugeError | None]]:
    """Return where windows come from, a folder or else the history, and what reads the new ones.

    The last item returns what could not be read.
    """
    from torchgauge.live.history_reader import StoredWindows
    from torchgauge.monitoring.folder import MonitorFolder

    if options.monitor is not None:
        folder = MonitorFolder(options.monitor or None)
        return str(folder.path), folder.windows, folder.trouble
    if reader is not None and (stored := StoredWindows(reader)).has_any():
        return reader.display_name, stored, lambda: None
    return "", None, lambda: None


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
