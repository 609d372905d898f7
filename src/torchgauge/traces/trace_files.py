"""The files that the traces of a job's ranks are in: those of a folder, or of a zip archive."""

from __future__ import annotations

from pathlib import Path

from torchgauge.errors import InputError
from torchgauge.files import check_readable, is_file, is_folder
from torchgauge.readers.archive import ENDS, trace_paths
from torchgauge.reading import unreadable


def trace_files(path: Path) -> list[Path] | None:
    """Return the traces of a folder, or of an archive that holds several, by name; None of a file.

    Raises InputError `trace-none` for a folder without any, `file-missing` for one that may not be
    read, `trace-archive` as `archive.traces`, and as `files.check_readable`.
    """
    check_readable(path)
    if not is_folder(path):
        several = trace_paths(path)
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
