"""`torchgauge history prune`: remove runs and windows that are no longer needed."""

from __future__ import annotations

import argparse

from torchgauge.cli.history.chosen import add_run_filters, opened, selection, since
from torchgauge.cli.options.numbers import positive
from torchgauge.cli.options.store import add_store_option
from torchgauge.cli.output import emit, print_view, tell
from torchgauge.errors import ExitCode, InputError

NAME = "prune"
SUMMARY = "remove old runs, but the newest of each target, branch and machine; old windows"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this action."""
    add_store_option(parser)
    add_run_filters(parser)
    parser.add_argument(
        "--keep-last",
        type=positive,
        metavar="N",
        help="keep the newest N of each target, branch and machine",
    )
    parser.add_argument(
        "--older-than", metavar="SPAN", help="remove only what is older: 90d, 12h, 4w"
    )
    parser.add_argument(
        "--windows", metavar="SPAN", help="remove windows of monitors that are older: 90d, 12h, 4w"
    )
    parser.add_argument("--dry-run", action="store_true", help="only list what would be removed")


def run(options: argparse.Namespace) -> int:
    """Remove the runs and windows, or list them; return the exit code."""
    if options.keep_last is options.older_than is options.windows is None:
        raise InputError(
            "Nothing says which runs may go.",
            id="option-missing",
            remedy="Give --keep-last N, --older-than 90d, or both: then both must hold. "
            "Of monitors: --windows 90d.",
        )
    if options.windows is not None:
        _remove_windows(options)
    if options.keep_last is not None or options.older_than is not None:
        _remove_runs(options)
    return ExitCode.DONE


def _remove_windows(options: argparse.Namespace) -> None:
    import datetime

    from torchgauge.history.windows import count_windows, remove_windows

    before = datetime.datetime.fromisoformat(since(options.windows)).timestamp()
    with opened(options) as store:
        if options.dry_run:
            emit(f"{count_windows(store, before)} windows would be removed.\n")
            return
        removed = remove_windows(store, before)
        if removed:
            store.shrink()
    tell(f"Removed {removed} windows ({store.display_name})")


def _remove_runs(options: argparse.Namespace) -> None:
    from torchgauge.history.retention import superfluous
    from torchgauge.report.console import line as runs

    before = None if options.older_than is None else since(options.older_than)
    with opened(options) as store:
        removable_runs = superfluous(
            store.runs(selection(options)), keep_last=options.keep_last, before=before
        )
        if options.dry_run:
            if removable_runs:
                print_view(lambda width: runs.view(removable_runs, width))
            emit(f"{len(removable_runs)} runs would be removed.\n")
            return
        removed = store.remove(run.uuid for run in removable_runs)
        if removed:
            store.shrink()
    tell(f"Removed {removed} runs ({store.display_name})")
