"""Standard output that is closed, full, or of an encoding without our signs."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import records

from torchgauge.cli.output import emit, emit_bytes

FULL = Path("/dev/full")


def gated(folder, redirected, **variables):
    """Gate a record against itself in a shell, which redirects; return how it ended."""
    records.profile().save(folder / "run.json")
    command = f"'{sys.executable}' -m torchgauge gate --baseline run.json run.json {redirected}"
    return subprocess.run(
        command, shell=True, cwd=folder, env={**os.environ, **variables}, check=False,
        capture_output=True,
    )  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.slow)])
def test_an_encoding_without_our_signs_costs_signs_and_no_verdict(tmp_path, encoding):
    done = gated(tmp_path, "", PYTHONIOENCODING=encoding)
    assert done.returncode == 4, done.stderr
    assert b"INCONCLUSIVE" in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("closed", [">&- 2>&-", pytest.param(">&-", marks=pytest.mark.slow)])
def test_closed_streams_cost_no_verdict(tmp_path, closed):
    assert gated(tmp_path, closed).returncode == 4


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_a_full_disk_is_named(tmp_path):
    done = gated(tmp_path, f"> {FULL}")
    assert done.returncode == 2
    assert b"[output-unwritable]" in done.stderr
    assert b"Exception ignored" not in done.stderr


class Terminal(io.TextIOWrapper):
    """Standard output that says it is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [Terminal, io.TextIOWrapper])
def test_only_a_terminal_is_kept_from_what_would_command_it(monkeypatch, stream):
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", stream(out, encoding="utf-8"))
    emit("name,\x1b[2J\nnext\n")
    emit_bytes([b"\xe4\xb8", b"\xad\x1b]0;x\x07 1\n"])
    told = out.getvalue().decode()
    if stream is Terminal:
        assert told == "name,\\x1b[2J\nnext\n中\\x1b]0;x\\x07 1\n"
    else:
        assert told == "name,\x1b[2J\nnext\n中\x1b]0;x\x07 1\n"
