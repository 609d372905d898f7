"""Limits that a process has of its own, by what says them."""

import subprocess
import sys

import pytest
import torch

from torchgauge.measure.forward import process_limit

OOM = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of "
    "which 70.00 GiB is free. Process 7 has 1.50 GiB memory in use. 3.00 GiB allowed; Of the "
    "allocated memory 1.25 GiB is allocated by PyTorch."
)
CHILD = """
import resource
from torchgauge.measure.forward import process_limit
resource.setrlimit(resource.RLIMIT_DATA, (3 * 10**9, resource.RLIM_INFINITY))
found = process_limit("cpu", "")
kept = bytearray(10**8)
print(found.limit, found.remaining, found.remaining - process_limit("cpu", "").remaining)
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts allocations so")
def test_on_the_cpu_it_is_the_data_segment():
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    limit, left, taken = map(int, done.stdout.split())
    assert limit == 3 * 10**9
    assert 0 < left < limit
    assert taken == pytest.approx(10**8, rel=0.05)


def test_of_a_gpu_torch_says_what_is_allowed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2**30)
    assert process_limit("cuda:0", OOM) == (3 * 2**30, 2 * 2**30)
    assert process_limit("cuda:0", OOM.replace("3.00 GiB allowed; ", "")) is None


def test_elsewhere_and_where_nothing_tells_there_is_none():
    assert process_limit("meta", "") is None
    assert process_limit("no device", "") is None
