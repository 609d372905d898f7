"""Environments beside this one: another interpreter, and those made of what pip is to install."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import msgspec

from torchgauge.errors import InputError, option_conflict
from torchgauge.files import check_file, is_file, is_folder
from torchgauge.folders import PACKAGE, cache_folder, expanded, typed, working_folder
from torchgauge.targets.builds.home import Home
from torchgauge.targets.builds.revision import Revision
from torchgauge.temporary import temporary_folder
from torchgauge.version import DISTRIBUTION, version

OLDEST = (3, 11)
# What a measuring process imports. All but torch may be this environment's.
NEEDS = ("torch", "cloudpickle", "msgspec", "numpy", "psutil", "scipy")
_QUESTION = """
import json, sys
from importlib.machinery import EXTENSION_SUFFIXES as suffixes
from importlib.util import find_spec
absent = [name for name in sys.argv[1:] if find_spec(name) is None]
facts = dict(version=sys.version_info[:2], path=sys.path, suffixes=suffixes, absent=absent)
print(json.dumps(facts))
"""
LIMIT = 3600.0


@dataclasses.dataclass(frozen=True)
class Environment:
    """Where the base runs: by the interpreter `python`, None for this one.

    Of `requirements`, a file of pip's, that makes an environment. `build` installs what a revision
    requires, and its packages come before this environment's.
    """

    python: str | None = None
    requirements: str | None = None
    build: bool = False

    def __post_init__(self) -> None:
        if self.build and self.label:
            raise option_conflict(
                "--base-env build makes an environment, and another one is named.",
                "Leave --base-env, or --base-python and --base-requirements out.",
            )

    @property
    def label(self) -> str:
        """What tells it from this environment; "" where it is this one."""
        return self.requirements or self.python or ""


class _Interpreter(msgspec.Struct, frozen=True):
    """What an interpreter has: which of our needs are absent, which compiled modules it loads."""

    version: tuple[int, int]
    path: tuple[str, ...]
    suffixes: list[str]
    absent: tuple[str, ...]

    def package(self, name: str) -> Path | None:
        """Return the folder of a package of this environment that it can load, None without one."""
        spec = None if name == "torch" else importlib.util.find_spec(name)
        folder = Path(str(spec.origin)).parent if spec is not None else None
        if folder is None or self.suffixes == EXTENSION_SUFFIXES:
            return folder
        compiled = any(file.suffix in (".so", ".pyd") for file in folder.rglob("*"))
        return None if compiled else folder


@contextlib.contextmanager
def environment_home(environment: Environment, *, by_value: bool = False) -> Iterator[Home | None]:
    """Yield the home in which another environment measures, None for this one.

    torchgauge is carried there. The path is what stands before the standard library here, which is
    the user's (the script's folder, PYTHONPATH), then the interpreter's own, then what torchgauge
    needs and is absent there. Models that travel `by_value` ask for this Python's version.

    Raises InputError `base-python-version`, `base-python-lacks`, `base-env-failed`, `file-missing`,
    `output-unwritable`.
    """
    if not environment.label:
        yield None
        return
    python = environment.python or sys.executable
    python = str(typed(shutil.which(expanded(python)) or python))
    if environment.requirements is not None:
        python = _requirements_python(expanded(environment.requirements), python)
    interpreter = _interpreter(python, by_value=by_value)
    packages = {name: interpreter.package(name) for name in interpreter.absent}
    if lacking := " ".join(name for name, package in packages.items() if package is None):
        raise InputError(
            f"{python} lacks {lacking}.",
            id="base-python-lacks",
            cause="torchgauge measures there, and cannot bring along what is compiled.",
            remedy=f"Add to {environment.requirements}: {lacking}"
            if environment.requirements
            else f"{python} -m pip install {lacking}",
        )
    library = sysconfig.get_path("stdlib")
    users = sys.path[: sys.path.index(library)] if library in sys.path else []
    with temporary_folder() as folder:
        package_folder, needs = folder / "torchgauge", folder / "needs"
        metadata = (
            package_folder / f"{DISTRIBUTION.replace('-', '_')}-{version()}.dist-info" / "METADATA"
        )
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {version()}\n")
        (package_folder / "torchgauge").symlink_to(PACKAGE)
        needs.mkdir()
        for name, package in packages.items():
            (needs / name).symlink_to(str(package))
        path = (str(package_folder), *users, *filter(None, interpreter.path), str(needs))
        yield Home(path, str(working_folder()), python=python)


def _interpreter(python: str, *, by_value: bool) -> _Interpreter:
    """Ask an interpreter what it is and has."""
    action = f"asking {python} what it is"
    last_line = _run([python, "-c", _QUESTION, *NEEDS], action).strip().rpartition("\n")[2]
    try:
        interpreter = msgspec.json.decode(last_line, type=_Interpreter)
    except msgspec.MsgspecError as error:
        raise _failed(action, str(error)) from error
    needed = sys.version_info[:2] if by_value else OLDEST
    if interpreter.version < needed or (by_value and interpreter.version != needed):
        is_version, asked_for = (".".join(map(str, v)) for v in (interpreter.version, needed))
        raise InputError(
            f"{python} is Python {is_version}.",
            id="base-python-version",
            cause="Models travel by value between equal versions alone." if by_value else "",
            remedy=f"Give {'a' if by_value else 'at least'} Python {asked_for}.",
        )
    return interpreter


def _requirements_python(requirements: Path, python: str) -> str:
    """Return the interpreter of an environment of what a file asks pip for, made by `python`.

    It is kept in the user's cache, and made anew where the file names files, which may be others.
    """
    check_file(requirements, "file of requirements")
    text = requirements.read_text(errors="replace")
    digest = hashlib.sha256(f"{Path(python).resolve()}\n{text}".encode()).hexdigest()
    folder = cache_folder() / "environments" / digest[:16]
    named = [requirements.parent / word for word in text.replace("=", " ").split()]
    if any(is_file(path) or is_folder(path) for path in named):
        shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        new = folder.with_name(f"{folder.name}.{os.getpid()}")
        try:
            _install(new, ["--requirement", str(requirements)], python)
            with contextlib.suppress(OSError):  # another run was quicker
                new.rename(folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return str(_python(folder))


def revision_packages(revision: Revision) -> str:
    """Return the folder of packages of an environment built of what a revision requires.

    It installs `requirements.txt` and the project, where the root has them, beside the work tree.
    Raises InputError `base-env-failed` with the end of what pip said.
    """
    tree = revision.tree
    requirements: list[str] = []
    if (tree / "requirements.txt").is_file():
        requirements += ["--requirement", str(tree / "requirements.txt")]
    if any((tree / name).is_file() for name in ("pyproject.toml", "setup.py")):
        requirements.append(str(tree))
    folder = tree.parent / "environment"
    _install(folder, requirements, sys.executable)
    scheme_variables = {"base": str(folder), "platbase": str(folder)}
    return sysconfig.get_path("purelib", "venv", vars=scheme_variables)


def _python(folder: Path) -> Path:
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def _install(folder: Path, requirements: list[str], python: str) -> None:
    _run([python, "-m", "venv", str(folder)], "making it")
    pip = [str(_python(folder)), "-m", "pip", "install", "--disable-pip-version-check"]
    _run([*pip, "--no-input", *requirements], "installing into it")


def _run(command: list[str], action: str) -> str:
    # An environment that is active for us would be the one that pip installs into.
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        completed = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=LIMIT,
            env=variables,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failed(action, str(error)) from error
    if completed.returncode:
        lines = completed.stdout.strip().splitlines()
        errors = [line for line in lines if line.startswith("ERROR:")]
        raise _failed(action, "\n".join((errors or lines)[-10:]))
    return completed.stdout


def _failed(action: str, cause: str) -> InputError:
    return InputError(
        f"The base's environment cannot be used: {action} failed.",
        id="base-env-failed",
        cause=cause,
        remedy="Check that the same works in a shell, or leave the other environment out.",
    )
