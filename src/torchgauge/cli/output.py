"""The only way out to a terminal: the result to standard output, the rest to standard error.

What a user's model prints goes to standard error, too. No text of ours reaches either but through
here, where what names, files and arguments hold can command nothing.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator

from torchgauge.errors import InputError
from torchgauge.visible import printable, visible, visible_lines

TYPE_CHECKING = False  # typing and pathlib would be a third of the time of --help
if TYPE_CHECKING:
    from typing import TextIO

    from rich.console import RenderableType


def take_any_text() -> None:
    """Let our streams take what their encoding lacks as '?', and anything where they are closed.

    A script may have closed Python's stream; what it wrote to is there all the same.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        text = getattr(sys, name)
        if text is None or text.closed:
            setattr(sys, name, _opened(number))
        elif isinstance(text, io.TextIOWrapper) and codecs.lookup(text.encoding).name != "utf-8":
            text.reconfigure(errors="replace")


def _opened(number: int) -> io.TextIOWrapper:
    """Return a stream to what a number stands for; to nowhere where it stands for nothing."""
    try:
        os.fstat(number)
    except OSError:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - until we end
    return open(number, "w", encoding="utf-8", errors="replace", closefd=False)


@contextlib.contextmanager
def prints_to_stderr() -> Iterator[None]:
    """Send what is printed in the block, by Python or by libraries below it, to standard error.

    A file that is written to /dev/stdout meanwhile goes there all the same.
    """
    from torchgauge.files import standing_in
    from torchgauge.signals import HeldBack  # every verb's --help would wait for it

    sys.stdout.flush()
    errors = sys.stderr
    try:
        out = os.dup(1)
    except OSError:  # standard output is closed: nothing can be printed to it
        yield
        return
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr), standing_in(1, out):
            yield
    finally:
        with HeldBack():
            sys.stderr = errors  # what ran may have replaced it
            take_any_text()  # or closed them
            sys.stdout.flush()
            os.dup2(out, 1)
            os.close(out)


def print_view(view: Callable[[int], RenderableType]) -> None:
    """Print what `view` makes for a width: in colours on a terminal, as plain text elsewhere."""
    if sys.stdout.isatty():
        from torchgauge.report.console.plain import print_styled

        print_styled(view)
    else:
        from torchgauge.report.console.plain import plain

        emit(plain(view) + "\n")


def tell(line: str) -> None:
    """Write one line to standard error, whatever its parts hold."""
    tell_lines(visible(line))


def tell_lines(text: str) -> None:
    """Write lines to standard error: a record's text, an error's, a traceback."""
    _write_error(printable(text.removesuffix("\n")) + "\n")


def command_argument(text: str) -> str:
    """Return a text of the user's as one argument of a command that can be pasted."""
    import shlex  # for a message, and not for --help

    return shlex.quote(text)


def annotate(commands: str) -> None:
    """Write commands for a workflow's runner, each on a line.

    It reads them from both streams; standard output may hold a document.
    """
    _write_error(visible_lines(commands))


def _write_error(text: str) -> None:
    """Write to standard error; where that is full or gone the exit code tells alone."""
    take_any_text()  # the user's code may have closed it
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _to_nowhere(sys.stderr)


def emit(text: str, *, styled: bool = False) -> None:
    """Write the result to standard output; a reader that is gone (`| head`) is not a failure.

    `styled`: nothing in it but torchgauge's own words, in their colours.

    Raises InputError `output-unwritable` where it goes to a file whose disk is full.
    """
    with _reader_may_be_gone():
        sys.stdout.write(text if styled else _terminal_safe(text))
        sys.stdout.flush()


def emit_bytes(parts: Iterable[bytes]) -> None:
    """Write a binary result, or a large one, as `emit` does."""
    with _reader_may_be_gone():
        if sys.stdout.isatty():
            for text in codecs.iterdecode(parts, "utf-8", "replace"):
                sys.stdout.write(_terminal_safe(text))
        else:
            sys.stdout.buffer.writelines(parts)
        sys.stdout.flush()


def _terminal_safe(text: str) -> str:
    """Return what a terminal may have of a text that is for programs: nothing that commands it."""
    return visible_lines(text) if sys.stdout.isatty() else text


@contextlib.contextmanager
def _reader_may_be_gone() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        _to_nowhere(sys.stdout)
    except OSError as error:
        _to_nowhere(sys.stdout)
        raise InputError(
            "Standard output could not be written.",
            id="output-unwritable",
            cause=error.strerror or str(error),
            remedy="Free space, or send it elsewhere; --output-dir writes files.",
        ) from error


def _to_nowhere(stream: TextIO) -> None:
    # Python would complain once more when it flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
