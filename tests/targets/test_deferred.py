"""What a forward returns before its work is done is run to its end, or refused by name."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import warnings

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.analyze.work.roof_quality import implausible
from torchgauge.compat.arrays.counting import count
from torchgauge.device.environment import environment
from torchgauge.errors import MeasurementError
from torchgauge.targets import deferred
from torchgauge.targets.deferred import Finishing, finished
from torchgauge.targets.inputs.inputs import Inputs

POOL = concurrent.futures.ThreadPoolExecutor(1)
FLOPS = 2 * 64 * 64 * 64


class Deferring(nn.Module):
    """Multiplies 64 × 64 matrices once somebody asks for the result."""

    def __init__(self, how):
        super().__init__()
        self.linear, self.how = nn.Linear(64, 64, bias=False), how

    def forward(self, x):
        return self.how(functools.partial(self.linear, x))


def _yields(run):
    yield run()


async def _awaited(run):
    return run()


async def _asynchronous(run):
    yield run()


CONSUMED = {
    "generator": _yields,
    "map": lambda run: map(lambda _: run(), [0]),  # noqa: C417 - a map is what is meant
    "in a dictionary": lambda run: {"loss": 1, "parts": [(_yields(run), 2)]},
}
REFUSED = {
    "coroutine": _awaited,
    "async_generator": _asynchronous,
    "Future": lambda run: POOL.submit(run),
    "future of torch": lambda run: torch.jit.fork(run),
}
PROBES = {
    "cost": lambda model, x: tg.count_cost(model, x).flops,
    "backward": lambda model, x: tg.count_cost(model, x, backward=True).flops,
    "latency": lambda model, x: tg.measure_latency(model, x, warmup=0, iterations=2),
    "stages": lambda model, x: tg.measure_latency(
        model, x, warmup=0, iterations=2, postprocess=lambda out: out
    ),
    "memory": tg.measure_memory,
    "training": lambda model, x: tg.measure_memory(
        model, x, train=tg.Training(lambda out, _: out[0].sum(), torch.optim.SGD)
    ),
}


@pytest.mark.parametrize("case", CONSUMED)
def test_the_work_of_an_iterator_is_counted_and_its_values_are_the_outputs(case):
    model = Deferring(CONSUMED[case]).eval()
    assert tg.count_cost(model, torch.ones(64, 64)).flops == FLOPS
    outputs = finished(model(torch.ones(64, 64)))
    outputs = outputs["parts"][0][0] if isinstance(outputs, dict) else outputs
    assert torch.equal(outputs[0], model.linear(torch.ones(64, 64)))


def test_every_probe_runs_a_generator_to_its_end():
    calls = []
    model = Deferring(lambda run: _yields(lambda: (calls.append(1), run())[1]))
    for name, probe in PROBES.items():
        before = len(calls)
        probe(model, torch.ones(64, 64))
        assert len(calls) > before, name


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("case", REFUSED)
def test_what_must_be_waited_for_is_refused_by_name(case, probe):
    model = Deferring(REFUSED[case])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # that nobody awaited a coroutine
        with pytest.raises(MeasurementError) as caught:
            PROBES[probe](model, torch.ones(64, 64))
    assert caught.value.id == "output-deferred"
    assert case.partition(" ")[0].lower() in caught.value.message.lower()


def test_an_asynchronous_model_is_measured_when_it_is_run():
    model = Deferring(_awaited)
    found = tg.count_cost(lambda x: asyncio.run(model(x)), torch.ones(64, 64))
    assert found.flops == FLOPS


def test_a_generator_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(deferred, "MAX_VALUES", 100)
    with pytest.raises(MeasurementError) as caught:
        finished(iter(int, 1))
    assert caught.value.id == "output-deferred"


def test_a_model_without_torch_too():
    weight = np.ones((64, 64))

    class Lazy:
        def forward(self, x):
            yield x @ weight

    found = count(Lazy(), Inputs.of(np.ones((64, 64))))[0]
    assert found.flops >= FLOPS


def test_outputs_that_are_whole_are_themselves():
    finishing = Finishing()
    for whole in (torch.ones(1), (1, [torch.ones(1)]), {"a": None}, None, "text", object()):
        assert finished(whole) is whole
        assert finishing(whole) is whole
        assert finishing(whole) is whole


def test_a_rate_above_what_any_machine_can_do_is_said_to_contradict_itself():
    model = nn.Linear(64, 64, bias=False)
    profile = tg.profile(
        model, torch.ones(64, 64), iterations=2, processes=1, detail="summary", roofs=False,
        progress=False,
    )  # fmt: skip
    machine, cost, latency = environment().machine, profile.cost, profile.latency
    assert "rate-impossible" not in {one.id for one in profile.warnings}
    # 805 M FLOPs in 2.2 µs of so many cores: what a generator's call alone took.
    rows = tuple(msgspec.structs.replace(row, matmul_flops=805_000_000) for row in cost.rows)
    much = msgspec.structs.replace(cost, rows=rows)
    quick = msgspec.structs.replace(latency, median=2.2e-6)
    small = msgspec.structs.replace(machine, logical_cores=2, usable_cores=2)
    found = implausible(small, "cpu", much, quick, None)
    assert [one.id for one in found] == ["rate-impossible"]
    assert "T FLOP/s" in found[0].message
    assert not implausible(small, "cpu", cost, latency, profile.tree)
    told = msgspec.structs.replace(profile, cost=much, latency=quick, warnings=found)
    assert "contradicts itself" in " ".join(str(told).split())
