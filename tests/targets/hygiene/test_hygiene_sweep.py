"""The hygiene benchmark on a handful of models, and its observer against planted changes."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
import threading
import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from tests.support.cases import few_quick
from tests.support.paths import BENCHMARKS
from torch import nn

from torchgauge.targets.inputs.inputs import Inputs

FEW = ("LSTM", "GRUCell", "detection", "experts", "renormalized", "cache", "hf:bert")


@pytest.fixture(scope="module")
def sweep():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import hygiene
    finally:
        sys.path.remove(str(BENCHMARKS))
    return hygiene


@pytest.fixture(autouse=True)
def _own_temporary_folder(monkeypatch, tmp_path):
    """The observer counts temporary files: those of other processes are none of ours."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def _quiet():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(threads)


def _run(sweep, wanted, *, faults):
    chosen = (c for c in sweep.candidates() if wanted(c))
    tally = sweep.Tally()
    sweep.sweep(chosen, tally, faults=faults, trained=faults)
    return tally


@pytest.mark.slow
@pytest.mark.usefixtures("_quiet")
def test_a_handful_of_models_is_left_as_it_came(sweep):
    tally = _run(sweep, lambda candidate: candidate.name in FEW, faults=8)
    assert (tally.changed, tally.refused) == ([], [])
    assert tally.models["written"] + tally.models["hf"] == len(FEW)
    assert tally.runs["latency, fault"] >= 4 * 5
    assert tally.unreached == 0
    assert tally.checks > 100_000


@pytest.mark.slow
@pytest.mark.usefixtures("_quiet")
def test_every_model_is_left_as_it_came(sweep):
    tally = _run(sweep, lambda _: True, faults=sweep.FAULTY)
    assert (tally.changed, tally.refused) == ([], [])
    assert tally.models.total() - tally.models["trained"] - tally.models["with faults"] >= 100


PLANTED = {
    "parameter 0.weight": lambda m, x: m[0].weight.data.add_(1),
    "buffer 1.running_mean": lambda m, x: m[1].running_mean.add_(1),
    "requires_grad 0.bias": lambda m, x: m[0].bias.requires_grad_(False),
    "grad 0.bias": lambda m, x: setattr(m[0].bias, "grad", torch.ones(2)),
    "state dict keys": lambda m, x: m.register_buffer("total_ops", torch.zeros(1)),
    "training 1": lambda m, x: setattr(m[1], "training", False),
    "hooks 0._forward_hooks": lambda m, x: m[0].register_forward_hook(print),
    "attribute 0.flops": lambda m, x: setattr(m[0], "flops", 1),
    "input 0": lambda m, x: x.add_(1),
    "torch random state": lambda m, x: torch.rand(1),
    "numpy random state": lambda m, x: np.random.rand(),
    "random state": lambda m, x: random.random(),
    "torch threads": lambda m, x: torch.set_num_threads(torch.get_num_threads() + 1),
    "default dtype": lambda m, x: torch.set_default_dtype(torch.float64),
    "grad mode": lambda m, x: torch.set_grad_enabled(False),
    "warnings filters": lambda m, x: warnings.simplefilter("always", ResourceWarning),
    "trace function": lambda m, x: sys.settrace(lambda *_: None),
    "tracemalloc": lambda m, x: tracemalloc.start(),
    "environment": lambda m, x: os.environ.update(TORCHGAUGE_PLANTED="1"),
    "function torch.bmm": lambda m, x: setattr(torch, "bmm", print),
    "function torch.nn.functional.linear": lambda m, x: setattr(nn.functional, "linear", print),
    "method Tensor.matmul": lambda m, x: setattr(torch.Tensor, "matmul", print),
    "method Module.__call__": lambda m, x: setattr(nn.Module, "__call__", print),
    "open files": lambda m, x: _OPEN.append(tempfile.TemporaryFile()),  # noqa: SIM115
    "threads": lambda m, x: _thread(),
}
_OPEN = []
_END = threading.Event()


def _thread():
    _END.clear()
    threading.Thread(target=_END.wait, daemon=True).start()


@pytest.fixture
def _restored(monkeypatch):
    for owner, name in ((torch, "bmm"), (nn.functional, "linear"), (nn.Module, "__call__")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    threads, trace = torch.get_num_threads(), sys.gettrace()
    with warnings.catch_warnings():
        yield
    sys.settrace(trace)
    tracemalloc.stop()
    torch.set_num_threads(threads)
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    os.environ.pop("TORCHGAUGE_PLANTED", None)
    with contextlib.suppress(AttributeError):
        del torch.Tensor.matmul
    while _OPEN:
        _OPEN.pop().close()
    _END.set()


@pytest.mark.usefixtures("_restored")
@pytest.mark.parametrize("entry", few_quick(PLANTED))
def test_the_observer_sees_what_was_changed(sweep, entry):
    model, x = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), torch.ones(2)
    before = sweep.snapshot(model, [x])
    assert sweep.differences(before, sweep.snapshot(model, [x])) == []
    PLANTED[entry](model, x)
    assert entry in sweep.differences(before, sweep.snapshot(model, [x]))


@pytest.mark.usefixtures("_quiet")
def test_the_sweep_tells_a_probe_that_changes_something(sweep):
    class Target:
        model, inputs = nn.BatchNorm1d(2), Inputs.of(torch.ones(2, 2))

    tally = sweep.Tally()
    tally.check("a model", "a probe", Target, lambda target: target.model(torch.ones(2, 2)))
    assert "a model, a probe: buffer running_mean" in tally.changed
