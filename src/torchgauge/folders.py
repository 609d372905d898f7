"""The folders that a process has: where it was started, and the user's own."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from torchgauge.errors import InputError

PACKAGE = Path(__file__).resolve().parent
"""The folder of torchgauge's own code."""
STATE_VARIABLE = "TORCHGAUGE_STATE"


def current_folder() -> str | None:
    """Return the working folder as the system has it; None where it was removed."""
    try:
        return os.getcwd()  # noqa: PTH109 - a text, as the path of a text is made of it
    except OSError:  # it was removed
        return None


# Relative names that were typed are meant from here; the user's code may go elsewhere.
STARTED_IN = current_folder()


def start_here() -> None:
    """Take the working directory as the one in which the next command was typed."""
    global STARTED_IN
    STARTED_IN = current_folder()


def working_folder() -> Path:
    """Return the working directory. Raises InputError `folder-removed` where it is gone."""
    folder = current_folder()
    if folder is None:
        raise InputError(
            "The working directory no longer exists.",
            id="folder-removed",
            cause="It was removed after the shell or the program had entered it.",
            remedy="Change to a folder that exists, and run it again.",
        )
    return Path(folder)


def typed(path: str) -> Path:
    """Return a path that was typed as an absolute one, which it stays whoever changes folders."""
    return Path(STARTED_IN or "", path)


def expanded(path: str | Path) -> Path:
    """Return a path with the home in place of its `~`; of an unknown user it stays as it is."""
    full = Path(os.path.expanduser(path))  # noqa: PTH111 - `Path.expanduser` raises for that
    # A path drops the `./` of `./~/model.py`, whose `~` the next reader would take for the home.
    return full if str(path).startswith("~") or full.parts[:1] != ("~",) else full.absolute()


def display_path(path: Path) -> str:
    """Return a path as messages name it: short while the user's folder is the process's, too."""
    if STARTED_IN is not None and current_folder() == STARTED_IN:
        with contextlib.suppress(ValueError):
            return str(path.relative_to(STARTED_IN))
    return str(path)


def users_folder(variable: str, *usual: str) -> Path | None:
    """Return what an XDG variable names, else the usual folder in the home; None without a home.

    A relative variable is none, as its specification says.
    """
    configured = Path(os.environ.get(variable, ""))
    if configured.is_absolute():
        return configured
    home = expanded("~")
    has_home = os.environ.get("HOME") != "" and home.is_absolute()
    return home.joinpath(*usual) if has_home else None


def state_folder() -> Path | None:
    """Return the user's folder for what is kept from run to run; None without a home.

    It is TORCHGAUGE_STATE, else `torchgauge` below XDG_STATE_HOME or ~/.local/state.
    """
    if configured := os.environ.get(STATE_VARIABLE):
        return typed(configured)
    base = users_folder("XDG_STATE_HOME", ".local", "state")
    return None if base is None else base / "torchgauge"
