"""Everything the README shows is run here."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from tests.support.paths import EXAMPLES, ROOT

README = (ROOT / "README.md").read_text()
LINK = re.compile(r"\]\(([^)#:]+)\)")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


COMMANDS = [line for block in blocks("bash") for line in block.splitlines() if line]
# Large models, several processes: half a minute and more.
LONG = (
    "hf:",
    "timm:",
    "--processes",
    "--roofs",
    "--train",
    "--depth 1 --top",
    "mobilenet",
    "sweep",
)


def marks(command):
    if any(word in command for word in LONG):
        return [pytest.mark.slow]
    return [] if command.startswith("torchgauge count") else [pytest.mark.thorough]


def test_the_readme_shows_something():
    assert len(COMMANDS) >= 6
    assert len(blocks("python")) >= 2


@pytest.mark.parametrize(
    "command",
    [pytest.param(line, marks=marks(line)) for line in COMMANDS],
)
def test_commands(command, tmp_path):
    words = shlex.split(command)
    assert words[0] == "torchgauge"
    (tmp_path / "examples").symlink_to(EXAMPLES)
    if words[1] == "profile" and "--iterations" not in words and "--budget" not in words:
        words += ["--budget", "3"]
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=tmp_path,
        env=os.environ | {"TORCHGAUGE_STATE": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"sweep": "samples/s"}.get(words[1], "parameters") in done.stdout
    if "--output-dir" in words:
        assert {p.name for p in (tmp_path / "results").iterdir()} == {"profile.json", "profile.csv"}


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("sh"))
def test_commands_that_build_on_each_other(block, tmp_path):
    """In a git repository with the examples; a gate's verdict on a noisy machine may be any."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    environment = os.environ | {"TORCHGAUGE_STATE": str(tmp_path / "state")}
    environment.pop("TORCHGAUGE_STORE", None)
    for command in block.splitlines():
        words = shlex.split(command)
        if words[1] == "profile":
            words += ["--budget", "3"]
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        allowed = (0, 3, 4, 5) if words[1] == "gate" else (0,)
        assert done.returncode in allowed, command + done.stdout + done.stderr
        assert done.stdout + done.stderr, command  # `history add` tells on standard error
    assert (tmp_path / "changes.html").exists()


@pytest.mark.parametrize("code", blocks("python"))
@pytest.mark.thorough
def test_python(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_figures_in_the_comments_are_true():
    import torch

    import torchgauge as tg

    model = torch.nn.Sequential(
        torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
    )
    assert f"# {tg.measure_size(model).parameters}," in README


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")))  # those of docs/: tests/docs
def test_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text()):
        assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
