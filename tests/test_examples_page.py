"""Every command of examples/README.md is run, and every example is in its table."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from tests.support.paths import EXAMPLES

PAGE = (EXAMPLES / "README.md").read_text()
COMMANDS = re.findall(r"\| `((?:python|torchgauge) [^`]+)` \|$", PAGE, re.MULTILINE)
# Under a second of work, besides importing torch.
QUICK = ("python examples/train.py",)


def test_the_table_has_every_example():
    names = {path.name + "/" * path.is_dir() for path in EXAMPLES.iterdir() if path.name[0] != "_"}
    assert {name for name in names if f"| `{name}` |" in PAGE} == names - {"README.md"}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            line, marks=[pytest.mark.thorough if line.startswith(QUICK) else pytest.mark.slow]
        )
        for line in COMMANDS
    ],
)
def test_commands(command, tmp_path):
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    program, *words = shlex.split(command)
    if words[0] == "profile" and "--iterations" not in words:
        words += ["--budget", "2"]
    done = subprocess.run(
        [sys.executable, *(["-m", program] if program == "torchgauge" else []), *words],
        cwd=tmp_path,
        env=os.environ | {"TORCHGAUGE_STATE": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


def test_each_file_shows_commands_of_the_table():
    for path in EXAMPLES.glob("*.py"):
        shown = re.findall(r"^    ((?:python|torchgauge) .*)$", path.read_text(), re.MULTILINE)
        assert shown
        for command in shown:
            assert any(line.startswith(command.split(" --")[0]) for line in COMMANDS), command


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (EXAMPLES / link).exists(), link
