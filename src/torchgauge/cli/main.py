"""From arguments to a verb, and from an error to a message and an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from torchgauge.cli import (
    advise,
    compare,
    count,
    doctor,
    gate,
    history,
    profile,
    report,
    run,
    snapshot,
    sweep,
    trace,
)
from torchgauge.cli.output import emit, take_any_text
from torchgauge.cli.terminations import as_ctrl_c
from torchgauge.errors import ExitCode, TorchgaugeError, user_traceback

VERBS = (
    *(profile, run, count, sweep, advise, compare, gate),
    *(trace, snapshot, history, report, doctor),
)


class Parser(argparse.ArgumentParser):
    """An argument parser that takes no abbreviations and colours its help on a terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_formatter(), **options)


def _formatter() -> type[argparse.HelpFormatter]:
    # rich is imported for eyes only: in a pipe it would triple the time of --help.
    if sys.stdout is not None and sys.stdout.isatty():
        from rich_argparse import RawDescriptionRichHelpFormatter

        return RawDescriptionRichHelpFormatter
    return argparse.RawDescriptionHelpFormatter


class Version(argparse.Action):
    """Prints the version, looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print and exit."""
        from torchgauge import __version__

        sys.stdout.write(f"torchgauge {__version__}\n")
        parser.exit()


def build() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(
        prog="torchgauge",
        description="How big a PyTorch model is, how much work it does, how long it takes.",
        epilog="Exit codes: 0 done, 1 a measurement failed (the record is still written), "
        "2 bad input, 3 worse or over a limit, 4 inconclusive, 5 not comparable, 130 interrupted.",
    )
    parser.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    verbs = parser.add_subparsers(metavar="VERB", parser_class=Parser, required=True)
    for verb in VERBS:
        added = verbs.add_parser(verb.NAME, help=verb.SUMMARY, description=verb.DESCRIPTION)
        verb.add_arguments(added)
        added.set_defaults(run=verb.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    take_any_text()
    options = build().parse_args(arguments)
    try:
        with as_ctrl_c():
            return int(options.run(options))
    except TorchgaugeError as error:
        _report(error, as_json=getattr(options, "json", False))
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("torchgauge: interrupted\n")
        return ExitCode.INTERRUPTED


def _report(error: TorchgaugeError, *, as_json: bool) -> None:
    trace = user_traceback(error)
    if trace:
        sys.stderr.write(trace)
    sys.stderr.write(f"torchgauge: error: {error} [{error.id}]\n")
    if as_json:
        import json

        fields = ("id", "message", "cause", "remedy")
        content = {name: getattr(error, name) for name in fields}
        emit(json.dumps({"error": content}) + "\n")
