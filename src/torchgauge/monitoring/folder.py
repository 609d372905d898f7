"""A monitor folder: every process's file, those of ended ones too, read and merged."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from torchgauge.errors import InputError
from torchgauge.folders import state_folder
from torchgauge.monitoring.caps import capped
from torchgauge.monitoring.process_file import SUFFIX, ProcessFile, read
from torchgauge.records.monitoring.histogram import Histogram
from torchgauge.records.monitoring.window import (
    SCHEMA,
    UNREADABLE,
    Key,
    ProcessState,
    Window,
    merged,
)

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

    Another's or a damaged file is passed over with a warning; `unreadable` has its name after each
    look. What cannot be looked at raises OSError, a folder that is not there is empty.
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
        paths = self.path.iterdir() if self.path.exists() else ()
        return sorted(path.name for path in paths if path.suffix == SUFFIX)

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
        further, self.unreadable = set(unreadable) - set(self.unreadable), tuple(unreadable)
        if further and (trouble := self.trouble()):
            warnings.warn(f"{trouble.message} {trouble.cause}", RuntimeWarning, stacklevel=2)
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
            cause="They are damaged, too large, another program's, or a newer torchgauge's: "
            f"{names}. What their processes recorded is in no total.",
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
        return merged(capped(self._windows(monitor, own)))

    def scraped(self, monitor: str | None = None, own: ProcessState | None = None) -> list[Window]:
        """Return the totals, and how many files could not be read for them."""
        totals, now = self.totals(monitor, own), time.time()
        labels = {} if monitor is None else {"monitor": monitor}
        unreadable = float(len(self.unreadable))
        return [*totals, Window(series=UNREADABLE, unit="", labels=labels, begin=now, end=now,
                                last=unreadable)]  # fmt: skip

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
                    labels = window.labels | {"process": f"{state.host}:{state.process}"}
                    yield msgspec.structs.replace(window, labels=labels)


MOST_ENDED = 16  # files of ended processes that stay as they are
# Another host's lock may not be seen here: its process has ended if it wrote nothing for so long.
OTHER_HOST = 86_400.0
_UNFINISHED = ".unfinished"


def compact(own: Path, monitor: str, host: str) -> None:
    """Merge the files of a monitor's ended processes if there are many; `own` is the process's.

    Raises OSError.
    """
    folder = own.parent
    if sum(path.suffix == SUFFIX for path in folder.iterdir()) <= MOST_ENDED:
        return
    if read(own)[1] is not True:  # where locks do not work, nobody knows who has ended
        return
    with contextlib.suppress(BlockingIOError), _turn(folder):
        _compact(folder, monitor, host)


def _compact(folder: Path, monitor: str, host: str) -> None:
    _remove(folder.glob(f"*{_UNFINISHED}"))
    files = MonitorFolder(folder).files()
    _remove(folder / name for state in files.values() for name in state.replaces)
    ended = {
        name: state
        for name, state in files.items()
        if state.monitor == monitor and state.alive is False
        if state.replaces or state.host == host or state.end < time.time() - OTHER_HOST
    }
    if len(ended) <= MOST_ENDED:
        return
    names = [*ended, *(name for state in ended.values() for name in state.replaces)]
    state = merged_state(list(ended.values()), [name for name in names if (folder / name).exists()])
    file = ProcessFile(folder / (file_stem(monitor, "ended") + _UNFINISHED))
    with contextlib.closing(file):
        file.write(msgspec.msgpack.encode(state))
        file.flush()
    file.path.rename(file.path.with_suffix(SUFFIX))
    _remove(folder / name for name in ended)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # another's: its name stays that of a replaced file
            path.unlink()


def merged_state(states: Sequence[ProcessState], names: Sequence[str]) -> ProcessState:
    """Return what processes have recorded in all, without readings, and the names of their files.

    Where the sum of a series is not a float, what it lacks is another window: sums stay exact.
    """
    by_key: dict[Key, list[Window]] = {}
    for window in capped(window for state in states for window in state.windows):
        if window.last is None:
            by_key.setdefault(window.key, []).append(window)
    return msgspec.structs.replace(
        max(states, key=lambda state: state.end),
        process=0,
        begin=min(state.begin for state in states),
        windows=tuple(window for parts in by_key.values() for window in _exact(parts)),
        problems=(),
        replaces=tuple(names),
    )


def _exact(parts: list[Window]) -> Iterator[Window]:
    """Yield the sum of the windows, and windows without events for what its sum lacks."""
    (total,) = merged(parts)
    yield total
    sums = [part.histogram.sum for part in parts] + [-total.histogram.sum]
    while lacking := math.fsum(sums):
        yield msgspec.structs.replace(total, count=0, errors={}, histogram=Histogram(sum=lacking))
        sums.append(-lacking)


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Let no other process compact the folder meanwhile. Raises BlockingIOError where one does."""
    import fcntl  # where it is missing nothing tells which processes have ended

    descriptor = os.open(folder / "compaction.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
