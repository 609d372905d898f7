"""`torchgauge history add`: keep saved runs."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.cli.history.chosen import label
from torchgauge.cli.options.store import add_store_option
from torchgauge.cli.output import tell
from torchgauge.errors import ExitCode

if TYPE_CHECKING:
    from torchgauge.records.run import Facts

NAME = "add"
SUMMARY = "keep saved runs, each once; commit and branch are git's of the working directory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this action."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="profile.json, generation.json, load.json, an export, or the file of another history",
    )
    add_store_option(parser)
    parser.add_argument(
        "--label",
        type=label,
        action="append",
        default=[],
        metavar="K=V",
        help="attach a label to the runs",
    )
    parser.add_argument("--commit", metavar="C", help="the commit that was measured")
    parser.add_argument("--branch", metavar="B", help="its branch")
    parser.add_argument("--message", metavar="M", help="a note on the runs")


def run(options: argparse.Namespace) -> int:
    """Add every run of every file; return the exit code."""
    from torchgauge.history.imports import add_or_keep, entries, open_or_keep
    from torchgauge.history.retention import location

    run_facts = facts(options)
    for path in options.files:
        new = old = 0
        file_entries = entries(path, run_facts)
        # What cannot be read is found before a store is made.
        first = next(file_entries)
        with open_or_keep(location(options.store), first) as store:
            for entry in itertools.chain([first], file_entries):
                uuid, added = add_or_keep(store, entry)
                new, old = new + added, old + (not added)
        added_text = f"{new} runs of {path}" if new + old > 1 else f"{path} as run {uuid[:8]}"
        existing_text = f", {old} were there already" if old and new + old > 1 else ""
        verb = "Added" if new or new + old > 1 else "There already:"
        tell(f"{verb} {added_text}{existing_text} ({store.display_name})")
    return ExitCode.DONE


def facts(options: argparse.Namespace) -> Facts:
    """Return what git and the options say; with --commit nothing is taken from git."""
    from torchgauge.history.retention import git_facts
    from torchgauge.records.run import Facts

    base_facts = git_facts()
    if options.commit is not None and options.commit != base_facts.commit:
        base_facts = Facts(commit=options.commit, branch=base_facts.branch)
    return Facts(
        commit=base_facts.commit,
        branch=base_facts.branch if options.branch is None else options.branch,
        dirty=base_facts.dirty,
        message=base_facts.message if options.message is None else options.message,
        labels=dict(options.label),
    )
