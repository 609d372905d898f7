"""`torchgauge --completion SHELL`: the script by which a shell completes our commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import shtab

# Metavars of what is completed as a file's name.
FILES = {"A", "B", "FILE", "FILE|DIR", "RUN", "TARGET", "script.py [arguments]"}


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script that completes the verbs, options, choices and files of `parser`."""
    for action in _actions(parser):
        name = str(action.metavar or action.dest)
        if name in FILES or name == "DIR":
            action.complete = shtab.DIRECTORY if name == "DIR" else shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to them
        yield action
        if action.nargs == argparse.PARSER:
            for verb in dict[str, argparse.ArgumentParser](action.choices or {}).values():
                yield from _actions(verb)
