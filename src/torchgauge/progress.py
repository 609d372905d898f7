"""Progress of long work: a line on a terminal or in a notebook, lines now and then in a pipe.

It is drawn only when told to: no thread may run beside a measurement.
"""

from __future__ import annotations

import contextlib
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, Protocol

from torchgauge import randomness
from torchgauge.signals import restoring
from torchgauge.visible import one_line, printable

if TYPE_CHECKING:
    from rich.text import Text

LINE_PERIOD = 5.0
"""Seconds between two lines in a pipe."""


class Progress(Protocol):
    """Receives what is being done; called between measurements, never inside one."""

    def expect(self, stages: int) -> None:
        """Say how many stages will be started from now on."""

    def start(self, stage: str) -> None:
        """Say that a stage begins."""

    def update(self, detail: str, fraction: float | None = None) -> None:
        """Say how far the stage is; `fraction` is None where the end is not known."""

    def keep(self, figure: str) -> None:
        """Show a figure from now on, whatever the stage."""

    def close(self) -> None:
        """Take everything off the screen."""


class Silent:
    """Says nothing."""

    def expect(self, stages: int) -> None:
        """Do nothing."""

    def start(self, stage: str) -> None:
        """Do nothing."""

    def update(self, detail: str, fraction: float | None = None) -> None:
        """Do nothing."""

    def keep(self, figure: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class _StageLine(ABC):
    """The stage, its number and the seconds since the beginning, as one line."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self._stage = ""
        self._number = 0
        self._stages = 0
        self._figures: list[str] = []

    def expect(self, stages: int) -> None:
        """Count the stages from here on."""
        self._number, self._stages = 0, stages

    def start(self, stage: str) -> None:
        """Show the stage."""
        self._stage = one_line(stage)
        self._number += 1
        self.update("")

    def update(self, detail: str, fraction: float | None = None) -> None:
        """Show how far the stage is."""
        number = ""
        if self._stages:
            number = f"stage {self._number} of {max(self._stages, self._number)}"
        share = "" if fraction is None else f" {min(fraction, 1):.0%}"
        seconds = f"{self._now() - self._began:.0f} s"
        parts = (number, f"{self._stage}{share}", seconds, one_line(detail), *self._figures)
        self._show([part for part in parts if part])

    def keep(self, figure: str) -> None:
        """Show a figure from now on."""
        self._figures.append(one_line(figure))
        self.update("")

    @abstractmethod
    def _show(self, parts: list[str]) -> None: ...


class TerminalProgress(_StageLine):
    """A line on a terminal that is redrawn, and cleared at the end."""

    @randomness.preserved_state()
    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__()
        self._live = Live(
            console=Console(stderr=True), auto_refresh=False, transient=True, redirect_stdout=False
        )
        self._live.start()

    @randomness.preserved_state()
    def _show(self, parts: list[str]) -> None:
        self._live.update(_styled(parts), refresh=True)

    @randomness.preserved_state()
    def close(self) -> None:
        """Remove the line."""
        self._live.stop()


def _styled(parts: list[str]) -> Text:
    from rich.text import Text

    line = Text(" · ").join([Text(parts[0], "bold"), *map(Text, parts[1:])])
    line.overflow, line.no_wrap = "ellipsis", True
    return line


class PipeProgress(_StageLine):
    """A line every few seconds, for logs; work that is done sooner writes none."""

    def __init__(
        self, write: Callable[[str], object], now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(now)
        self._write = write
        self._next = self._began + LINE_PERIOD

    def _show(self, parts: list[str]) -> None:
        if self._now() >= self._next:
            self._write(printable(f"torchgauge: {' · '.join(parts)}") + "\n")
            self._next = self._now() + LINE_PERIOD

    def close(self) -> None:
        """Do nothing: what a log has stays."""


class NotebookProgress(_StageLine):
    """A line below a notebook's cell that is replaced, and gone at the end."""

    def __init__(self, display: Callable[..., Any]) -> None:
        super().__init__()
        self._display = display
        self._handle: Any = None

    def _show(self, parts: list[str]) -> None:
        line = {"text/plain": " · ".join(parts)}
        if self._handle is None:
            self._handle = self._display(line, raw=True, display_id=True)
        else:
            self._handle.update(line, raw=True)

    def close(self) -> None:
        """Empty the line: HTML without content takes no room, a text without any has a line."""
        if self._handle is not None:
            self._handle.update({"text/html": "", "text/plain": ""}, raw=True)


def _to_stderr(line: str) -> None:
    """Write a line; silently dropped where standard error is full, closed or gone."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(line)
        sys.stderr.flush()


def _in_notebook() -> bool:
    """Whether this is a cell of a notebook, whose output can be replaced."""
    ipython = sys.modules.get("IPython")
    get_ipython = getattr(ipython, "get_ipython", lambda: None)  # a stub may have none
    return getattr(get_ipython(), "kernel", None) is not None


_command: ContextVar[Literal["", "usual", "quiet"]] = ContextVar("command", default="")


@contextlib.contextmanager
def in_command(*, quiet: bool) -> Iterator[None]:
    """Write lines where there is no terminal, as a command does; `quiet` shows nothing at all."""
    token = _command.set("quiet" if quiet else "usual")
    try:
        yield
    finally:
        _command.reset(token)


def progress(choice: bool | None = None) -> Progress:
    """Return what shows progress.

    `None` shows it on a terminal and in a notebook, and in a command's pipe; True elsewhere too.
    """
    command = _command.get()
    if choice is False or command == "quiet" or sys.stderr is None:
        return Silent()
    if _in_notebook():
        from IPython.display import display

        return NotebookProgress(display)
    if sys.stderr.isatty():
        return TerminalProgress()
    return PipeProgress(_to_stderr) if choice or command else Silent()


@restoring
def showing(choice: bool | None) -> Iterator[Progress]:
    """Show progress as chosen; None: on a terminal."""
    display = progress(choice)
    try:
        yield display
    finally:
        display.close()
