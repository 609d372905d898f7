"""What one process's monitor has recorded since it began, as its file in the monitor folder."""

from __future__ import annotations

from torchgauge.records.monitoring.window import Window
from torchgauge.records.record import Record

SCHEMA = "torchgauge.monitor/1"


class Problem(Record, frozen=True, kw_only=True):
    """One thing that fails in a monitor, while the rest goes on.

    Attributes:
        part: What failed, such as "folder", "history", "otlp" or "layers".
        message: The last error.
        times: How often it failed.
        last: When it last failed, in seconds since 1970.
        solved: Whether it has worked since.
    """

    part: str
    message: str
    times: int
    last: float
    solved: bool = False


class ProcessState(Record, frozen=True, kw_only=True):
    """What a monitor recorded in one process.

    Attributes:
        monitor: Its name.
        host: The machine's name.
        process: The number of the process.
        begin: When it began, in seconds since 1970.
        end: When this was written.
        interval: Seconds between two writes.
        windows: Everything since `begin`, one window a series.
        problems: What failed.
        alive: Whether the process is running, where it can be determined; set by the reader.
        replaces: Names of files that this one stands for, of ended processes.
    """

    schema: str = SCHEMA
    monitor: str
    host: str
    process: int
    begin: float
    end: float
    interval: float = 1.0
    windows: tuple[Window, ...] = ()
    problems: tuple[Problem, ...] = ()
    alive: bool | None = None
    replaces: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """What tells the process from others, those with its number before or after it too."""
        return f"{self.host}:{self.process}:{self.begin:.3f}"
