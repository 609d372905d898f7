"""Where the history is, and which of its runs a gate is against."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchgauge.history.baseline import HistoryBaseline

HISTORY = "history"


def add_store_option(parser: argparse._ActionsContainer) -> None:
    """Declare where the history is."""
    parser.add_argument(
        "--store",
        "--history",
        metavar="URL",
        help="the history: a file, sqlite:///FILE or postgresql://USER@HOST/DATABASE "
        "(default: TORCHGAUGE_STORE, else .torchgauge/history.db in the project)",
    )


def stored_baseline(options: argparse.Namespace) -> str | list[str] | HistoryBaseline:
    """Return the file or files that `--baseline` names, or the choice of a run of the history.

    Raises InputError `option-invalid`, `store-url`.
    """
    first, *further_files = options.baseline
    name, _, choice = first.partition(":")
    if further_files:
        return [str(path) for path in options.baseline]
    if name != HISTORY:
        return str(first)
    from torchgauge.history.baseline import HistoryBaseline

    return HistoryBaseline.parsed(choice, options.store)
