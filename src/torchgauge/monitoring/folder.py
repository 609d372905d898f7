"""A monitor folder: every process's file, those of ended ones too, read and merged."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from torchgauge.errors import InputError
from torchgauge.folders import state_folder
from torchgauge.monitoring.process_file import SUFFIX, ProcessFile, read
from torchgauge.records.monitoring.window import SCHEMA, Key, ProcessState, Window, merged

# Times that a folder is read which changes meanwhile.
MOST_READINGS = 10


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


def new_file(folder: str | Path | None, monitor: str, process: int) -> ProcessFile:
    """Return a new file in a monitor folder, which is made if need be.

    Raises InputError `monitor-folder`, OSError.
    """
    path = monitor_folder(folder)
    path.mkdir(parents=True, exist_ok=True)
    return ProcessFile(path / (file_stem(monitor, process) + SUFFIX))


def file_stem(monitor: str, origin: object) -> str:
    """Return a new name for a file of a monitor, less its suffix."""
    name = re.sub(r"[^\w.-]", "_", monitor, flags=re.ASCII)  # whose length is that of the text
    return f"{name}-{origin}-{os.urandom(4).hex()}"


def _is_plausible(window: Window) -> bool:
    """Whether sums over very many such windows are numbers, and its times in order."""
    histogram = window.histogram
    values = (histogram.sum, histogram.min or 0.0, histogram.max or 0.0, window.last or 0.0)
    counts = (window.count, histogram.count, window.failed)
    return (
        0 <= window.begin <= window.end < 1e12
        and all(abs(value) < 1e40 for value in values)  # of NaN it is false
        and max(counts) < 2**53
    )


class MonitorFolder:
    """Reads a monitor folder: totals since the processes began, or windows since the last look.

    Another's or a damaged file is passed over; its name is in `unreadable` after each look.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.path = monitor_folder(folder)
        self.unreadable: tuple[str, ...] = ()
        self._lacks_files = False
        self._ended: dict[str, ProcessState] = {}
        self._last: dict[str | None, dict[Key, Window]] = {}

    def states(self) -> list[ProcessState]:
        """Return what each process's monitor has recorded, ended processes first."""
        states = self.files().values()
        return sorted(states, key=lambda state: (state.alive is not False, state.begin))

    def files(self) -> dict[str, ProcessState]:
        """Return the states by name of file, without the files that another one replaces."""
        for _ in range(MOST_READINGS):
            names = self._names()
            states = self._read_all(names)
            # Files that are replaced meanwhile may be gone before what replaces them was seen.
            if self._names() == names:
                break
        replaced = {name for state in states.values() for name in state.replaces}
        return {name: state for name, state in states.items() if name not in replaced}

    def _names(self) -> list[str]:
        try:
            return sorted(path.name for path in self.path.iterdir() if path.suffix == SUFFIX)
        except OSError:
            return []

    def _read_all(self, names: Sequence[str]) -> dict[str, ProcessState]:
        states, unreadable = {}, []
        for name in names:
            try:
                state = self._ended.get(name) or self._read(name)
            except FileNotFoundError:  # it was removed meanwhile
                continue
            except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
                unreadable.append(name)
                continue
            if state is not None:
                states[name] = state
        self.unreadable = tuple(unreadable)
        self._lacks_files = len(states) < len(names)
        self._ended = {name: state for name, state in states.items() if state.alive is False}
        return states

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

    def _read(self, name: str) -> ProcessState | None:
        data, alive = read(self.path / name)
        if data is None:
            return None
        state = msgspec.msgpack.decode(data, type=ProcessState)
        # What it replaces is removed: nothing elsewhere, and no other program's file.
        paths = [Path(name) for name in state.replaces if "\0" not in name]
        names = tuple(path.name for path in paths if path.suffix == SUFFIX)
        if (state.schema, state.replaces) != (SCHEMA, names) or not all(
            map(_is_plausible, state.windows)
        ):
            raise ValueError("not a monitor's")
        return msgspec.structs.replace(state, alive=alive)

    def remove_ended(self, before: float) -> int:
        """Remove the files of processes that ended before a time; return how many.

        What they recorded is gone from totals: counters of a running service start again.
        """
        ended = {
            name: state
            for name, state in self.files().items()
            if state.alive is False and state.end < before
        }
        for name, state in ended.items():
            for removed in (*state.replaces, name):
                (self.path / removed).unlink(missing_ok=True)
        return len(ended)

    def totals(self, monitor: str | None = None, own: ProcessState | None = None) -> list[Window]:
        """Return everything recorded so far, one window a series over all processes.

        Readings, such as memory, are those of running processes, with the label `process`. `own`
        stands for what its process wrote last.
        """
        return merged(self._windows(monitor, own))

    def windows(self, monitor: str | None = None) -> list[Window]:
        """Return what was recorded since the last look, one window a series; at first everything.

        Nothing is lost between two looks, of processes that end meanwhile neither.
        """
        last, added = self._last.get(monitor, {}), []
        totals = self.totals(monitor)
        for window in totals:
            earlier = last.get(window.key)
            if earlier is None:
                added.append(window)
            elif window.includes(earlier):
                if window.end > earlier.end or window.count > earlier.count:
                    added.append(window.since(earlier))
            elif self._lacks_files:  # what they have may come back
                continue
            last[window.key] = window  # if a file was removed, the series begins again
        if not self._lacks_files:  # readings of ended processes are no longer there
            last = {window.key: window for window in totals}
        self._last[monitor] = last
        return added

    def _windows(self, monitor: str | None, own: ProcessState | None = None) -> Iterator[Window]:
        states = self.states()
        if own is not None:
            states = [*(state for state in states if state.identity != own.identity), own]
        for state in states:
            if monitor not in (None, state.monitor):
                continue
            for window in state.windows:
                if window.last is None:
                    yield window
                elif state.alive is not False:
                    yield window.with_labels(process=f"{state.host}:{state.process}")
