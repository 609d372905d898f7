"""The traces in a zip archive: which of its members are traces, and how to find one.

Nothing is unpacked to disk. A member has the path that it would have if the archive were a folder
(`ranks.zip/rank0.json`), so that all who read files read members. Archives come from strangers:
names that would lead elsewhere are refused, though none is ever used to write.
"""

from __future__ import annotations

import struct
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath

from torchgauge.errors import InputError
from torchgauge.files import is_file

SIGNATURE = b"PK\x03\x04"
ENDS = (".json", ".json.gz", ".zip", ".chrome_trace")  # the last of Proton's
UNREADABLE = (
    zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OSError, struct.error,
)  # fmt: skip
# Each trace would be a process of its own; no job has as many ranks.
_MAX_TRACES = 4096
# Each trace of an archive is looked for among all of its files.
MAX_FILES = 16 * _MAX_TRACES
_NO_TRACES = "__MACOSX"  # macOS puts what is no content of a file there, under the file's name


def traces(archive: zipfile.ZipFile, name: str, size: int) -> list[zipfile.ZipInfo]:
    """Return the members that end as traces do, by name; `size` is that of the archive in bytes.

    Raises InputError `trace-archive` where they are not in one folder, where a name leads out of
    it or is there twice, where members overlap, or where they are too many.
    """
    if len(archive.infolist()) > MAX_FILES:
        count = len(archive.infolist())
        raise refused(name, f"It holds {count:,} files; up to {MAX_FILES:,} are looked at.")
    members = [member for member in archive.infolist() if is_trace(member.filename)]
    check_names([member.filename for member in members], name)
    if sum(member.compress_size for member in members) > size:
        raise refused(
            name, "Files in it share their bytes, which makes a small archive a large one."
        )
    return sorted(members, key=lambda member: PurePosixPath(member.filename).name)


def is_trace(name: str) -> bool:
    """Return whether a member of this name is a trace."""
    return name.endswith(ENDS) and PurePosixPath(name).parts[0] != _NO_TRACES


def check_names(names: Sequence[str], archive: str) -> None:
    """Raise InputError `trace-archive` for names of traces that an archive must not have.

    They are not in one folder, one leads out of it or is there twice, or they are too many.
    """
    if len(names) > _MAX_TRACES:
        raise refused(archive, f"It holds {len(names):,} traces; up to {_MAX_TRACES:,} are read.")
    paths = [PurePosixPath(name) for name in names]
    if bad := next((name for name in names if _leads_out(name)), None):
        raise refused(archive, f"A name in it leads out of it: {bad[:200]}.")
    duplicate, times = Counter(paths).most_common(1)[0] if paths else (None, 0)
    if times > 1:
        raise refused(archive, f"Two files in it have the name {str(duplicate)[:200]}.")
    folders = sorted({str(path.parent)[:200] for path in paths})
    if len(folders) > 1:
        raise refused(archive, f"Its traces are in several folders: {', '.join(folders[:5])}.")


def _leads_out(name: str) -> bool:
    windows_path = PureWindowsPath(name)  # it takes both kinds of slash for one
    return bool(windows_path.anchor) or ".." in windows_path.parts


def refused(name: str, cause: str) -> InputError:
    """Return the error that an archive is not read."""
    return InputError(
        f"{name} was not read.",
        id="trace-archive",
        cause=cause,
        remedy="Unpack it, and name one of the files or the folder with the ranks' files.",
    )


def trace_paths(path: Path) -> Sequence[Path]:
    """Return the paths of the traces in an archive; none where the archive is incomplete.

    Raises InputError as `traces`.
    """
    if not is_file(path):  # a pipe's bytes would be gone
        return ()
    try:
        with path.open("rb") as file:
            if file.read(len(SIGNATURE)) != SIGNATURE:
                return ()
            with zipfile.ZipFile(file) as archive:
                members = traces(archive, str(path), path.stat().st_size)
    except UNREADABLE:
        return ()
    return [path / member.filename for member in members]


def find(path: Path) -> tuple[zipfile.ZipFile, zipfile.ZipInfo] | None:
    """Return the archive that a path leads into, open, and the member; None where it does not."""
    for ancestor in path.parents:
        try:
            if not ancestor.is_file():
                continue
            archive = zipfile.ZipFile(ancestor)
        except UNREADABLE:
            continue
        member_path = PurePosixPath(path.relative_to(ancestor).as_posix())
        for member in archive.infolist():
            if PurePosixPath(member.filename) == member_path:
                return archive, member
        archive.close()
    return None
