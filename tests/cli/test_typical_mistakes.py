"""What a newcomer gets wrong: each mistake is told in few lines, with what to do about it."""

import os
import subprocess
import sys

import pytest
from tests.support.mistakes import MISTAKES, printed, write_files

OF_FORWARD = 1  # the exit code of a record that holds a failure
LINES = 5  # usage, what happened, cause, and two of the remedy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("newcomer")
    write_files(folder)
    return folder


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.command)
def test_a_mistake_is_told_in_few_lines_with_a_remedy(mistake, folder, monkeypatch):
    monkeypatch.chdir(folder)
    code, errors, shown = printed(mistake)
    assert code == mistake.code
    text = f"{shown}{errors}" if code == OF_FORWARD else errors
    assert mistake.tells in text
    assert "torchgauge/" not in text  # no traceback of ours
    if code == OF_FORWARD:
        return  # the record says it, with the user's own traceback above
    lines = errors.splitlines()
    (first,) = [line for line in lines if line.startswith("torchgauge: error: ")]
    assert first.endswith(f" [{mistake.id}]")
    assert any(line.startswith("Remedy: ") for line in lines)
    assert len(lines) <= LINES
    assert sum(line.startswith("usage: ") for line in lines) <= 1


def test_there_are_thirty_of_them_and_more():
    assert len({mistake.command for mistake in MISTAKES}) >= 30


def test_a_wrong_shape_is_told_by_its_layer_without_torchs_own_calls(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (shape,) = [mistake for mistake in MISTAKES if mistake.command.endswith("1x4x8x8")]
    _, errors, shown = printed(shape)
    assert "In conv (Conv2d)" in " ".join(shown.split())
    assert "_call_impl" not in errors


REFUSED_EARLY = (
    "profile models.py:make --batch 0",
    "profile models.py:make --precision fp61",
    "profile models.py:make --device gpu",
    "profile models.py:make --iterations many",
    "profile models.py:make --threshold latncy:5ms",
    "profile models.py:make --precison bf16",
    "gate models.py:make",
    "profle models.py:make",
    "profile",
)


@pytest.mark.parametrize("command", REFUSED_EARLY)
def test_values_of_options_are_refused_before_torch_is_imported(command, folder):
    code = (
        "import sys; from torchgauge.cli.main import main\n"
        f"code = main({command.split()!r})\n"
        "print(code, sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "2 []", done.stderr


@pytest.mark.thorough
def test_the_installed_command_says_the_same(folder):
    done = subprocess.run(
        [sys.executable, "-m", "torchgauge", "profle", "my models.py:make"],
        cwd=folder, capture_output=True, text=True, env={**os.environ}, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "usage: torchgauge VERB [options]",
        "torchgauge: error: There is no verb 'profle'. [verb-unknown]",
        "Remedy: Did you mean: torchgauge profile 'my models.py:make'",
        "        For more: torchgauge --help",
    ]
