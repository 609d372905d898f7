"""Everything the README shows is run here, and it is one screen long."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest
from tests.support.paths import EXAMPLES, ROOT

README = (ROOT / "README.md").read_text()
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
SHOWN = re.compile(r"^```bash\n(.+?)\n```\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
FAILED = 3  # the exit code of a gate that fails
SCREEN = 70  # lines


class Run(NamedTuple):
    code: int
    text: str  # what was printed, in one line


def one_line(text):
    return " ".join(text.split())


def run(command, folder):
    """Run a command of the README in a folder with the examples."""
    shutil.copytree(EXAMPLES, folder / "examples")
    words = shlex.split(command)
    settings = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    arguments = words[len(settings) :]
    assert arguments[0] == "torchgauge"
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=os.environ | settings | {"TORCHGAUGE_STATE": str(folder / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return Run(done.returncode, one_line(done.stdout))


def shown(verb):
    """Return the command of that verb, and what the README shows of its output."""
    (pair,) = [pair for pair in SHOWN.findall(README) if f"torchgauge {verb} " in pair[0]]
    return pair


def test_it_is_one_screen_long():
    assert len(README.splitlines()) <= SCREEN


def test_every_command_shows_what_it_prints():
    assert README.count("```bash") == len(SHOWN.findall(README)) == 2


@pytest.mark.slow
def test_a_count_prints_what_is_shown(tmp_path):
    command, text = shown("count")
    count = run(command, tmp_path)
    assert count.code == 0
    pattern = ".*".join(re.escape(one_line(part)) for part in text.split("…"))
    assert re.match(pattern, count.text)


@pytest.mark.slow
def test_the_gate_names_the_layer_that_is_shown(tmp_path):
    """Where the machine is too noisy for a verdict, its figures are not compared."""
    command, text = shown("gate")
    gate = run(command, tmp_path)
    assert gate.code in (FAILED, 4), gate.text
    if gate.code == FAILED:
        assert without_numbers(text).issubset(without_numbers(gate.text))


def without_numbers(text):
    """Return the words of a text; rows and units depend on the machine."""
    return set(re.findall(r"(?<![\w.:])[A-Za-z_]{3,}(?![\w.:])", text)) - {"AMD", "EPYC"}


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")))  # those of docs/: tests/docs
def test_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text()):
        assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
