"""Errors that name files, keys and arguments of others: no text in them commands the terminal."""

import io
import json
import pickle
import re
import subprocess
import sys
import zipfile

import pytest
from tests.support import records

from torchgauge.cli import output
from torchgauge.cli.main import main
from torchgauge.errors import InputError, TorchgaugeError

EVIL = (
    "w1w\x1b]0;x\x07\x1b[2J\x9b2J\r\n::error::y\n##vso[task.complete]\u202e [forged]\n[forged]w2w"
)
ORDER = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
FORGED = re.compile(r"^(\s*::|\[forged)|##\w*\[", re.MULTILINE)


def said(arguments, capsys, codes=(2,)):
    """Return what a command says on standard error; it ends with one of the codes."""
    code = main(arguments)
    caught = capsys.readouterr()
    assert code in codes, caught
    text = caught.err
    assert not ORDER.search(caught.out + text), text
    assert not FORGED.search(caught.out + text), text
    return text


ARGUMENTS = {
    "verb": [EVIL],
    "option": ["profile", f"--{EVIL}"],
    "choice": ["report", "x.json", "--weight", EVIL],
    "format": ["report", "x.json", "--format", EVIL],
    "number": ["trace", "x.json", "--top", EVIL],
    "time": ["trace", "x.json", "--to", "folded", "--from", EVIL],
    "memory": ["trace", "x.json", "--memory-limit", EVIL],
    "run": ["report", EVIL],
    "trace": ["trace", EVIL],
    "snapshot": ["snapshot", EVIL],
    "compared": ["compare", EVIL, EVIL],
    "target": ["count", EVIL],
    "module": ["count", f"{EVIL}:{EVIL}"],
    "library": ["count", f"timm:{EVIL}"],
    "input": ["count", "tests/support/records.py:x", "--input", EVIL],
    "threshold": ["profile", "tests/support/records.py:x", "--threshold", EVIL],
    "tolerance": ["gate", "x.json", "y.json", "--tolerance", EVIL],
    "store": ["history", "list", "--store", f"/nowhere/{EVIL}"],
    "store's address": ["history", "list", "--store", f"postgresql://{EVIL}"],
    "alerts": ["history", "trend", "--alerts", EVIL],
    "added": ["history", "add", EVIL],
    "label": ["history", "add", "x.json", "--label", EVIL],
    "output": ["report", "x.json", "--output-dir", f"/dev/null/{EVIL}"],
    "html": ["report", "x.json", "--html", f"/dev/null/{EVIL}"],
}


@pytest.mark.parametrize("what", ARGUMENTS)
@pytest.mark.slow
def test_what_was_typed_commands_nothing(what, capsys, tmp_path, monkeypatch):
    text = said(ARGUMENTS[what], capsys)
    assert "error: " in text


def traces():
    """Yield files that are refused, each with a stranger's text where a message may quote it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(f"{EVIL}.json", "{")
        archive.writestr(f"{EVIL}2.json", "{")
    yield "members.zip", packed.getvalue(), ["trace"]
    yield "schema.json", json.dumps({"schema": EVIL}).encode(), ["report"]
    yield (
        "field.json",
        json.dumps({"schema": "torchgauge.profile/1", EVIL: EVIL}).encode(),
        ["report"],
    )
    yield "newer.json", json.dumps({"schema": f"torchgauge.{EVIL}/9"}).encode(), ["report"]
    yield "keys.pickle", pickle.dumps({EVIL: EVIL}), ["snapshot"]
    yield "class.pickle", f"c{EVIL.splitlines()[0]}\nx\n.".encode(), ["snapshot"]
    bad = {"segments": [{EVIL: 1}], "device_traces": [], "allocator_settings": {EVIL: EVIL}}
    yield "segment.pickle", pickle.dumps(bad), ["snapshot"]
    yield (
        "event.json",
        json.dumps({"traceEvents": [{"ph": "X", "name": EVIL, "ts": EVIL}]}).encode(),
        ["trace"],
    )
    quoted = json.dumps(EVIL)
    for name, content in {
        "rule": f"[[alert]]\n{quoted} = 1\n",
        "metric": f"[[alert]]\nname = {quoted}\nmetric = {quoted}\n",
        "table": f"[{quoted}]\nx = 1\n",
        "broken": EVIL,
    }.items():
        yield (
            f"{name}.toml",
            content.encode("utf-8", "backslashreplace"),
            ["history", "trend", "--alerts"],
        )


FILES = {name: (content, verb) for name, content, verb in traces()}


@pytest.mark.parametrize("name", FILES)
def test_what_a_file_holds_commands_nothing(name, capsys, tmp_path):
    content, verb = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    said([*verb, str(path)], capsys, codes=(0, 2))  # some can be shown


def test_what_a_models_weights_are_called_commands_nothing(capsys, tmp_path):
    import torch

    (tmp_path / "net.py").write_text(
        "import torch\ndef make(): return torch.nn.Linear(2, 2), (torch.ones(1, 2),)\n"
    )
    torch.save({EVIL: torch.ones(3)}, tmp_path / "weights.pt")
    text = said(
        ["count", f"{tmp_path / 'net.py'}:make", "--weights", str(tmp_path / "weights.pt")], capsys
    )
    assert "w1w" in text


def test_the_parts_of_an_error_alone_begin_a_line():
    error = InputError(EVIL, id="real", cause=f"one\n{EVIL}", remedy=EVIL)
    lines = str(error).splitlines()
    assert [
        line for line in lines if not line.startswith((" ", "w1w", "Cause: ", "Remedy: "))
    ] == []
    assert sum(line.startswith("Cause: ") for line in lines) == 1
    assert not ORDER.search(str(error))
    assert (error.message, error.remedy) == (EVIL, EVIL)  # as data it is as it was given
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert isinstance(error, TorchgaugeError)


def test_an_error_that_nobody_catches_commands_nothing():
    code = f"from torchgauge.errors import InputError; raise InputError({EVIL!r}, id='real')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert not ORDER.search(done.stderr.decode())
    assert b"w1w" in done.stderr


@pytest.mark.thorough
def test_a_users_exception_commands_nothing(capsys, tmp_path):
    (tmp_path / "net.py").write_text(f"def make(): raise ValueError({EVIL!r})\n")
    text = said(["count", f"{tmp_path / 'net.py'}:make"], capsys)
    assert "ValueError: w1w" in text
    assert "w2w" in text


def test_what_is_told_is_one_line(capsys):
    output.tell(f"Wrote {EVIL}")
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert not ORDER.search(text)
    assert not FORGED.search(text)


def test_the_name_of_a_written_file_is_one_line(capsys, tmp_path):
    path = records.profile().save(tmp_path / "run.json")
    folder = tmp_path / "evil\n[forged]\x1b[2J"
    assert main(["report", str(path), "--output-dir", str(folder)]) == 0
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert not ORDER.search(text)
