"""Files are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from torchgauge.errors import InputError


def write_atomically(path: Path, data: bytes) -> Path:
    """Write `data` to `path` so that any reader sees the old file or the new one, and return it.

    Raises InputError `output-unwritable` where the folder cannot be made or written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        part.unlink(missing_ok=True)
    return path


def check_writable(folder: Path) -> None:
    """Make `folder` and raise InputError `output-unwritable` where no file can be put there."""
    probe = write_atomically(folder / ".torchgauge-writable", b"")
    probe.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"'{path}' could not be written.",
        id="output-unwritable",
        cause=error.strerror or str(error),
        remedy="Choose another --output-dir, or free space and check its permissions.",
    )
