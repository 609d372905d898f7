"""The files of a job's ranks, in a folder or a zip archive: which they are, and whose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from torchgauge.errors import InputError
from torchgauge.files import check_readable, is_file, is_folder
from torchgauge.readers.kineto.raw_events import ranks_before
from torchgauge.readers.tar_archive import ENDS, tar_paths, trace_paths
from torchgauge.reading import unreadable
from torchgauge.records.trace.events import MOST_RANKS

OTHER_JSON = "trace-no-events"  # whole JSON, as it lies beside traces
_NUMBER = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)


def trace_files(path: Path) -> list[Path] | None:
    """Return the traces of a folder, or of an archive that holds several, by name; None of a file.

    Raises InputError `trace-none` for a folder without any, `file-missing` for one that may not be
    read, `trace-archive` as `archive.traces`, and as `files.check_readable`.
    """
    check_readable(path)
    if not is_folder(path):
        several = trace_paths(path) or tar_paths(path)
        return list(several) if len(several) > 1 else None
    try:
        named = [entry for entry in sorted(path.iterdir()) if entry.name.endswith(ENDS)]
    except OSError as error:
        raise unreadable(f"The folder {path}", error, "Check its permissions.") from None
    # A link that leads nowhere is a rank that would be missed.
    traces = [
        entry for entry in named if is_file(entry) or (entry.is_symlink() and not entry.exists())
    ]
    if not traces:
        raise InputError(
            f"{path} holds no traces.",
            id="trace-none",
            cause="They end in .json, .json.gz, .zip or .chrome_trace.",
            remedy="Name the folder with the ranks' files.",
        )
    return traces


def files_by_rank(path: Path) -> dict[int, Path] | None:
    """Return the files of a folder or an archive by the ranks that `read_trace` gives them.

    Ranks are read from how each begins. None of a single file.
    """
    files = trace_files(path)
    if files is None:
        return None
    traces: dict[Path, tuple[int | None, int | None]] = {}
    for file in files:
        try:
            traces[file] = ranks_before(file)
        except InputError as error:
            if error.id != OTHER_JSON:
                traces[file] = None, None  # what is wrong with it is said when it is read
    named = [(rank, file.name) for file, (rank, _) in traces.items()]
    numbers = rank_numbers(named, max((world or 0 for _, world in traces.values()), default=0))
    rank_files = {
        number: file for number, file in zip(numbers, traces, strict=True) if number is not None
    }
    return dict(sorted(rank_files.items()))


def rank_numbers(files: Sequence[tuple[int | None, str]], world: int) -> list[int | None]:
    """Return each file's rank: as it says it, else as its name does, else its place.

    None where the place is another's or there is none: the front end of vLLM writes a file beside
    those of its ranks.
    """
    recorded_ranks = [_recorded_rank(number, name) for number, name in files]
    return [
        number
        if number is not None or place in recorded_ranks or (world and place >= world)
        else place
        for place, number in enumerate(recorded_ranks)
    ]


def _recorded_rank(number: int | None, name: str) -> int | None:
    if number is not None:
        return number
    named = _NUMBER.search(name)
    return int(named[1]) if named and int(named[1]) < MOST_RANKS else None


def rank_unknown(name: str, known_ranks: Sequence[int | None], number: int | None) -> InputError:
    """Return the error that a trace has no such rank."""
    return InputError(
        f"There is no trace of rank {number} in {name}.",
        id="rank-unknown",
        cause=f"There are those of {', '.join(map(str, known_ranks))}.",
        remedy="Choose one of these.",
    )
