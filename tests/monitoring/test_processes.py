"""Processes that share a folder: nothing is lost, but an interval of one that is killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

from torchgauge.monitoring.folder import MonitorFolder
from torchgauge.records.monitoring.window import LATENCY

WORKER = """
import sys, time
import torchgauge as tg

monitor = tg.monitor(name="worker", interval=float(sys.argv[2]))
call = monitor(lambda: None)
for _ in range(int(sys.argv[1])):
    call()
print("done", flush=True)
time.sleep(float(sys.argv[3]))
"""

POOL = """
import multiprocessing
import torchgauge as tg

monitor = tg.monitor(name="worker")

@monitor
def call(number):
    return number

def many(number):
    for _ in range(500):
        call(number)
    return number

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert pool.map(many, range(8), chunksize=1) == list(range(8))
        pool.close()
        pool.join()
    many(0)
"""


def calls(reader):
    return sum(window.count for window in reader.totals() if window.series == LATENCY)


def worker(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.thorough
def test_eight_processes_lose_nothing():
    workers = [worker(1000 + number, 10.0, 0.0) for number in range(8)]
    assert [process.wait(60) for process in workers] == [0] * 8
    reader = MonitorFolder()
    assert calls(reader) == sum(1000 + number for number in range(8))
    assert [state.alive for state in reader.states()] == [False] * 8


@pytest.mark.thorough
def test_a_killed_process_loses_one_interval_at_most():
    process = worker(2000, 0.05, 60.0)
    assert process.stdout.readline() == "done\n"
    reader = MonitorFolder()
    deadline = time.monotonic() + 30
    while calls(reader) < 2000 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [state.alive for state in reader.states()] == [True]
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    reader = MonitorFolder()
    assert calls(reader) == 2000
    (state,) = reader.states()
    assert (state.alive, state.process, state.interval) == (False, process.pid, 0.05)


@pytest.mark.thorough
def test_forked_workers_of_a_pool_lose_nothing(tmp_path):
    (tmp_path / "pool.py").write_text(POOL)
    subprocess.run([sys.executable, tmp_path / "pool.py"], check=True, timeout=60)
    assert calls(MonitorFolder()) == 9 * 500
