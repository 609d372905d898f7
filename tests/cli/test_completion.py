"""`torchgauge --completion SHELL`: the script, in the shells themselves."""

import os
import pty
import select
import shutil
import subprocess
import time

import pytest

from torchgauge.cli.main import VERBS, main

ASKED = {
    "torchgauge pro": {"profile"},
    "torchgauge ": {*VERBS},
    "torchgauge history pr": {"prune"},
    "torchgauge gate --base": {"--base-ref", "--base-env", "--base-target", "--baseline"},
    "torchgauge gate --base-env ": {"this", "build"},
    "torchgauge history export --format ": {"jsonl", "csv"},
    "torchgauge --completion ": {"bash", "zsh", "fish"},
    "torchgauge profile mod": {"model.py"},
    "torchgauge trace rec": {"recorded.json"},
    "torchgauge profile x --output-dir fol": {"folder"},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "model.py").touch()
    (tmp_path / "recorded.json").touch()
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def script(shell, folder, capsys):
    """Write the script to a file and return its path."""
    with pytest.raises(SystemExit) as ended:
        main(["--completion", shell])
    assert ended.value.code == 0
    path = folder / f"completion.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


def printed(*command):
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return {line.split("\t")[0].strip().rstrip("/") for line in done.stdout.splitlines()} - {""}


BASH = """
source "$1"; line=$2
read -ra COMP_WORDS <<< "$line"; [[ $line == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_LINE=$line; COMP_POINT=${#line}
function=$(complete -p torchgauge | grep -o -- '-F [^ ]*'); ${function#-F }
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(folder, capsys):
    path = script("bash", folder, capsys)
    for line, expected in ASKED.items():
        proposals = printed("bash", "--norc", "-c", BASH, "bash", path, line)
        options = {text for text in proposals if text.startswith("-")}
        assert expected <= proposals, line
        assert "--base" in line or proposals - options == expected, line


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(folder, capsys):
    path = script("fish", folder, capsys)
    for line, expected in ASKED.items():
        proposals = printed("fish", "--no-config", "-c", f"source {path}; complete -C '{line}'")
        options = {text for text in proposals if text.startswith("-")}
        assert expected <= proposals, line
        assert "--base" in line or proposals - options == expected, line


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("torchgauge pro", "torchgauge profile "),
        ("torchgauge history pr", "torchgauge history prune "),
        ("torchgauge gate --base-e", "torchgauge gate --base-env"),
        ("torchgauge history export --format j", "torchgauge history export --format jsonl "),
        ("torchgauge profile mod", "torchgauge profile model.py "),
    ],
)
def test_zsh_completes(folder, capsys, line, completed):
    path = script("zsh", folder, capsys)
    screen = typed(
        ["zsh", "-f", "-i"],
        f"PS1=; autoload -Uz compinit; compinit -u -D; eval \"$(<{path})\"; echo rea''dy\r",
        f"{line}\t",
        completed,
    )
    assert completed in screen


def typed(command, setup, keys, expected):
    """Return what a shell on a terminal shows after `keys`, at the latest when `expected` is."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(command[0], command, os.environ | {"TERM": "dumb"})
    try:
        os.write(terminal, setup.encode())
        shown_until(terminal, "ready\r\n")
        os.write(terminal, keys.encode())
        return shown_until(terminal, expected)
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def shown_until(terminal, expected, timeout=20):
    screen, end = "", time.monotonic() + timeout
    while expected not in screen and time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            screen += os.read(terminal, 4096).decode(errors="replace")
    return screen


def test_a_shell_that_is_none_of_ours_is_refused(capsys):
    assert main(["--completion", "bsh"]) == 2
    said = capsys.readouterr()
    assert "Did you mean: torchgauge --completion bash" in said.err
    assert said.out == ""
