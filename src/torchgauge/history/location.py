"""Where the history is: what was told, else a file in the project, else one of the user's."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "TORCHGAUGE_STORE"
FOLDER = ".torchgauge"
FILE = "history.db"


def location(told: str | None = None, start: Path | None = None) -> str:
    """Return the store's URL or file: `told`, TORCHGAUGE_STORE, or the default file.

    The default is `.torchgauge/history.db` in the nearest folder from `start` (the working
    directory) upwards that holds `.torchgauge` or `.git`, else `torchgauge/history.db` below
    XDG_DATA_HOME or ~/.local/share.
    """
    if chosen := told or os.environ.get(VARIABLE):
        return chosen
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / FOLDER).is_dir() or (folder / ".git").exists():
            return str(folder / FOLDER / FILE)
    data = os.environ.get("XDG_DATA_HOME")
    base = Path(data) if data else Path(os.path.expanduser("~")) / ".local" / "share"  # noqa: PTH111 - Path.home raises where there is none
    return str(base / "torchgauge" / FILE)


def make_folder(file: Path) -> None:
    """Make the folder of a store's file; the project's own is kept out of git.

    Raises OSError.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    ignored = file.parent / ".gitignore"
    if file.parent.name == FOLDER and not ignored.exists():
        ignored.write_text("*\n")
