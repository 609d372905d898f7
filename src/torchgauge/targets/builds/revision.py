"""A git revision checked out beside the current tree, and how paths map into its work tree."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from torchgauge.errors import InputError
from torchgauge.files import is_file, is_folder
from torchgauge.folders import PACKAGE, expanded, working_folder
from torchgauge.signals import HeldBack
from torchgauge.targets.builds.home import CHECKED_OUT, Home, is_installed
from torchgauge.temporary import temporary_folder

# In a hook git tells its children which repository and index are meant; ours is another.
_HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
_LFS_POINTER = b"version https://git-lfs"
_SCHEMES = ("torchvision:", "timm:", "hf:")


@dataclasses.dataclass(frozen=True)
class Revision:
    """A revision checked out into `tree`, of the repository whose current tree is `root`.

    `notes` say what the reader must know: uncommitted changes, submodules and LFS files that are
    not there. `packages` is the folder of an environment of its own, None where it has none.
    """

    ref: str
    commit: str
    root: Path
    tree: Path
    notes: tuple[str, ...] = ()
    packages: Path | None = None

    @property
    def home(self) -> Home:
        """Where the revision's code lives: this process's paths, led into the work tree."""
        own = () if self.packages is None else (str(self.packages),)
        path = (*own, *(self.inside(entry) for entry in sys.path))
        return Home(path, self.inside(str(working_folder())), str(self.root))

    def inside(self, path: str) -> str:
        """Return the path in the work tree, or as it is where it is none of the repository's.

        Installed packages, the interpreter's own folders and torchgauge stay.
        """
        folder = Path(path or working_folder()).absolute()
        real = folder.resolve()
        if not real.is_relative_to(self.root) or is_installed(real) or real == PACKAGE.parent:
            return path
        prefixes = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
        if any(real.is_relative_to(prefix) for prefix in prefixes - {self.root}):
            return path
        return str(self.tree / real.relative_to(self.root))

    def target(self, spec: str) -> str:
        """Return a target as the work tree has it.

        A folder or file that git does not keep (weights, exported programs) is the same for both.
        Raises InputError `base-absent` for a Python file that the revision does not have.
        """
        file, colon, name = spec.rpartition(":")
        if spec.startswith(_SCHEMES):
            return spec
        if file.endswith(".py"):
            return self._python(file) + colon + name
        return self._python(spec) if spec.endswith(".py") else self.file(spec)

    def file(self, path: str) -> str:
        """Return a file or folder in the work tree where it is kept, else the current one."""
        current_file = expanded(path)
        if not (is_file(current_file) or is_folder(current_file)):
            return path  # a module's name, or a mistake that loading will tell
        base_file = Path(self.inside(str(current_file.absolute())))
        return str(base_file if base_file.exists() else current_file.absolute())

    def _python(self, path: str) -> str:
        base_file = self.inside(str(expanded(path).absolute()))
        if not is_file(Path(base_file)) and is_file(expanded(path)):
            raise InputError(
                f"{path} does not exist at {self.ref}.",
                id="base-absent",
                cause=f"{self.commit[:12]} has no such file.",
                remedy="Give a revision that has it, or name both: --base-target A B.",
            )
        return base_file


@contextlib.contextmanager
def checked_out(ref: str, spec: str = "") -> Iterator[Revision]:
    """Check a revision out into a temporary folder, which is gone after the block.

    The repository is the one of the target's file, else of the current folder. Raises InputError
    `git-missing`, `not-a-repository`, `ref-unknown`, `base-checkout`, `base-absent`.
    """
    start = _start(spec)
    root = Path(_repository(start)).resolve()
    commit = _commit(root, ref)
    with temporary_folder(CHECKED_OUT) as folder:
        tree = folder.resolve() / root.name
        try:
            _add(root, tree, commit, ref)
            if not (tree / start.relative_to(root)).is_dir():
                raise InputError(
                    f"The folder {start} does not exist at {ref}.",
                    id="base-absent",
                    remedy="Give a revision that has it, or run it from a folder that both have.",
                )
            yield Revision(ref, commit, root, tree, tuple(_notes(root, tree)))
        finally:
            with HeldBack():
                _git(root, "worktree", "remove", "--force", "--force", str(tree))
                _git(root, "worktree", "prune")


def _start(spec: str) -> Path:
    file = expanded(spec.rpartition(":")[0] or spec)
    inside = file.suffix == ".py" and is_file(file)
    return (file.absolute().parent if inside else working_folder()).resolve()


def _repository(start: Path) -> str:
    result = _git(start, "rev-parse", "--show-toplevel")
    if result.returncode or not result.stdout.strip():
        raise InputError(
            f"{start} is in no git work tree.",
            id="not-a-repository",
            cause=result.stderr.strip(),
            remedy="Run it in the repository, or name the other build: --base-target A B.",
        )
    return result.stdout.strip()


def _commit(root: Path, ref: str) -> str:
    result = _git(root, "rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}")
    if result.returncode:
        shallow = _git(root, "rev-parse", "--is-shallow-repository").stdout.strip() == "true"
        raise InputError(
            f"git does not know the revision '{ref}'.",
            id="ref-unknown",
            cause="The clone is shallow: most of its history is not here." if shallow else "",
            remedy=f"Fetch it: git fetch --depth=1 origin {ref}, and give --base-ref FETCH_HEAD."
            if shallow
            else "Give a branch, tag or commit that `git rev-parse` finds, such as origin/main.",
        )
    return result.stdout.strip()


def _add(root: Path, tree: Path, commit: str, ref: str) -> None:
    # Its hooks are for people: one could fetch, or build.
    no_hooks = ("-c", f"core.hooksPath={os.devnull}")
    result = _git(root, *no_hooks, "worktree", "add", "--quiet", "--detach", str(tree), commit)
    if result.returncode:
        raise InputError(
            f"'{ref}' could not be checked out.",
            id="base-checkout",
            cause="\n".join(result.stderr.strip().splitlines()[-5:]),
            remedy="Free space, or set TMPDIR to a folder that has some; `git worktree list` "
            "shows what is there.",
        )


def _notes(root: Path, tree: Path) -> Iterator[str]:
    if _git(root, "status", "--porcelain", "--untracked-files=no").stdout.strip():
        yield "The current tree has uncommitted changes; they are part of what is gated."
    listed = _git(tree, "submodule", "status").stdout.splitlines()
    if missing := [line.split()[1] for line in listed if line.startswith("-")]:
        yield f"The base has no submodules: {', '.join(missing)} not checked out there."
    lfs_files = _git(tree, "ls-files", "-z", "--", ":(attr:filter=lfs)").stdout.split("\0")
    if pointers := [name for name in lfs_files if name and _is_pointer(tree / name)]:
        yield f"The base has LFS pointers in place of {', '.join(pointers[:3])}."


def _is_pointer(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(len(_LFS_POINTER)) == _LFS_POINTER
    except OSError:
        return False


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name not in _HOOK_VARIABLES}
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            env={**variables, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        )
    except FileNotFoundError as error:
        raise InputError(
            "git is not installed.",
            id="git-missing",
            cause=str(error),
            remedy="Install git, or name both builds: --base-target A B.",
        ) from error


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
