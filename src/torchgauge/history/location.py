"""The location of the history: as given, else a file in the project, else one of the user's."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from torchgauge.errors import InputError
from torchgauge.files import is_file, is_folder
from torchgauge.folders import users_folder, working_folder

VARIABLE = "TORCHGAUGE_STORE"
FOLDER = ".torchgauge"
FILE = "history.db"


def location(explicit: str | None = None, start: Path | None = None) -> str:
    """Return the store's URL or file: `explicit`, TORCHGAUGE_STORE, or the default file.

    The default is `.torchgauge/history.db` in the nearest folder from `start` (the working
    directory) upwards that holds `.torchgauge` or `.git`, else `torchgauge/history.db` below
    XDG_DATA_HOME or ~/.local/share. Raises InputError `store-url` where there is no home.
    """
    if chosen := explicit or os.environ.get(VARIABLE):
        return chosen
    start_folder = (start or working_folder()).resolve()
    for folder in (start_folder, *start_folder.parents):
        git = folder / ".git"
        if is_folder(folder / FOLDER) or is_folder(git) or is_file(git):
            return str(folder / FOLDER / FILE)
    base = users_folder("XDG_DATA_HOME", ".local", "share")
    if base is None:
        raise InputError(
            "There is no place for a history.",
            id="store-url",
            cause="No folder from here upwards is a project, and there is no home.",
            remedy="Name it with --store or TORCHGAUGE_STORE.",
        )
    return str(base / "torchgauge" / FILE)


def make_folder(file: Path) -> None:
    """Make the folder of a store's file; the project's own is kept out of git.

    Raises OSError.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.parent.name == FOLDER:
        with (
            contextlib.suppress(FileExistsError),
            (file.parent / ".gitignore").open("x") as ignored,
        ):
            ignored.write("*\n")
