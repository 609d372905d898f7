"""`torchgauge trace --to`: the trace, or a part of it, in the format of another tool."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from torchgauge.cli.formats import say
from torchgauge.cli.options.numbers import whole_number
from torchgauge.cli.output import emit_bytes
from torchgauge.errors import ExitCode, InputError
from torchgauge.folders import typed

FORMS = {
    "speedscope": "a profile for each stream and thread, in real time",
    "folded": "stacks of layers, operators and kernels",
    "parquet": "all events as a table",
    "chrome": "the recorded events themselves, of several ranks on one clock",
}
_BINARY = ("parquet",)
# Options by their places among the parsed ones.
_CONVERSION_OPTIONS = {"output": "--output", "layer": "--layer"}
_WRITE_OPTIONS = {"output_dir": "--output-dir", "formats": "--format", "html": "--html"}


def add_arguments(
    parser: argparse.ArgumentParser, printed: argparse._MutuallyExclusiveGroup
) -> None:
    """Declare the options; `printed` are those of which one alone says what is printed."""
    forms_help = "; ".join(f"{form}: {description}" for form, description in FORMS.items())
    printed.add_argument("--to", choices=FORMS, help=f"convert the trace instead ({forms_help})")
    group = parser.add_argument_group("with --to")
    group.add_argument(
        "--output", type=typed, metavar="FILE", help="write it there, packed where it ends in .gz"
    )
    group.add_argument(
        "--layer", metavar="PATH", help="only events in a layer, forward and backward"
    )


def add_part(group: argparse._ArgumentGroup) -> None:
    """Declare the options that choose a part of the trace, which is converted or reported."""
    group.add_argument(
        "--from",
        type=_time,
        metavar="TIME",
        dest="begin",
        help="only events after this time, such as 0.5s",
    )
    group.add_argument(
        "--until",
        type=_time,
        metavar="TIME",
        dest="end",
        help="only events before this time, such as 1.2s",
    )
    group.add_argument(
        "--step", type=whole_number, metavar="N", help="only events in ProfilerStep#N"
    )


def _time(text: str) -> float:
    from torchgauge.quantities import amount, meant

    quantity = amount(text, "s")
    if quantity is None:
        better = meant(text, "s") or "0.5s"
        raise argparse.ArgumentTypeError(f"'{text}' is not a time (such as {better})")
    return quantity.value


def check(options: argparse.Namespace) -> None:
    """Raise InputError `option-conflict` for options that have nothing to do with each other."""
    if options.to is None and (name := _first_given(options, _CONVERSION_OPTIONS)):
        raise _conflict(f"{name} belongs to a conversion.", f"Add --to {'|'.join(FORMS)}.")
    if options.to is not None and options.memory_limit is not None:
        raise _conflict("--to reads the whole trace.", "Leave out --memory-limit.")
    if options.to is not None and (name := _first_given(options, _WRITE_OPTIONS)):
        raise _conflict(f"--to converts, and {name} writes what was read.", "Use one of them.")


def run(options: argparse.Namespace) -> int:
    """Convert, and write the file or standard output; return the exit code."""
    from torchgauge.analyze.trace.selection import Part
    from torchgauge.traces.conversions import Conversion, converted, write
    from torchgauge.traces.read_options import ReadOptions

    if options.output is None and options.to in _BINARY and sys.stdout.isatty():
        raise InputError(
            f"{options.to.capitalize()} is not for terminals.",
            id="output-binary",
            remedy="Add --output FILE, or send standard output to a file.",
        )
    part = Part(options.begin, options.end, options.step, options.layer)
    reading = ReadOptions(options.python, options.partial, options.cache)
    parts = converted(options.path, Conversion(options.to, options.rank, part, reading))
    if options.output is None:
        emit_bytes(parts)
    else:
        say([write(parts, options.output)])
    return ExitCode.DONE


def _first_given(options: argparse.Namespace, names: Mapping[str, str]) -> str | None:
    given_names = (
        name for place, name in names.items() if getattr(options, place, None) is not None
    )
    return next(given_names, None)


def _conflict(message: str, remedy: str) -> InputError:
    return InputError(message, id="option-conflict", remedy=remedy)
