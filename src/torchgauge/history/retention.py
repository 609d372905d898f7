"""Which runs a history need not keep."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from torchgauge.errors import InputError, StoreError
from torchgauge.files import is_file, is_folder
from torchgauge.folders import users_folder, working_folder
from torchgauge.history.faults import query_timeout
from torchgauge.records.run import Facts, Run


def superfluous(
    runs: Sequence[Run], *, keep_last: int | None = None, before: str | None = None
) -> list[Run]:
    """Return the runs that may go: not among the newest `keep_last` of their kind, and older.

    Kinds are target, branch, workload and machine; the newest run of each stays always. `before`
    is a time as `Run.created`. `runs` are oldest first; with neither limit nothing may go.
    """
    if keep_last is None and before is None:
        return []
    later: dict[tuple[str, ...], int] = {}
    removable = []
    for run in reversed(runs):
        kind = (run.target, run.branch, run.workload, run.machine)
        newer = later.get(kind, 0)
        later[kind] = newer + 1
        if newer >= max(keep_last or 1, 1) and (before is None or run.created < before):
            removable.append(run)
    return removable[::-1]


# A CI job checks out a commit, not a branch; its service says which branch was meant.
BRANCH_VARIABLES = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME")
_PATIENCE = 10.0


def git_facts(folder: Path | None = None) -> Facts:
    """Return commit, branch, its message's first line and whether tracked files differ from it.

    All is empty outside of a repository, without git, and where git does not answer in 10 s.
    """
    repository = folder or working_folder()
    commit = _git(repository, "rev-parse", "HEAD")
    if not commit:
        return Facts()
    branch = _git(repository, "symbolic-ref", "--short", "--quiet", "HEAD") or ""
    ci_branches = (os.environ.get(name, "") for name in BRANCH_VARIABLES)
    changed = _git(repository, "status", "--porcelain", "--untracked-files=no")
    return Facts(
        commit=commit,
        branch=branch or next(filter(None, ci_branches), ""),
        dirty=None if changed is None else bool(changed),
        message=_git(repository, "log", "-1", "--format=%s") or "",
    )


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints, None where it fails."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace").strip()


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


# No write waits longer, in seconds; what could not be written by then is kept in a file.
LONGEST_WAIT = 30.0
# One try waits so long inside the database; pauses between tries are drawn up to as much.
ONE_TRY = 0.05

Result = TypeVar("Result")


def patiently(
    work: Callable[[], Result],
    *,
    longest: float = LONGEST_WAIT,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    draw: Callable[[float, float], float] = random.uniform,
) -> Result:
    """Return what `work` returns; while the store is busy it is tried again.

    That lasts `longest` seconds, or a shorter TORCHGAUGE_STORE_TIMEOUT. Pauses are random: writers
    that failed together do not come back together. Raises StoreError `store-busy` at the end, and
    at once whatever else `work` raises; InputError `store-timeout-invalid`.
    """
    longest = min(longest, query_timeout())
    begun = now()
    while True:
        try:
            return work()
        except StoreError as error:
            if error.id != "store-busy" or now() - begun >= longest:
                raise
        sleep(min(draw(0.001, ONE_TRY), max(longest - (now() - begun), 0.0)))
