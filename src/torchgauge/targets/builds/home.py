"""Where a build's code lives: paths that a fresh process needs before it can import the code."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from torchgauge.errors import InputError
from torchgauge.folders import working_folder
from torchgauge.imports import modules_with_files

CHECKED_OUT = "torchgauge-base-"  # how the folders of revisions begin


@dataclasses.dataclass(frozen=True)
class Home:
    """The `sys.path` and working folder of a process, and where none of its modules may be from.

    `foreign` is the folder of the other build, "" where there is none to keep apart from.
    """

    path: tuple[str, ...]
    folder: str
    foreign: str = ""

    @staticmethod
    def current(foreign: str = "") -> Home:
        """Return the home of this process."""
        return Home(tuple(sys.path), str(working_folder()), foreign)


def foreign_module(folder: Path) -> tuple[str, str] | None:
    """Return name and file of a loaded module whose source lies in `folder`, None without one.

    Installed packages do not count, wherever their environment lies, nor does torchgauge itself.
    """
    root = folder.resolve()

    def foreign(path: Path) -> bool:
        # A check-out may lie inside: temporary files can be kept in the project.
        inside = path.is_relative_to(root) and not is_installed(path)
        return inside and not any(
            part.startswith(CHECKED_OUT) for part in path.relative_to(root).parts
        )

    for name, _, file in modules_with_files():
        # torch.ops says that it is of "_ops.py"; what was imported has a whole path
        is_torchgauge = name.partition(".")[0] == "torchgauge"
        if not is_torchgauge and Path(file).is_absolute() and foreign(Path(file).resolve()):
            return name, file
    return None


def is_installed(path: Path) -> bool:
    """True for what lies in an environment's folder of packages."""
    return "site-packages" in path.parts or "dist-packages" in path.parts


def check_home(foreign: str) -> None:
    """Raise InputError `side-leaked` where a module of the folder `foreign` was loaded here."""
    leaked = foreign_module(Path(foreign)) if foreign else None
    if leaked is not None:
        name, file = leaked
        raise InputError(
            f"It loaded the module {name} of the other build.",
            id="side-leaked",
            cause=f"{file} lies in {foreign}: an editable install names that folder by itself.",
            remedy="Give --base-env build, which installs the base revision by itself, or "
            "install the project without --editable.",
        )
