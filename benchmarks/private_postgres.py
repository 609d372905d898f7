"""A PostgreSQL server of one's own, for as long as a block runs: no port, no other users."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("initdb", "pg_ctl", "postgres")


def missing() -> str:
    """Return why there can be no server here, empty where there can."""
    if absent := [name for name in PROGRAMS if _program(name) is None]:
        return f"PostgreSQL's {', '.join(absent)} not found"
    if os.geteuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres or nobody"
    return ""


@contextlib.contextmanager
def server(*settings: str) -> Iterator[str]:
    """Yield the URL of a new, empty database; the server and its files are gone afterwards."""
    # Not below a test's folder: sockets have short names, and another user must get there.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    data, log = folder / "data", folder / "log"
    if os.geteuid() == 0:
        shutil.chown(folder, _user())
    options = " ".join(f"-c {setting}" for setting in ("listen_addresses=''", *settings))
    try:
        _run("initdb", "-D", data, "-U", "torchgauge", "-A", "trust", "--no-sync", "-E", "UTF8")
        _run("pg_ctl", "-D", data, "-l", log, "-w", "-o", f"-k {folder} {options}", "start")
        try:
            yield f"postgresql://torchgauge@/postgres?host={folder}"
        finally:
            _run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _run(name: str, *arguments: object) -> None:
    user = _user() if os.geteuid() == 0 else None
    command = [str(_program(name)), *map(str, arguments)]
    subprocess.run(command, check=True, user=user, cwd="/", stdout=subprocess.DEVNULL)


def _program(name: str) -> str | None:
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, installed)]))


def _user() -> str | None:
    import pwd

    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)
