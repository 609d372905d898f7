"""The files that the traces of a job's ranks are in: those of a folder, or of a zip archive."""

from __future__ import annotations

from pathlib import Path

from torchgauge.errors import InputError
from torchgauge.files import check_readable
from torchgauge.trace.archive import ENDS, trace_paths


def trace_files(path: Path) -> list[Path] | None:
    """Return the traces of a folder, or of an archive that holds several, by name; None of a file.

    Raises InputError `trace-none` for a folder without any, `trace-archive` as `archive.traces`,
    and as `files.check_readable`.
    """
    check_readable(path)
    if not path.is_dir():
        several = trace_paths(path)
        return list(several) if len(several) > 1 else None
    named = (one for one in sorted(path.iterdir()) if one.name.endswith(ENDS))
    # A link that leads nowhere is a rank that would be missed.
    found = [one for one in named if one.is_file() or (one.is_symlink() and not one.exists())]
    if not found:
        raise InputError(
            f"{path} holds no traces.",
            id="trace-none",
            cause="They end in .json, .json.gz, .zip or .chrome_trace.",
            remedy="Name the folder with the ranks' files.",
        )
    return found
