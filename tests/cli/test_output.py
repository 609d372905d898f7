"""Standard output that is closed, full, or of an encoding without our signs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.model import records

FULL = Path("/dev/full")


def gated(folder, redirected, **variables):
    """Gate a record against itself in a shell, which redirects; return how it ended."""
    records.profile().save(folder / "run.json")
    command = f"'{sys.executable}' -m torchgauge gate --baseline run.json run.json {redirected}"
    return subprocess.run(
        command, shell=True, cwd=folder, env={**os.environ, **variables}, check=False,
        capture_output=True,
    )  # fmt: skip


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_our_signs_costs_signs_and_no_verdict(tmp_path, encoding):
    done = gated(tmp_path, "", PYTHONIOENCODING=encoding)
    assert done.returncode == 4, done.stderr
    assert b"INCONCLUSIVE" in done.stdout


def test_closed_streams_cost_no_verdict(tmp_path):
    assert gated(tmp_path, ">&-").returncode == 4
    assert gated(tmp_path, ">&- 2>&-").returncode == 4


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_a_full_disk_is_named(tmp_path):
    done = gated(tmp_path, f"> {FULL}")
    assert done.returncode == 2
    assert b"[output-unwritable]" in done.stderr
    assert b"Exception ignored" not in done.stderr
