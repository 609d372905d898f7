"""The pytest plugin: the fixture `torchgauge`, its marker and options, and a summary of figures.

pytest imports it in every run, so that it imports nothing until the fixture is used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from torchgauge.integrate.assertions import Assertions

MARKER = (
    "torchgauge(processes=1, budget=5.0, device=None, warmup=None, iterations=None, train=None): "
    "how the torchgauge fixture measures in this test"
)
_ROWS = pytest.StashKey[list[list[str]]]()
_NOTES = pytest.StashKey[list[str]]()
_WRITTEN = pytest.StashKey[set[Path]]()
TIMES = {"latency", "p90", "p95", "p99"}
TITLES = ["test", "metric", "figure", "95 %", "allowed", "outcome"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("torchgauge", "figures of models (torchgauge)")
    group.addoption(
        "--torchgauge-baseline",
        type=Path,
        metavar="PATH",
        help="saved runs that assert_no_regression compares with: a folder with one file for each "
        "test, or one file",
    )
    group.addoption(
        "--torchgauge-update",
        action="store_true",
        help="write these runs in place of comparing with them",
    )
    group.addoption(
        "--torchgauge-strict",
        action="store_true",
        help="fail where a regression can be neither shown nor excluded",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; raise UsageError for an update without a place."""
    config.addinivalue_line("markers", MARKER)
    if place := config.getoption("torchgauge_baseline"):
        # Meant from where pytest was started, whatever folder a test changes to.
        config.option.torchgauge_baseline = config.invocation_params.dir / place
    if config.getoption("torchgauge_update") and not config.getoption("torchgauge_baseline"):
        message = "--torchgauge-update needs --torchgauge-baseline PATH, where the runs are kept"
        raise pytest.UsageError(message)


@pytest.fixture
def torchgauge(request: pytest.FixtureRequest) -> Assertions:
    """Return what measures models and asserts their figures; see docs/recipes/pytest.md."""
    from torchgauge.integrate.assertions import Assertions, Options
    from torchgauge.integrate.baselines import Baselines

    node, config = request.node, request.config
    marker_options: dict[str, object] = {}
    for mark in node.iter_markers("torchgauge"):  # the closest first
        marker_options = {**mark.kwargs, **marker_options}
    place = config.getoption("torchgauge_baseline")
    rows, notes = node.stash.setdefault(_ROWS, []), node.stash.setdefault(_NOTES, [])

    def note(row: list[str], doubt: str) -> None:
        rows.append([node.nodeid, *row])
        node.user_properties.append((f"torchgauge {row[0]}", ", ".join(filter(None, row[1:]))))
        if doubt:
            notes.append(f"{node.nodeid}: {doubt}")

    return Assertions(
        Options.from_marker(marker_options),
        note,
        baselines=None
        if place is None
        else Baselines(place, node.nodeid, config.stash.setdefault(_WRITTEN, set())),
        update=config.getoption("torchgauge_update"),
        strict=config.getoption("torchgauge_strict"),
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Send the figures along with the report: with pytest-xdist the test ran elsewhere."""
    report = yield
    if report.when == "call":
        rows_and_notes = [item.stash.get(_ROWS, []), item.stash.get(_NOTES, [])]
        vars(report)["torchgauge"] = rows_and_notes
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show what was measured, as a table."""
    rows: list[list[str]] = []
    notes: list[str] = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            report_rows, report_notes = getattr(report, "torchgauge", ([], []))
            rows += report_rows
            notes += report_notes
    if not rows:
        return
    from torchgauge.visible import printable, visible

    def write(line: str, **style: bool) -> None:
        terminalreporter.write_line(printable(visible(line)), **style)

    terminalreporter.write_sep("=", "torchgauge")
    for row, line in zip([None, *sorted(rows)], _table(sorted(rows)), strict=True):
        outcome = "" if row is None else row[-1]
        bad = {"fail": {"red": True}, "inconclusive": {"yellow": True}}
        write(line, **bad.get(outcome, {}))
    for text in notes:
        write(f"? {text}", yellow=True)
    workers = config.getoption("numprocesses", None) or 0
    if workers > 1 and any(row[1] in TIMES for row in rows):
        text = f"! {workers} workers ran side by side (pytest-xdist) and disturb each other's times"
        write(f"{text}: run tests of times with -n 0.", yellow=True)


def _table(rows: list[list[str]]) -> Iterator[str]:
    """Yield the lines of the table: a test's name once, figures at the right."""
    widths = [max(len(cell) for cell in cells) for cells in zip(TITLES, *rows, strict=True)]
    before = ""
    for row in [TITLES, *rows]:
        cells = [
            cell.rjust(width) if place in (2, 3) else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        if row[0] == before:
            cells[0] = " " * widths[0]
        before = row[0]
        yield "  ".join(cells).rstrip()
