"""Recordings begun and ended beside threads that run operators all the time, in a child process.

Of all threads at once torch's own profiler does not survive some hundred of them.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

BESIDE = """
import sys, threading
import torch
from torchgauge.measure.recording.recording import Recorder

torch.set_num_threads(1)
stop = threading.Event()

def train():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    while not stop.is_set():
        with torch.profiler.record_function("beside"):
            model(torch.ones(4, 8)).sum().backward()

threads = [threading.Thread(target=train, daemon=True) for _ in range(4)]
for one in threads:
    one.start()
x = torch.ones(8, 8)
for number in range({count}):
    recorder = Recorder(shapes=number % 2 == 0, memory=number % 3 == 0)
    recorder.start()
    (x @ x).sum()
    recorder.stop()
    if number % 50 == 0:
        print(number, flush=True)
stop.set()
for one in threads:
    one.join()
print("survived", flush=True)
"""


def survives(count, seconds):
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", BESIDE.format(count=count)],
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()[-1]) == (0, "survived"), done.stderr[-2000:]
    assert done.stderr == ""


@pytest.mark.slow
def test_a_hundred_recordings_beside_four_busy_threads():
    survives(100, 120)


@pytest.mark.attack
def test_two_thousand_recordings_beside_four_busy_threads():
    survives(2000, 600)
    print("2,000 recordings beside 4 busy threads: the process lived")
