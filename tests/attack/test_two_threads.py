"""Pairs of public functions in two threads, beside a third that trains a model of its own."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

PAIRS = """
import collections, contextlib, itertools, sys, threading
import torch
from torch import nn
import torchgauge as tg
from torch.nn import functional
from concurrent.futures import ThreadPoolExecutor

torch.set_num_threads(1)
FEW = dict(iterations=3, warmup=1)


def small():
    return nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 4, bias=False))


def macs(cost, expected):
    assert cost.macs == expected, (cost.macs, expected, cost.warnings)
    assert not cost.warnings, cost.warnings


def profile():
    found = tg.profile(small(), torch.ones(2, 8), roofs=False, processes=1, **FEW)
    macs(found.cost, 192)
    assert not any(one.failed for one in found.warnings), found.warnings
    assert found.tree.find("0").calls == 1


def train():
    found = tg.profile(
        small(), torch.ones(2, 8), roofs=False, processes=1, detail="layers",
        train=tg.Training(lambda outputs, _: outputs.sum(), torch.optim.SGD), **FEW,
    )
    assert not any(one.failed for one in found.warnings), found.warnings


def loop():
    model = small()
    with tg.timeline(model) as run:
        for _ in range(30):
            model(torch.ones(2, 8))
    assert (run.record.count, run.captured.recorded) == (30, 5)
    assert run.tree.find("0").calls == 1


def latency():
    tg.measure_latency(small(), torch.ones(2, 8), processes=1, progress=False, **FEW)


def quick():
    found = tg.Profiler().count_flops(small(), (1, 8))
    assert found == tg.Profiler().count_flops(small(), (1, 8))


def arrays():
    import numpy as np

    weight = np.ones((8, 4))
    assert tg.Profiler().count_flops(lambda x: x @ weight, (1, 8)) == 64


CALLS = dict(
    profile=profile,
    train=train,
    count=lambda: macs(tg.count_cost(small(), torch.ones(1, 8)), 96),
    backward=lambda: macs(tg.count_cost(small(), torch.ones(1, 8), backward=True), 224),
    latency=latency,
    memory=lambda: tg.measure_memory(small(), torch.ones(2, 8)),
    size=lambda: tg.measure_size(small()),
    loop=loop,
    quick=quick,
    arrays=arrays,
)


def state():
    names = dict(call=nn.Module.__call__, attention=functional.scaled_dot_product_attention)
    names |= dict(start=threading.Thread.start, submit=ThreadPoolExecutor.submit)
    return {name: id(one) for name, one in names.items()} | {"switch": sys.getswitchinterval()}


outcomes, bad = collections.Counter(), []


def attempt(name, barrier):
    barrier.wait(60)
    try:
        CALLS[name]()
        outcomes["done"] += 1
    except tg.InputError as error:
        outcomes[error.id] += 1
        if error.id != "timeline-active":
            bad.append((name, error))
    except BaseException as error:
        bad.append((name, repr(error)))


def beside(stop):
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    while not stop.is_set():
        try:
            model(torch.ones(4, 64)).sum().backward()
        except BaseException as error:
            bad.append(("beside", repr(error)))
            return


import numpy  # what a first import does is not looked at here
before, stop = state(), threading.Event()
third = threading.Thread(target=beside, args=(stop,))
third.start()
names = sys.argv[1].split(",")
pairs = list(itertools.combinations_with_replacement(names, 2))
for pair in pairs:
    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=attempt, args=(one, barrier)) for one in pair]
    for one in threads:
        one.start()
    for one in threads:
        one.join(120)
    if any(one.is_alive() for one in threads):
        bad.append((pair, "hangs"))
        break
    if state() != before:
        bad.append((pair, "left something of torch or Python changed"))
        break
stop.set()
third.join(60)
for one in bad:
    print(one, file=sys.stderr)
print(len(pairs), "pairs:", dict(outcomes), len(bad), "bad")
sys.exit(bool(bad))
"""

FAST = ("count", "backward", "memory", "loop", "arrays")
EVERY = (*FAST, "profile", "train", "latency", "size", "quick")


def attacked(names, seconds):
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PAIRS, ",".join(names)],
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-4000:]}"
    print(done.stdout)
    pairs = len(list(itertools.combinations_with_replacement(names, 2)))
    assert done.stdout.startswith(f"{pairs} pairs:")


@pytest.mark.slow
def test_pairs_of_functions_in_two_threads():
    attacked(FAST, 300)


@pytest.mark.attack
def test_every_pair_of_functions_in_two_threads():
    attacked(EVERY, 1200)
