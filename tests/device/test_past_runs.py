"""The host's memory of latency measurements: bounded, whole or not at all, and never in the way."""

import os
import subprocess
import sys

import msgspec
import pytest
from tests.support.past_runs import run

from torchgauge.device import calibration
from torchgauge.device.calibration import remember


def test_runs_are_remembered_by_machine_and_target_the_newest_last(tmp_path):
    file = tmp_path / "state" / "past_runs.json"
    first = run(yardstick={"matmul": 1e-4}, busy=True)
    assert remember("a", first, file) == file
    remember("a", run("lstm"), file)
    remember("a", run(second=1), file)
    remember("b", run(second=2), file)
    assert calibration.past_runs("a", file=file) == (first, run("lstm"), run(second=1))
    assert calibration.past_runs("a", "mlp", file) == (first, run(second=1))
    assert calibration.past_runs("b", "lstm", file) == ()
    assert calibration.past_runs("c", file=file) == ()


def test_the_file_lies_beside_the_calibration(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path))
    assert remember("a", run()) == tmp_path / "past_runs.json"
    assert calibration.past_runs("a") == (run(),)


def test_a_target_keeps_its_last_forty_and_drives_out_no_other(tmp_path):
    file = tmp_path / "runs.json"
    remember("a", run("lstm"), file)
    for second in range(42):
        remember("a", run(second=second), file)
    assert calibration.past_runs("a", "lstm", file) == (run("lstm"),)
    kept = calibration.past_runs("a", "mlp", file)
    assert kept == tuple(run(second=second) for second in range(2, 42))


def test_the_oldest_targets_machines_and_processes_are_forgotten(tmp_path):
    file = tmp_path / "runs.json"
    for number in range(62):
        remember("a", run(f"{number}"), file)
    assert [one.target for one in calibration.past_runs("a", file=file)] == [
        f"{number}" for number in range(2, 62)
    ]
    many = msgspec.structs.replace(run(), medians=tuple(float(n) for n in range(1, 81)))
    for number in range(8):
        remember(f"machine {number}", many, file)
    assert calibration.past_runs("a", file=file) == ()
    (kept,) = calibration.past_runs("machine 0", file=file)
    assert kept.medians == tuple(float(n) for n in range(17, 81))


@pytest.mark.parametrize(
    "damage", [b"", b"{", b'{"schema": "other/1"}', b"\xff", b'{"machines": 1}']
)
def test_a_damaged_file_is_none_and_is_replaced(damage, tmp_path):
    file = tmp_path / "runs.json"
    file.write_bytes(damage)
    assert calibration.past_runs("a", file=file) == ()
    remember("a", run(), file)
    assert calibration.past_runs("a", file=file) == (run(),)


def test_a_home_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    assert remember("a", run(), tmp_path / "file" / "runs.json") is None
    assert calibration.past_runs("a", file=tmp_path / "file" / "runs.json") == ()


def test_writers_at_once_leave_a_whole_file(tmp_path):
    file = tmp_path / "runs.json"
    code = (
        "import sys, pathlib\n"
        "from torchgauge.device.calibration import remember\n"
        "from torchgauge.records.latency.latency import PastRun\n"
        "for number in range(40):\n"
        "    run = PastRun(target=sys.argv[2], created=str(number), medians=(1.0,) * 20)\n"
        "    assert remember('a', run, pathlib.Path(sys.argv[1]))\n"
    )
    command = [sys.executable, "-c", code, str(file)]
    writers = [subprocess.Popen([*command, name], env=os.environ) for name in ("x", "y")]
    assert [writer.wait() for writer in writers] == [0, 0]
    kept = calibration.past_runs("a", file=file)
    assert kept
    # Of the last to write nothing is lost.
    assert max(int(one.created) for one in kept) == 39
    assert [file.name for file in tmp_path.iterdir()] == ["runs.json"]
