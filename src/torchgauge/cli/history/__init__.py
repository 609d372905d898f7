"""`torchgauge history`: runs over time; one file for each action."""

from __future__ import annotations

import argparse

from torchgauge.cli.history import add, export, label, listing, prune, show, trend

DESCRIPTION = """\
Keep profiles over time in a database, with commit, branch, machine and labels; show how figures
and layers developed, where they changed, and warn by rules.

  torchgauge history add profile.json                        keep a saved run
  torchgauge history list --branch main                      what is there
  torchgauge history show latest                             one run again
  torchgauge history label latest machine=mine               change its labels
  torchgauge history trend --branch main                     figures over time
  torchgauge history trend --layer 'encoder.*'               and those of layers
  torchgauge history trend --alerts torchgauge-alerts.toml   exit 3 where a rule is broken
  torchgauge history export > runs.jsonl                     all of it, for another store
  torchgauge history prune --older-than 90d --dry-run        what could go

The store is --store URL, else TORCHGAUGE_STORE, else .torchgauge/history.db in the project (the
nearest folder with .torchgauge or .git), else a file in the user's data directory.
"""
ACTIONS = (add, listing, show, label, trend, export, prune)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for action in ACTIONS:
        added = actions.add_parser(
            action.NAME, help=action.SUMMARY, description=action.SUMMARY.capitalize() + "."
        )
        action.add_arguments(added)
        added.set_defaults(act=action.run)


def run(options: argparse.Namespace) -> int:
    """Do what was asked; return the exit code."""
    return int(options.act(options))
