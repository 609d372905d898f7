"""Facts from git about a working directory: the commit that a run is of."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from torchgauge.folders import working_folder
from torchgauge.records.run import Facts

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
