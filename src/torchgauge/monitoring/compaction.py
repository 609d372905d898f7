"""One file in place of many: those of a monitor's ended processes, so that a folder stays small.

The new file is whole before it gets its name, and has the names of those it replaces: readers pass
over them from then on, so that it does not matter when they go, or whether the process that removes
them is killed meanwhile. One process at a time does this in a folder.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from torchgauge.monitoring.folder import MonitorFolder, file_stem
from torchgauge.monitoring.process_file import SUFFIX, ProcessFile, read
from torchgauge.records.monitoring.histogram import Histogram
from torchgauge.records.monitoring.window import Key, ProcessState, Window, merged

try:
    import fcntl
except ImportError:  # nothing tells which processes have ended
    fcntl = None  # type: ignore[assignment]

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
    for state in states:
        for window in state.windows:
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
    descriptor = os.open(folder / "compaction.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
