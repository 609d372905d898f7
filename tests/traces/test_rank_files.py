"""Many files of ranks read by few processes, which a file may end."""

import json

import pytest
from tests.support.kineto_events import kernel, launch, op

from torchgauge.progress import Silent
from torchgauge.traces import rank_files
from torchgauge.traces.rank_files import read_ranks
from torchgauge.traces.read_options import ReadOptions

EVENTS = [op("aten::mm", 0, 9), launch(1, 2), kernel("gemm", 10, 5, 1)]
CHILD = """
import os, sys
from torchgauge import worker_child
from torchgauge.traces import rank_file

rank_file.LIFETIME = {lifetime}
read = rank_file.answered
unwell = []

def answered(file, options):
    if "dies" in file or unwell:
        os.kill(os.getpid(), 9)
    if "raises" in file:
        raise MemoryError
    if "poisons" in file:
        unwell.append(file)
    return read(file, options)

rank_file.answered = answered
worker_child.main(*sys.argv[1:])
"""


@pytest.fixture
def started(monkeypatch):
    """The processes that were started."""
    processes = []
    start = rank_files.start_worker

    def start_and_keep(*arguments, **options):
        processes.append(start(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(rank_files, "start_worker", start_and_keep)
    return processes


@pytest.fixture
def reading(tmp_path, monkeypatch, started):
    """Read files of these names, by a child that some of them end."""

    def read(*names, workers=1, lifetime=60.0, progress=None):
        child = tmp_path / "child.py"
        child.write_text(CHILD.format(lifetime=lifetime))
        monkeypatch.setattr("torchgauge.workers.CHILD", child)
        files = [tmp_path / f"{name}.json" for name in names]
        for file in files:
            file.write_text(json.dumps({"traceEvents": EVENTS}))
        options = ReadOptions(workers=workers)
        return read_ranks(list(map(str, files)), options, progress or Silent())

    return read


@pytest.mark.thorough
def test_many_files_are_read_by_as_many_processes_as_are_allowed(reading, started):
    results = reading(*(f"rank{number:02}" for number in range(12)), workers=2)
    assert [result.rank.file for result in results] == [f"rank{n:02}.json" for n in range(12)]
    assert 1 <= len(started) <= 2
    assert all(process.poll() is not None for process in started)


@pytest.mark.slow
def test_a_file_that_ends_its_process_costs_itself_alone(reading, started):
    results = reading("a", "dies", "b", "raises", "c")
    assert [result.rank is not None for result in results] == [True, False, True, False, True]
    killed, failed = results[1].error, results[3].error
    assert (killed.id, killed.cause) == ("child-killed", "Signal 9.")
    assert "dies.json" in killed.message
    assert (failed.id, failed.cause) == ("child-failed", "MemoryError")
    # A process that had read others before is not taken at its word: a fresh one reads it again.
    assert len(started) == 5


@pytest.mark.thorough
def test_a_file_that_harms_its_process_costs_no_file_after_it(reading):
    results = reading("poisons", "b", "c")
    assert [result.error for result in results] == [None] * 3


@pytest.mark.slow
def test_a_process_that_has_worked_for_its_lifetime_is_replaced(reading, started):
    results = reading("a", "b", "c", lifetime=0.0)
    assert [result.error for result in results] == [None] * 3
    assert len(started) == 3


class Interrupting(Silent):
    def update(self, detail, fraction=None):
        raise KeyboardInterrupt


@pytest.mark.thorough
def test_ctrl_c_leaves_no_process(reading, started):
    with pytest.raises(KeyboardInterrupt):
        reading("a", "b", "c", "d", workers=2, progress=Interrupting())
    assert started
    assert all(process.poll() is not None for process in started)
