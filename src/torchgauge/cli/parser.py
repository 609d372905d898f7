"""The argument parser: what it cannot take is one error, with the command that was meant."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence

from torchgauge.cli.output import emit
from torchgauge.errors import InputError
from torchgauge.similar import similar

TYPE_CHECKING = False  # typing would be a quarter of the time of --help
if TYPE_CHECKING:
    from typing import Any, NoReturn

USUAL_COLUMNS = 80
# What other tools call an option of ours.
OTHER_NAMES = {
    "--dtype": "--precision",
    "--gpu": "--device=cuda",
    "--cuda": "--device=cuda",
    "--shape": "--input",
    "--input-size": "--input",
    "--model": "--model-path",
}
_REQUIRED = "the following arguments are required: "


class UsageError(InputError):
    """Arguments that no verb takes; `usage` is how the verb is called.

    `typed` is the argument that is wrong and `meant` what stands in its place in the command that
    was probably meant, where there is one.
    """

    def __init__(
        self, message: str, parser: Parser, *, id: str, typed: str = "", meant: str = ""
    ) -> None:
        super().__init__(message, id=id, remedy=f"For more: {parser.prog} --help")
        self.usage = f"usage: {parser.usage_line()}"
        self.typed, self.meant = typed, meant

    def corrected(self, arguments: Sequence[str]) -> list[str]:
        """Return the arguments that were probably meant; none where nothing is near."""

        def word(argument: str) -> str:
            if argument == self.typed:
                return self.meant
            name, equals, value = argument.partition("=")
            words = (self.meant if part == self.typed else part for part in (name, value))
            return equals.join(words) if equals else argument

        if not self.meant:
            return []
        return (
            [word(argument) for argument in arguments] if self.typed else [self.meant, *arguments]
        )

    def suggest(self, words: Sequence[str]) -> None:
        """Begin the remedy with what was meant: the whole command where it is known."""
        import shlex

        meant = f": {shlex.join(['torchgauge', *words])}" if words else f" {self.meant}?"
        self.remedy = f"Did you mean{meant}\n{self.remedy}"


class Parser(argparse.ArgumentParser):
    """An argument parser that takes no abbreviations and colours its help on a terminal.

    Attributes:
        typed_options: The options of the command line with their values, as they were typed.

    Raises UsageError `verb-unknown`, `option-unknown`, `option-invalid`, `argument-missing`,
    `argument-unknown`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(
            allow_abbrev=False, exit_on_error=False, formatter_class=_formatter(), **options
        )
        self.typed_options: list[tuple[argparse.Action, list[str]]] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the options and nothing that is left over: a verb knows all of its own."""
        try:
            parsed, left_over = super().parse_known_args(args, namespace)
        except argparse.ArgumentError as error:
            if error.argument_name is None:  # Python 3.13 raises so what is missing
                self.error(error.message)
            message = f"{error.argument_name}: {error.message}."
            raise UsageError(message, self, id="option-invalid") from None
        if left_over:
            raise self._unknown(left_over[0])
        return parsed, left_over

    def _unknown(self, argument: str) -> UsageError:
        name = argument.partition("=")[0]
        if not name.startswith("-"):
            return UsageError(f"'{argument}' is one too many.", self, id="argument-unknown")
        options = [text for text in self._option_string_actions if text.startswith("--")]
        meant = OTHER_NAMES.get(name.lower(), "")
        meant = meant if meant.partition("=")[0] in options else nearest(name, options)
        return UsageError(
            f"There is no option {name}.", self, id="option-unknown", typed=name, meant=meant
        )

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings:
            self.typed_options.append((action, list(arg_strings)))
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        meant = nearest(str(value), choices)
        if action.nargs != argparse.PARSER:
            message = f"{'/'.join(action.option_strings)}: '{value}' is none of "
            message += f"{', '.join(choices)}."
            raise UsageError(message, self, id="option-invalid", typed=value, meant=meant)
        noun = str(action.metavar).lower()
        target = not meant and any(sign in value for sign in ":./")
        raise UsageError(
            f"'{value}' is no {noun}." if target else f"There is no {noun} '{value}'.",
            self,
            id=f"{noun}-unknown",
            typed="" if target else value,
            meant="profile" if target and noun == "verb" else meant,
        )

    def error(self, message: str) -> NoReturn:
        """Raise UsageError; the message is argparse's."""
        if message.startswith(_REQUIRED):
            missing = message.removeprefix(_REQUIRED)
            raise UsageError(f"{missing} is missing.", self, id="argument-missing")
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", self, id="option-invalid")

    def usage_line(self) -> str:
        """Return how the verb is called, in one line."""
        names = [
            str(action.metavar or action.dest) for action in self._actions if _is_positional(action)
        ]
        # What follows a script is the script's own.
        last = any(action.nargs == argparse.REMAINDER for action in self._actions)
        parts = ["[options]", *names] if last else [*names, "[options]"]
        return " ".join([self.prog, *parts])

    def print_help(self, file: Any = None) -> None:
        """Print it; raises InputError `output-unwritable`, where argparse passes over it."""
        if file is None:
            emit(self.format_help(), styled=True)
        else:
            super().print_help(file)


def _is_positional(action: argparse.Action) -> bool:
    return not action.option_strings


def nearest(text: str, names: Iterable[str]) -> str:
    """Return the name that was probably meant: one with this beginning, or a similar one, or ""."""
    # Without the dashes of options, which would make all of them similar.
    by_lower = {name.lower().lstrip("-"): name for name in names}
    lower = text.lower().lstrip("-")
    beginning = [name for name in by_lower if len(text) > 3 and name.startswith(lower)]
    near = [lower] if lower in by_lower else beginning or similar(lower, by_lower)
    return by_lower[near[0]] if near else ""


class PlainHelp(argparse.RawDescriptionHelpFormatter):
    """Help for a pipe: as wide as COLUMNS says, which is known without importing shutil."""

    def __init__(self, prog: str) -> None:
        columns = os.environ.get("COLUMNS", "")
        wide = int(columns) if columns.isdecimal() and len(columns) < 6 else 0
        super().__init__(prog, width=(wide or USUAL_COLUMNS) - 2)


def _formatter() -> type[argparse.HelpFormatter]:
    # rich is imported for eyes only: in a pipe it would triple the time of --help.
    if sys.stdout is not None and sys.stdout.isatty():
        from rich_argparse import RawDescriptionRichHelpFormatter

        return RawDescriptionRichHelpFormatter
    return PlainHelp
