"""A temporary folder for messages between this process and a fresh one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from torchgauge.errors import InputError
from torchgauge.temporary import temporary_folder


@contextlib.contextmanager
def fresh_folder() -> Iterator[Path]:
    """Yield a new folder that is gone after the block.

    Raises InputError `output-unwritable` where it, or what the block writes there, has no room.
    """
    try:
        with temporary_folder() as folder:
            yield folder
    except OSError as error:
        raise InputError(
            "A measuring process could not be started.",
            id="output-unwritable",
            cause=": ".join(filter(None, (error.strerror or str(error), error.filename))),
            remedy="Free space, or set TMPDIR to a folder that has some.",
        ) from error
