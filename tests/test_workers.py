"""Worker processes: what they get, and that none outlives its block."""

import os
import signal

import psutil
import pytest

from torchgauge.workers import NOWHERE, killed_after, worker


@pytest.fixture
def script(tmp_path):
    """Return how to write a script beside a module that must not hide the library's."""
    tmp_path.joinpath("json.py").write_text("raise RuntimeError")

    def written(code):
        path = tmp_path / "work.py"
        path.write_text(f"import json, os, sys\n{code}")
        return path

    return written


def test_a_worker_has_its_arguments_variables_and_pipes(script):
    path = script("json.dump([sys.argv[1:], os.environ['ADDED'], sys.stdin.read()], sys.stdout)")
    with worker(path, "a", "b", variables={"ADDED": "yes"}) as child:
        output, _ = child.communicate(b"sent", 60)
    assert output == b'[["a", "b"], "yes", "sent"]'
    assert "ADDED" not in os.environ
    assert child.returncode == 0


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, ValueError])
def test_a_worker_is_gone_after_its_block_however_that_ends(script, error):
    with pytest.raises(error) if error else pytest.MonkeyPatch.context():  # noqa: SIM117
        with worker(script("sys.stdin.read()"), stdout=NOWHERE) as child:
            assert psutil.pid_exists(child.pid)
            if error:
                raise error
    assert child.returncode == -signal.SIGKILL
    assert child.stdin.closed


def test_a_worker_that_lasts_too_long_is_killed_and_the_event_says_so(script):
    with worker(script("sys.stdin.read()")) as child:
        with killed_after(0.05, child) as late:
            assert child.wait(60) == -signal.SIGKILL
        assert late.is_set()
    with worker(script("")) as child:
        with killed_after(600, child) as late:
            assert child.wait(60) == 0
        assert not late.is_set()
