"""A virtual environment for a revision: its requirements installed beside its work tree."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from torchgauge.errors import InputError
from torchgauge.targets.builds.revision import Revision

LIMIT = 3600.0
_PROJECTS = ("pyproject.toml", "setup.py")


def with_environment(revision: Revision) -> Revision:
    """Build a virtual environment of the revision's requirements, and return it with that.

    It installs `requirements.txt` and the project, where the root has them. Our own interpreter
    runs both sides; the environment's packages come before ours. Raises InputError
    `base-env-empty`, `base-env-failed` with the end of what pip said.
    """
    tree = revision.tree
    requirements: list[str] = []
    if (tree / "requirements.txt").is_file():
        requirements += ["--requirement", str(tree / "requirements.txt")]
    if any((tree / name).is_file() for name in _PROJECTS):
        requirements.append(str(tree))
    if not requirements:
        raise InputError(
            f"{revision.ref} does not say what it needs.",
            id="base-env-empty",
            cause="Its root has neither pyproject.toml, setup.py nor requirements.txt.",
            remedy="Leave --base-env out: both sides then run in this environment.",
        )
    folder = tree.parent / "environment"
    _run([sys.executable, "-m", "venv", str(folder)], "making the environment")
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    _run([*pip, *requirements], "installing into it")
    scheme_variables = {"base": str(folder), "platbase": str(folder)}
    return dataclasses.replace(
        revision, packages=Path(sysconfig.get_path("purelib", "venv", vars=scheme_variables))
    )


def _run(command: list[str], action: str) -> None:
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
    except subprocess.TimeoutExpired as error:
        raise _failed(action, f"It was still running after {LIMIT:.0f} s.") from error
    if completed.returncode:
        raise _failed(action, "\n".join(completed.stdout.strip().splitlines()[-10:]))


def _failed(action: str, cause: str) -> InputError:
    return InputError(
        f"The base's environment could not be built: {action} failed.",
        id="base-env-failed",
        cause=cause,
        remedy="Check that `pip install` of that revision works, or leave --base-env out.",
    )
