"""What a real terminal gets: colours that it takes as colours, at any width that it may claim."""

import os
import pty
import re
import sys

import pytest
from tests.support import exported_records

COMMANDS = {
    "help": ["--help"],
    "help of a verb": ["profile", "--help"],
    "a result": ["report", "count.json"],
    "a usage error": ["profile", "--bogus"],
}
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(autouse=True)
def _count(tmp_path, monkeypatch):
    exported_records.count().save(tmp_path / "count.json")
    monkeypatch.chdir(tmp_path)


def on_terminal(arguments, **environment):
    """Return what the command writes to a terminal of its own."""
    read = []
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(environment)
        os.execv(sys.executable, [sys.executable, "-m", "torchgauge", *arguments])
    try:
        while data := os.read(terminal, 65536):
            read.append(data)
    except OSError:  # how a terminal ends on Linux
        pass
    os.waitpid(child, 0)
    os.close(terminal)
    return b"".join(read).decode()


@pytest.mark.parametrize("name", COMMANDS)
def test_no_code_of_a_colour_is_to_be_read(name):
    text = on_terminal(COMMANDS[name], COLUMNS="80", TERM="xterm-256color")
    assert CODES.search(text) or name == "a usage error"
    assert r"\x1b" not in text
    lines = CODES.sub("", text).replace("\r", "").splitlines()
    assert max(map(len, lines[:3])) <= 80


@pytest.mark.parametrize(
    "columns",
    [
        "99999999999999999999",
        "0",
        *(pytest.param(width, marks=pytest.mark.thorough) for width in ("1", "-7", "wide")),
    ],
)
def test_any_width_is_taken(columns):
    text = on_terminal(COMMANDS["a result"], COLUMNS=columns, TERM="xterm-256color")
    assert "Traceback" not in text
    assert "FLOPs" in CODES.sub("", text)
