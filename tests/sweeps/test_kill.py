"""`kill -9` in the middle of a sweep: what was finished is not measured again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import psutil
import pytest

import torchgauge as tg

FAKED = """
import sys, time
import torchgauge as tg
from tests.support.sweeps import cell
from tests.support.sweep_fakes import FakeExecutor

folder, pause = sys.argv[1], float(sys.argv[2])

def of(settings, number):
    with open(f"{folder}/measured", "a") as log:
        log.write(f"{settings.batch} {number}\\n")
    time.sleep(pause if settings.batch == 4 else 0)
    return cell(settings.batch, 0.01 * number)

found = tg.sweep(len, None, {"batch": [1, 2, 4, 8]}, executor=FakeExecutor(of), repeats=2,
                 every=True, resume=f"{folder}/cells.jsonl", progress=False)
found.save(f"{folder}/sweep.json")
"""

REAL = """
import os
from torch import nn, randn

processes = set()  # not the model's: what a forward changes of that is put back

class Watched(nn.Linear):
    def forward(self, x):
        if os.getpid() not in processes:
            processes.add(os.getpid())
            with open(os.environ["MEASURED"], "a") as log:
                log.write(f"{len(x)} 1\\n")
        return super().forward(x)

def watched():
    return Watched(64, 64), randn(1, 64)
"""


def finished(path):
    """Return the batches and numbers of the whole lines."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_bytes().split(b"\n")[1:-1]]
    return [(line["cell"]["settings"]["batch"], line["number"]) for line in lines]


def killed_after(command, journal, cells, under_way=lambda: True, **options):
    """Run until so many cells are in the file and the next is `under_way`, and kill the sweep."""
    with subprocess.Popen(command, **options) as process:
        while len(finished(journal)) < cells or not under_way():
            assert process.poll() is None
            time.sleep(0.02)
        children = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGKILL)
    _, left = psutil.wait_procs(children, timeout=120)
    assert not left  # no cell's process outlives its sweep


def logged(path):
    """Count the cells that were begun, by batch and number."""
    return Counter(tuple(map(int, line.split())) for line in path.read_text().splitlines())


@pytest.mark.slow
def test_a_killed_sweep_is_completed(tmp_path):
    command = [sys.executable, "-c", FAKED, str(tmp_path)]
    journal = tmp_path / "cells.jsonl"
    options = {"env": os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}}
    log = tmp_path / "measured"
    killed_after([*command, "3600"], journal, 2, lambda: (4, 1) in logged(log), **options)
    before = finished(journal)
    assert before == [(1, 1), (2, 1)]
    subprocess.run([*command, "0"], check=True, **options)
    measured = logged(log)
    assert all(measured[done] == 1 for done in before)
    assert set(measured) == {(batch, number) for batch in (1, 2, 4, 8) for number in (1, 2)}
    assert measured[4, 1] == 2  # it was under way
    assert sum(measured.values()) == 9
    found = tg.load(tmp_path / "sweep.json")
    assert [len(cell.latency.processes) for cell in found.cells] == [2] * 4


@pytest.mark.slow
def test_a_killed_sweep_of_real_processes_is_completed(tmp_path):
    (tmp_path / "watchedmodel.py").write_text(REAL)
    log, out = tmp_path / "measured", tmp_path / "out"
    command = [sys.executable, "-m", "torchgauge", "sweep", f"{tmp_path}/watchedmodel.py:watched",
               "--batch", "1,2,4,8", "--iterations", "200", "--warmup", "1", "--every",
               "--output-dir", str(out)]  # fmt: skip
    options = {"env": os.environ | {"MEASURED": str(log)}, "stdout": subprocess.DEVNULL}
    journal = out / "sweep.cells.jsonl"
    killed_after(command, journal, 2, **options)
    before = finished(journal)
    subprocess.run(command, check=True, **options)
    measured = logged(log)
    assert [measured[done] for done in before] == [1, 1]
    assert set(measured) == {(batch, 1) for batch in (1, 2, 4, 8)}
    assert [cell.status for cell in tg.load(out / "sweep.json").cells] == ["done"] * 4
    assert not journal.exists()
