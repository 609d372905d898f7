"""Every verb in every odd surroundings: an exit code of ours, no traceback, nothing left behind."""

from __future__ import annotations

import collections
import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.attack.environments import (
    EXIT_CODES,
    MEASURING,
    RAW,
    READING,
    SURROUNDINGS,
    VERBS,
    Ended,
    Surroundings,
    ended,
    furnish,
)

# The short form: what was odd and broke something once, and verbs that read and write.
SHORT = (
    "no HOME", "removed folder", "closed streams", "full stdout", "no room in files", "few files",
    "mask of all modes",
)  # fmt: skip


@contextlib.contextmanager
def disk(folder: Path, room: int | None) -> Iterator[None]:
    """Mount a disk of so many bytes on the folder, where this may be done."""
    if room is None:
        yield
        return
    command = ["mount", "-t", "tmpfs", "-o", f"size={room}", "torchgauge-test", str(folder)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        if room <= 4096:
            with contextlib.suppress(OSError):
                (folder / "filler").write_bytes(bytes(2 * room))
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def wrong(verb: str, surroundings: Surroundings, done: Ended) -> list[str]:
    """Return what is wrong with how a verb ended."""
    usual = VERBS[verb][1]
    found = []
    if done.code is None:
        found.append("hangs")
    elif done.code not in EXIT_CODES:
        found.append(f"exit code {done.code}")
    elif not surroundings.spoils and done.code != usual:
        found.append(f"exit code {done.code} for {usual}")
    found += [f"says {raw!r}" for raw in RAW if raw in done.output]
    if unnamed := [file for file in done.left if Path(file).name not in done.output]:
        found.append(f"left {sorted(unnamed)}")  # a run that is kept is named in the message
    return [f"{verb}: {what}\n{done.output[-1500:]}" for what in found]


def tried(verbs: dict[str, object], name: str, place: Path) -> list[str]:
    """Run verbs in surroundings, print how they ended, and return what was wrong."""
    surroundings, codes, problems = SURROUNDINGS[name], collections.Counter(), []
    with disk(furnish(place) / "disk", surroundings.room):
        for verb in verbs:
            done = ended(verb, surroundings, place)
            codes[done.code] += 1
            problems += wrong(verb, surroundings, done)
    print(f"{name}: {len(verbs)} verbs, exit codes {dict(codes)}, {len(problems)} problems")
    return problems


@pytest.mark.attack
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_verbs_that_read(tmp_path, name):
    assert not tried(READING, name, tmp_path)


@pytest.mark.attack
@pytest.mark.slow
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_verbs_that_measure(tmp_path, name):
    assert not tried(MEASURING, name, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("name", SHORT)
def test_a_verb_that_reads_and_writes(tmp_path, name):
    assert not tried({"report": READING["report"]}, name, tmp_path)
