"""Progress of long work: drawn on a terminal, and never in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Protocol

from torchgauge import randomness
from torchgauge.signals import restoring
from torchgauge.visible import one_line


class Progress(Protocol):
    """Receives what is being done; called between measurements, never inside one."""

    def start(self, task: str) -> None:
        """Say that `task` begins."""
        ...

    def update(self, detail: str, fraction: float | None = None) -> None:
        """Say how far the task is; `fraction` is None where the end is not known."""
        ...

    def close(self) -> None:
        """Take everything off the screen."""
        ...


class Silent:
    """Says nothing."""

    def start(self, task: str) -> None:
        """Do nothing."""

    def update(self, detail: str, fraction: float | None = None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class TerminalProgress:
    """One line on a terminal, drawn only when told to: no thread may run beside a measurement."""

    @randomness.preserved_state()
    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._task = ""
        self._live = Live(
            console=Console(stderr=True), auto_refresh=False, transient=True, redirect_stdout=False
        )
        self._live.start()

    def start(self, task: str) -> None:
        """Show the task's name."""
        self._task = task
        self.update("")

    @randomness.preserved_state()
    def update(self, detail: str, fraction: float | None = None) -> None:
        """Redraw the line."""
        from rich.text import Text

        task, detail = one_line(self._task), one_line(detail)
        share = "" if fraction is None else f" {min(fraction, 1):4.0%}"
        line = Text.assemble((f"{task}{share}", "bold"), f"  {detail}", overflow="ellipsis")
        line.no_wrap = True
        self._live.update(line, refresh=True)

    @randomness.preserved_state()
    def close(self) -> None:
        """Remove the line."""
        self._live.stop()


def progress(choice: bool | None = None) -> Progress:
    """Return what shows progress: `None` shows it where standard error is a terminal."""
    if choice is None:
        choice = sys.stderr is not None and sys.stderr.isatty()
    return TerminalProgress() if choice else Silent()


@restoring
def showing(choice: bool | None) -> Iterator[Progress]:
    """Show progress as chosen; None: where a terminal is there to see it."""
    display = progress(choice)
    try:
        yield display
    finally:
        display.close()
