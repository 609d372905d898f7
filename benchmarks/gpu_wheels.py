"""Make a folder of wheels of what a machine without a network lacks to run torchgauge.

    python3 -m pip list > packages.txt                            # on that machine
    python benchmarks/gpu_wheels.py --present packages.txt        # here, with a network
    python3 -m pip install --no-index --no-deps --target site wheels/*.whl   # on that machine

The requirements are those of pyproject.toml, and what they require in turn, on that machine's
Python and platform. What it has in a version that suffices is left out, without `--present`
nothing.
"""

from __future__ import annotations

import argparse
import email
import functools
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
# A wheel names the oldest glibc that it runs with, and pip wants each name spelt out.
NEWEST_GLIBC, OLDEST_GLIBC = 39, 5
LEGACY = ("manylinux2014", "manylinux2010", "manylinux1")


def main() -> int:
    """Download the wheels, and print how large they are."""
    options = arguments()
    have = present(options.present.read_text()) if options.present else {}
    target = environment(options.python, options.machine)
    wanted = required(options.extra, target)
    options.out.mkdir(parents=True, exist_ok=True)
    for older in options.out.glob("*.whl"):
        older.unlink()
    for wheel in downloaded(wanted, have, target, options.out):
        print(f"{wheel.stat().st_size / 2**20:7.2f} MiB  {wheel.name}")
    size = sum(wheel.stat().st_size for wheel in options.out.glob("*.whl"))
    print(f"{size / 2**20:7.2f} MiB  together, in {options.out}")
    return 0


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--present",
        type=Path,
        help="what that machine's `pip list` or `pip freeze` prints, or names",
    )
    parser.add_argument("--extra", action="append", default=[], help="of pyproject.toml, with it")
    parser.add_argument("--python", default="3.12", help="that machine's (default 3.12)")
    parser.add_argument("--machine", default="x86_64", help="its processor (default x86_64)")
    parser.add_argument("--out", type=Path, default=Path("wheels"), help="its wheels are replaced")
    return parser.parse_args()


def present(listing: str) -> dict[str, str]:
    """Return the version of each package in a list by name; "" where the list has none.

    A list of names alone may have commas.
    """
    found: dict[str, str] = {}
    for entry in re.split(r"[,\n]", listing):
        first, *more = entry.replace("==", " ").split() or ["#"]
        if first in ("Package", "#") or first.startswith("-"):
            continue
        version = more[0] if more and more[0][0].isdigit() else ""
        names = [first] if version or "@" in more else [first, *more]
        found |= {canonicalize_name(name.rstrip(".")): version for name in names}
    return found


def environment(python: str, machine: str) -> dict[str, str]:
    """Return what the markers of requirements are evaluated with."""
    return {
        "implementation_name": "cpython", "os_name": "posix", "platform_machine": machine,
        "platform_python_implementation": "CPython", "platform_system": "Linux", "extra": "",
        "python_full_version": f"{python}.0", "python_version": python, "sys_platform": "linux",
    }  # fmt: skip


def required(extras: Iterable[str], target: dict[str, str]) -> list[Requirement]:
    """Return the requirements of pyproject.toml and of some extras, which may name others."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found, wanted = list(applying(project["dependencies"], target)), list(extras)
    for extra in wanted:
        for requirement in applying(project["optional-dependencies"][extra], target):
            if requirement.name == project["name"]:
                wanted += sorted(requirement.extras - set(wanted))
            else:
                found.append(requirement)
    return found


def applying(
    texts: Iterable[str], target: dict[str, str], extras: Iterable[str] = ()
) -> Iterator[Requirement]:
    """Yield the requirements whose markers hold on the target, if need be with an extra."""
    for requirement in map(Requirement, texts):
        marker = requirement.marker
        if marker is None or any(marker.evaluate(target | {"extra": e}) for e in ("", *extras)):
            yield requirement


def downloaded(
    wanted: list[Requirement], have: dict[str, str], target: dict[str, str], folder: Path
) -> Iterator[Path]:
    """Download what is wanted and not there, with what it requires, and yield each wheel.

    A wheel that a later requirement does not allow is downloaded again, within all of them.
    """
    allowed: dict[str, SpecifierSet] = defaultdict(SpecifierSet)
    wheels: dict[str, Path] = {}
    done: set[tuple[Path | str, ...]] = set()
    while wanted:
        requirement = wanted.pop(0)
        name = canonicalize_name(requirement.name)
        allowed[name] &= requirement.specifier
        suffices = functools.partial(allowed[name].contains, prereleases=True)
        if name in have and (not have[name] or suffices(have[name])):
            continue
        if name in wheels and not suffices(wheels[name].name.split("-")[1]):
            wheels.pop(name).unlink()
        if name not in wheels:
            wheels[name] = download(f"{name}{allowed[name]}", target, folder)
        followed = (wheels[name], *sorted(requirement.extras))
        if followed not in done:
            done.add(followed)
            wanted += applying(requires(wheels[name]), target, requirement.extras)
    yield from (wheels[name] for name in sorted(wheels))


def download(requirement: str, target: dict[str, str], folder: Path) -> Path:
    """Download one wheel for the target, without what it requires."""
    glibcs = range(NEWEST_GLIBC, OLDEST_GLIBC - 1, -1)
    names = [*(f"manylinux_2_{glibc}" for glibc in glibcs), *LEGACY]
    platforms = [f"--platform={name}_{target['platform_machine']}" for name in names]
    with tempfile.TemporaryDirectory(dir=folder) as empty:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", empty,
             "--only-binary=:all:", "--python-version", target["python_version"],
             "--implementation", "cp", *platforms, requirement],
            check=True,
        )  # fmt: skip
        (wheel,) = Path(empty).iterdir()
        return wheel.rename(folder / wheel.name)


def requires(wheel: Path) -> list[str]:
    """Return the requirements that a wheel's metadata have."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    return metadata.get_all("Requires-Dist") or []


if __name__ == "__main__":
    sys.exit(main())
