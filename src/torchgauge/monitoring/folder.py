"""A monitor folder: every process's file, those of ended ones too, read and merged."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from torchgauge.errors import InputError
from torchgauge.folders import users_folder
from torchgauge.monitoring.process_file import SUFFIX, read
from torchgauge.records.monitoring.process_state import ProcessState
from torchgauge.records.monitoring.window import Key, Window, merged

VARIABLE = "TORCHGAUGE_MONITOR_FOLDER"
PROCESS = "process"  # the label of windows that are of one process


def monitor_folder(folder: str | Path | None = None) -> Path:
    """Return the folder: as given, TORCHGAUGE_MONITOR_FOLDER, or one of the user's.

    Raises InputError `monitor-folder` if there is no home.
    """
    if chosen := folder or os.environ.get(VARIABLE):
        return Path(chosen).absolute()
    base = users_folder("XDG_STATE_HOME", ".local", "state")
    if base is None:
        raise InputError(
            "There is no place for the files of monitors.",
            id="monitor-folder",
            cause="No folder was given, and there is no home.",
            remedy=f"Name one with folder= or {VARIABLE}.",
        )
    return base / "torchgauge" / "monitors"


class MonitorFolder:
    """Reads a monitor folder: totals since the processes began, or windows since the last look.

    Another's or a damaged file is passed over; its name is in `unreadable` after each look.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.path = monitor_folder(folder)
        self.unreadable: tuple[str, ...] = ()
        self._seen: dict[tuple[str, Key], Window] = {}

    def states(self) -> list[ProcessState]:
        """Return what each process's monitor has recorded, ended processes first."""
        states, unreadable = [], []
        paths: Sequence[Path] = ()
        with contextlib.suppress(OSError):
            paths = sorted(self.path.glob(f"*{SUFFIX}"))
        for path in paths:
            try:
                data, alive = read(path)
                if data is not None:
                    state = msgspec.msgpack.decode(data, type=ProcessState)
                    states.append(msgspec.structs.replace(state, alive=alive))
            except FileNotFoundError:  # removed meanwhile
                continue
            except (OSError, msgspec.MsgspecError, ValueError):
                unreadable.append(path.name)
        self.unreadable = tuple(unreadable)
        return sorted(states, key=lambda state: (state.alive is not False, state.begin))

    def totals(self, monitor: str | None = None) -> list[Window]:
        """Return everything recorded so far, one window a series over all processes."""
        return merged(
            window
            for state in self.states()
            if monitor in (None, state.monitor)
            for window in state.windows
        )

    def windows(self, monitor: str | None = None) -> list[Window]:
        """Return what was recorded since the last look, one window a series; at first everything.

        Nothing is lost between two looks, of processes that end meanwhile neither.
        """
        added = []
        for state in self.states():
            if monitor not in (None, state.monitor):
                continue
            for window in state.windows:
                seen = self._seen.get((state.identity, window.key))
                self._seen[state.identity, window.key] = window
                if seen is None:
                    added.append(window)
                elif window.end > seen.end:
                    added.append(window.since(seen))
        return merged(added)
