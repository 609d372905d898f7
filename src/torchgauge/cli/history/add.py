"""`torchgauge history add`: keep saved runs."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.cli.history.chosen import label, which_store
from torchgauge.cli.output import tell
from torchgauge.errors import ExitCode

if TYPE_CHECKING:
    from torchgauge.model.run import Facts

NAME = "add"
SUMMARY = "keep saved runs, each once; commit and branch are git's of the working directory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this action."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="profile.json, an export of a history, or the file of another history",
    )
    which_store(parser)
    parser.add_argument(
        "--label", type=label, action="append", default=[], metavar="K=V", help="say this of it"
    )
    parser.add_argument("--commit", metavar="C", help="the commit that was measured")
    parser.add_argument("--branch", metavar="B", help="its branch")
    parser.add_argument("--message", metavar="M", help="what to say of it")


def run(options: argparse.Namespace) -> int:
    """Add every run of every file; return the exit code."""
    from torchgauge.history.imports import entries
    from torchgauge.history.kept import add_or_keep, open_or_keep
    from torchgauge.history.location import location

    said = facts(options)
    for path in options.files:
        new = old = 0
        found = entries(path, said)
        # What cannot be read is found before a store is made.
        first = next(found)
        with open_or_keep(location(options.store), first) as store:
            for entry in itertools.chain([first], found):
                uuid, added = add_or_keep(store, entry)
                new, old = new + added, old + (not added)
        many = f"{new} runs of {path}" if new + old > 1 else f"{path} as run {uuid[:8]}"
        there = f", {old} were there already" if old and new + old > 1 else ""
        verb = "Added" if new or new + old > 1 else "There already:"
        tell(f"{verb} {many}{there} ({store.shown})")
    return ExitCode.DONE


def facts(options: argparse.Namespace) -> Facts:
    """Return what git and the options say; a commit that is told has nothing to do with git's."""
    from torchgauge.history.git_facts import git_facts
    from torchgauge.model.run import Facts

    found = git_facts()
    if options.commit is not None and options.commit != found.commit:
        found = Facts(commit=options.commit, branch=found.branch)
    return Facts(
        commit=found.commit,
        branch=found.branch if options.branch is None else options.branch,
        dirty=found.dirty,
        message=found.message if options.message is None else options.message,
        labels=dict(options.label),
    )
