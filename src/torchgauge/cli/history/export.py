"""`torchgauge history export`: runs as text, for another store or a spreadsheet."""

from __future__ import annotations

import argparse

from torchgauge.cli.history.chosen import add_run_filters, opened, selection
from torchgauge.cli.options.store import add_store_option
from torchgauge.cli.output import emit
from torchgauge.errors import ExitCode
from torchgauge.folders import typed

NAME = "export"
SUMMARY = "write runs as lines of JSON, which history add reads again, or facts and figures as CSV"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this action."""
    add_store_option(parser)
    add_run_filters(parser)
    parser.add_argument(
        "--format",
        choices=("jsonl", "csv"),
        default="jsonl",
        help="whole runs as JSON lines, or a row of figures for each (default: jsonl)",
    )
    parser.add_argument(
        "--output", type=typed, metavar="FILE", help="write to FILE, whole or not at all"
    )


def run(options: argparse.Namespace) -> int:
    """Write the runs; return the exit code."""
    from torchgauge.files import write_atomically
    from torchgauge.history import imports as exports
    from torchgauge.report.csv import csv

    with opened(options) as store:
        entries = store.entries(selection(options))
        if options.format == "csv":
            rows = list(exports.rows(entries))
            names = list(rows[0]) if rows else ["uuid"]
            parts = iter([csv.text(names, (row.values() for row in rows)).encode()])
        else:
            parts = exports.json_lines(entries)
        if options.output is not None:
            write_atomically(options.output, parts)
        else:
            for part in parts:
                emit(part.decode())
    return ExitCode.DONE
