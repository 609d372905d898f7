"""Options that the actions share: which store, and which runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torchgauge.errors import InputError, option_invalid

if TYPE_CHECKING:
    from torchgauge.history.store import Selection, Store


def add_run_filters(parser: argparse.ArgumentParser, *, target: bool = True) -> None:
    """Declare what chooses runs."""
    chosen = parser.add_argument_group("which runs")
    if target:
        chosen.add_argument("--target", metavar="T", help="of this target; * and ? stand for more")
    chosen.add_argument("--branch", metavar="B", help="of this branch")
    chosen.add_argument(
        "--machine", metavar="M", help="of the machine whose fingerprint begins with M"
    )
    chosen.add_argument(
        "--label", type=label, action="append", default=[], metavar="K=V", help="with this label"
    )
    chosen.add_argument(
        "--since", metavar="WHEN", help="measured since a date (2026-01-31) or a time span (30d)"
    )


def label(text: str) -> tuple[str, str]:
    """Return a key and its value; argparse reports an invalid one."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is not a label of the form KEY=VALUE")
    return key, value


def selection(options: argparse.Namespace) -> Selection:
    """Return what the options choose. Raises InputError `option-invalid`."""
    from torchgauge.history.store import Selection

    return Selection(
        target=options.target,
        branch=options.branch,
        machine=options.machine,
        since=None if options.since is None else since(options.since),
        labels=tuple(options.label),
    )


def since(text: str) -> str:
    """Return a date or a span before now as the store writes times."""
    from datetime import UTC, datetime

    from torchgauge.errors import RecordError
    from torchgauge.history.content import moment
    from torchgauge.quantities import period

    try:
        return moment(text)
    except RecordError:
        pass
    try:
        return moment((datetime.now(UTC) - period(text)).isoformat())
    except InputError as error:
        raise option_invalid(
            f"'{text}' is neither a date nor a time span.",
            "Write it as 2026-01-31, 30d, 12h or 4w.",
        ) from error


def opened(options: argparse.Namespace) -> Store:
    """Return the open store, which is not made. Raises what `Store.open` raises."""
    from torchgauge.history.retention import location
    from torchgauge.history.store import Store

    return Store.open(location(options.store), create=False)
