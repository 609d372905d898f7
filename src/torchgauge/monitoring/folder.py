"""A monitor folder: every process's file, those of ended ones too, read and merged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from torchgauge.errors import InputError
from torchgauge.folders import state_folder
from torchgauge.monitoring.process_file import SUFFIX, read
from torchgauge.records.monitoring.process_state import SCHEMA, ProcessState
from torchgauge.records.monitoring.window import Key, Window, merged


def monitor_folder(folder: str | Path | None = None) -> Path:
    """Return the folder: as given, or `monitors` in the user's state.

    Raises InputError `monitor-folder` if there is no home.
    """
    if folder is not None:
        return Path(folder).absolute()
    state = state_folder()
    if state is None:
        raise InputError(
            "There is no place for the files of monitors.",
            id="monitor-folder",
            cause="No folder was given, and there is no home.",
            remedy="Name one with folder= or TORCHGAUGE_STATE.",
        )
    return state / "monitors"


def _is_plausible(window: Window) -> bool:
    """Whether sums over very many such windows are numbers, and its times in order."""
    histogram = window.histogram
    values = (histogram.sum, histogram.min or 0.0, histogram.max or 0.0, window.last or 0.0)
    counts = (window.count, histogram.count, window.failed)
    return (
        0 <= window.begin <= window.end < 1e12
        and max(map(abs, values)) < 1e40
        and max(counts) < 2**53
    )


class MonitorFolder:
    """Reads a monitor folder: totals since the processes began, or windows since the last look.

    Another's or a damaged file is passed over; its name is in `unreadable` after each look.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.path = monitor_folder(folder)
        self.unreadable: tuple[str, ...] = ()
        self._ended: dict[str, ProcessState] = {}
        self._names: dict[str, str] = {}
        self._last_windows: dict[tuple[str, Key], Window] = {}

    def states(self) -> list[ProcessState]:
        """Return what each process's monitor has recorded, ended processes first."""
        states, unreadable = [], []
        paths: Sequence[Path] = ()
        with contextlib.suppress(OSError):
            paths = sorted(self.path.glob(f"*{SUFFIX}"))
        for path in paths:
            try:
                if (state := self._ended.get(path.name)) is None:
                    state = self._read(path)
                if state is not None:
                    states.append(state)
                    self._names[state.identity] = path.name
            except FileNotFoundError:  # it was removed meanwhile
                continue
            except (OSError, msgspec.MsgspecError, ValueError):
                unreadable.append(path.name)
        self.unreadable = tuple(unreadable)
        return sorted(states, key=lambda state: (state.alive is not False, state.begin))

    def trouble(self) -> InputError | None:
        """Return an error that names what could not be read at the last look; None of nothing."""
        if not self.unreadable:
            return None
        names = ", ".join(self.unreadable[:3]) + ", …" * (len(self.unreadable) > 3)
        return InputError(
            f"Of the folder {self.path} {len(self.unreadable)} files could not be read.",
            id="monitor-file",
            cause=f"They are damaged, another program's, or a newer torchgauge's: {names}.",
            remedy="Update torchgauge, or remove them.",
        )

    def _read(self, path: Path) -> ProcessState | None:
        data, alive = read(path)
        if data is None:
            return None
        state = msgspec.msgpack.decode(data, type=ProcessState)
        if state.schema != SCHEMA or not all(map(_is_plausible, state.windows)):
            raise ValueError("not a monitor's")
        state = msgspec.structs.replace(state, alive=alive)
        if alive is False:  # its file will not change
            self._ended[path.name] = state
        return state

    def remove_ended(self, before: float) -> int:
        """Remove the files of processes that ended before a time; return how many.

        What they recorded is gone from totals: counters of a running service start again.
        """
        removed = 0
        for state in self.states():
            if state.alive is False and state.end < before:
                (self.path / self._names[state.identity]).unlink(missing_ok=True)
                removed += 1
        self._ended.clear()
        return removed

    def totals(self, monitor: str | None = None, own: ProcessState | None = None) -> list[Window]:
        """Return everything recorded so far, one window a series over all processes.

        Readings, such as memory, are those of running processes, with the label `process`. `own`
        stands for what its process wrote last.
        """
        return merged(window for _, window in self._windows(monitor, own))

    def windows(self, monitor: str | None = None) -> list[Window]:
        """Return what was recorded since the last look, one window a series; at first everything.

        Nothing is lost between two looks, of processes that end meanwhile neither.
        """
        added = []
        for process, window in self._windows(monitor):
            earlier = self._last_windows.get((process, window.key))
            self._last_windows[process, window.key] = window
            if earlier is None:
                added.append(window)
            elif window.end > earlier.end:
                added.append(window.since(earlier))
        return merged(added)

    def _windows(
        self, monitor: str | None, own: ProcessState | None = None
    ) -> Iterator[tuple[str, Window]]:
        states = self.states()
        if own is not None:
            states = [*(state for state in states if state.identity != own.identity), own]
        for state in states:
            if monitor not in (None, state.monitor):
                continue
            process = f"{state.host}:{state.process}"
            for window in state.windows:
                if window.last is None:
                    yield state.identity, window
                elif state.alive is not False:
                    yield state.identity, window.with_labels(process=process)
