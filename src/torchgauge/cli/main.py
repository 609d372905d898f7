"""From arguments to a verb, and from an error to a message and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Collection, Sequence

from torchgauge.cli.output import emit, take_any_text, tell, tell_lines
from torchgauge.cli.parser import Parser, UsageError
from torchgauge.errors import ExitCode, TorchgaugeError, user_traceback
from torchgauge.folders import start_here
from torchgauge.forks import Owner

TYPE_CHECKING = False  # typing would be a quarter of the time of --help
if TYPE_CHECKING:
    from typing import Any

# A verb is a module of this folder, imported when it is chosen.
VERBS = {
    "profile": "measure size, latency, memory and system use of a model",
    "run": "run an unedited script and show where the steps of its loop go",
    "count": "count parameters, FLOPs and bytes by layer and operator; nothing is computed",
    "sweep": "measure a model over batch sizes, precisions and more, and find the best",
    "generate": "measure how a language model generates: first token, later ones, cache, growth",
    "load": "send requests to a model or an endpoint as users do, and find the rate it bears",
    "capacity": "estimate how many workers a rate needs, from measured service times",
    "advise": "try improvements on a model, and show those that held with their code",
    "compare": "show what changed between two runs or traces, and where",
    "gate": "tell whether a model got worse: pass, fail or inconclusive",
    "trace": "read a recorded trace, or those of a job's ranks, on any machine",
    "snapshot": "read a CUDA memory snapshot, on any machine",
    "history": "keep runs with their commits, and see where figures changed",
    "serve": "show a history and running monitors in a browser, up to date; nothing is measured",
    "report": "show a saved run again, in any format; nothing is measured",
    "mcp": "let a language model read the records of a folder; nothing is measured",
    "doctor": "find what distorts timings on this machine, and how to fix it",
}

# Options that print and exit.
PRINTING = {"-h", "--help", "--version", "--completion"}

# Verbs that show no progress: they take a moment, or run a script that prints for itself.
SHORT = ("run", "history", "serve", "report", "mcp")


class Version(argparse.Action):
    """Prints the version, looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print and exit."""
        from torchgauge.version import version

        emit(f"torchgauge {version()}\n")
        parser.exit()


class Completion(argparse.Action):
    """Prints the script with which a shell completes all verbs and options."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: Any, *__: object) -> None:
        """Print and exit."""
        from torchgauge.cli.completion import script

        emit(script(build(), shell))
        parser.exit()


def build(chosen: Collection[str] = tuple(VERBS)) -> Parser:
    """Return the parser of the command line: all verbs, with the options of those `chosen`."""
    parser = Parser(
        prog="torchgauge",
        description="How big a PyTorch model is, how much work it does, how long it takes.",
        epilog="Exit codes: 0 done, 1 a measurement failed (the record is still written), "
        "2 bad input, 3 worse or over a limit, 4 inconclusive, 5 not comparable, 130 interrupted.",
    )
    parser.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    parser.add_argument(
        "--completion",
        action=Completion,
        choices=("bash", "zsh", "fish"),
        metavar="SHELL",
        help="print the completion script of bash, zsh or fish and exit",
    )
    verbs = parser.add_subparsers(metavar="VERB", parser_class=Parser, required=True)
    for name, summary in VERBS.items():
        if name in chosen:
            verb = importlib.import_module(f"torchgauge.cli.{name}")
            added = verbs.add_parser(name, help=summary, description=verb.DESCRIPTION)
            verb.add_arguments(added)
            if name not in SHORT:
                added.add_argument("--quiet", action="store_true", help="show no progress")
            added.set_defaults(run=verb.run, runs_a_script=name == "run", parser=added)
        else:
            verbs.add_parser(name, help=summary)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    take_any_text()
    start_here()
    command_arguments = sys.argv[1:] if arguments is None else arguments
    owner = Owner()
    options = argparse.Namespace(json="--json" in command_arguments)
    try:
        # Without arguments nothing is wrong: somebody wants to know what there is.
        options = build(VERBS.keys() & set(command_arguments)).parse_args(
            command_arguments or ["--help"]
        )
        return _run(options)
    except TorchgaugeError as error:
        if isinstance(error, UsageError):
            _suggest(error, command_arguments)
            tell(error.usage)
        _report(error, as_json=getattr(options, "json", False))
        return error.exit_code
    except KeyboardInterrupt:
        if owner.in_fork:  # what ends a process that the user's code forked is its own
            raise
        tell("torchgauge: interrupted")
        return ExitCode.INTERRUPTED


def _suggest(error: UsageError, arguments: Sequence[str]) -> None:
    """Add the command that was meant, where it has no other mistake; else only the word."""
    words = error.corrected(arguments)
    if not words:
        return
    try:
        names = {word.partition("=")[0] for word in words}
        if not names & PRINTING:
            build(VERBS.keys() & set(words)).parse_args(words)
        words = words if "--header" not in names else []  # whose value may be a secret
    except UsageError:
        words = []
    error.suggest(words)


def _run(options: argparse.Namespace) -> int:
    """Run the verb; a script of the user's may end the process as it likes."""
    from torchgauge.cli.ending.sudden_ends import as_ctrl_c, refused
    from torchgauge.folders import working_folder
    from torchgauge.progress import in_command

    with contextlib.ExitStack() as stack:
        stack.enter_context(as_ctrl_c())
        if not options.runs_a_script:
            stack.enter_context(refused())
            stack.enter_context(in_command(quiet=getattr(options, "quiet", False)))
        working_folder()
        return int(options.run(options))


def _report(error: TorchgaugeError, *, as_json: bool) -> None:
    trace = user_traceback(error)
    if trace:
        tell_lines(trace)
    # The id stands behind what happened: a remedy may end with a command, to be pasted as it is.
    message, *parts = str(error).split("\n")
    tell_lines("\n".join([f"torchgauge: error: {message} [{error.id}]", *parts]))
    if as_json:
        import json

        fields = ("id", "message", "cause", "remedy")
        content = {name: getattr(error, name) for name in fields}
        emit(json.dumps({"error": content}) + "\n")
