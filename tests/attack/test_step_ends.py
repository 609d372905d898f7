"""Steps that end where torch's profiler may neither begin nor end: no process dies of a signal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.attack.step_ends import WAYS

HERE = Path(__file__).parent
SCRIPT = str(HERE / "step_ends.py")
# Steps and recorded ones, where they are not 24 and 5.
OTHERS = {
    "beside_threads_that_call_another_model_first": (91, 5),
    "on_a_thread_for_each_step": (24, 0),
    "on_a_thread_that_ends_amid_a_recording": (24, 1),
}
# Its recording is lost, which is a failed measurement.
LOST = "on_a_thread_that_ends_amid_a_recording"


def ended(way, how, kind, folder):
    """Return the exit code of a child process, what it printed, and what it complained of."""
    command = [sys.executable, *(["-m", "torchgauge", "run"] if how == "run" else []), SCRIPT]
    paths = os.pathsep.join([str(HERE.parents[1]), str(HERE.parents[1] / "src")])
    done = subprocess.run(
        [*command, way, how, kind], cwd=folder, env=os.environ | {"PYTHONPATH": paths},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines(), done.stderr


def check(way, how, kind, folder):
    code, printed, complaints = ended(way, how, kind, folder)
    assert code == (how == "run" and way == LOST), complaints
    assert printed[-1] == "done"
    if way != LOST:
        assert "[W" not in complaints, complaints  # torch's own complaints of its profiler
    if how == "timeline":
        steps, recorded = OTHERS.get(way, (24, 5))
        assert printed[0] == f"steps {steps} recorded {recorded}"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "way", ["for_each_parameter_in_backward", "on_a_thread_for_each_step", "by_a_closure"]
)
def test_a_few_ways_to_end_a_step_end_no_process(way, tmp_path):
    check(way, "timeline", "plain", tmp_path)


@pytest.mark.attack
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "compiled"])
@pytest.mark.parametrize("how", ["timeline", "run"])
@pytest.mark.parametrize("way", WAYS)
def test_no_way_to_end_a_step_ends_the_process(way, how, kind, tmp_path):
    check(way, how, kind, tmp_path)
