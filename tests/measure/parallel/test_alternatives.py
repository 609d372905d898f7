"""Which changes of a job's settings are counted, and what they find."""

import dataclasses

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.measure.parallel.parallel_options import ParallelOptions, mesh_of
from torchgauge.measure.parallel.rank_count import changes
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.target import Target


def model():
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))


def target(function=None, batch=8):
    inputs = Inputs.of(torch.ones(batch, 64))
    return Target(function or model(), inputs, "here", "module", "here", batch=batch)


def options(mesh, **settings):
    return ParallelOptions(mesh=mesh_of(mesh), **settings)


def names(given, job):
    return [variant.option for variant in changes(given, job, model())]


def test_a_plain_model_is_changed_by_options():
    assert names(target(), options("ddp=2,fsdp=4")) == [
        "--checkpoint op",
        "--checkpoint full",
        "--batch 4",
        "--mesh fsdp=8",
        "--mesh ddp=2,fsdp=8",
        "--precision bf16",
    ]


def test_what_is_done_already_is_not_counted():
    job = options("ddp=4", checkpoint="full", precision="bf16")
    assert names(target(batch=1), job) == ["--mesh fsdp=4"]


def test_half_of_the_samples_is_half_of_the_batched_inputs():
    inputs = Inputs.of((torch.ones(8, 64), torch.ones(3)))
    given = dataclasses.replace(target(), inputs=inputs)
    halved = next(v for v in changes(given, options("fsdp=2"), model()) if "batch" in v.option)
    assert [tuple(tensor.shape) for _, tensor in halved.target.inputs.tensors()] == [(4, 64), (3,)]


def test_a_function_is_changed_by_its_own_parameters():
    def rank(mesh, batch=8, checkpoint="op"):
        raise NotImplementedError

    def bare(mesh):
        raise NotImplementedError

    assert names(target(rank), options("fsdp=2")) == [
        "--checkpoint full", "--batch 4", "--mesh fsdp=4"
    ]  # fmt: skip
    assert names(target(rank), options("fsdp=2", batch=2))[1] == "--batch 1"
    assert names(target(bare), options("tp=2")) == []


@pytest.mark.slow
def test_each_change_is_counted():
    blocks = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(3)))
    record = tg.count_parallel(
        blocks, torch.ones(512, 64), mesh="fsdp=4", on=["h100"], savings=True
    )
    found = {other.name: other for other in record.alternatives}
    as_it_is = record.kinds[0].memory
    half = found["half the samples at a time"]
    assert half.peak < as_it_is.peak
    assert half.executed_flops < record.kinds[0].executed_flops
    full = found["checkpoint every layer"]
    assert full.executed_flops > record.kinds[0].executed_flops
    host = found["parameters, gradients and optimizer on the host"]
    assert host.host == as_it_is.resting["parameters"] + as_it_is.resting["optimizer"]
    assert as_it_is.peak - host.peak >= host.host
    assert not any(other.failed for other in record.alternatives)
