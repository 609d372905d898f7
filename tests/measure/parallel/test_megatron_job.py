"""A job like Megatron-LM's, small, against bytes that are computed by hand."""

import dataclasses
import importlib

import pytest
from tests.support.paths import BENCHMARKS

from torchgauge.analyze.parallel.rank_lifetimes import groups_of
from torchgauge.measure.parallel.fake_job import fake_job
from torchgauge.measure.parallel.rank_step import PipelineStep, note_step
from torchgauge.measure.work.cuda_kernels import CudaKernels

pytestmark = pytest.mark.thorough
LENGTH, SAMPLES, WIDTH, HEADS = 32, 2, 64, 4
SCORES = SAMPLES * HEADS * LENGTH * LENGTH


@pytest.fixture
def noted(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    megatron = importlib.import_module("megatron_job")

    def note(dims, rank=0, **changes):
        settings = dataclasses.replace(megatron.TINY, **{"layers": 1, "micro_batches": 1} | changes)
        with fake_job(dims, rank) as mesh, CudaKernels().everywhere():
            schedule, inputs, training = megatron.job(settings, mesh)
            step = note_step(PipelineStep(schedule, inputs, training), groups_of(dims, rank))
            return step, [parameter.numel() for parameter in schedule._stage.submod.parameters()]

    return note


def test_a_parameter_takes_18_bytes_and_6_where_its_masters_are_sharded(noted):
    step, sizes = noted((("dp", 4),))
    elements = sum(sizes)
    assert elements == (512 + LENGTH) * WIDTH + 12 * WIDTH**2 + (13 + 2) * WIDTH
    resting = step.memory.resting
    assert resting["parameters"] == 2 * elements
    assert resting["optimizer"] == 12 * elements + 4 * len(sizes)  # a number of steps each
    assert resting["buffers"] == 4 * elements + 2 * SCORES  # gradients; what scores are written to
    step, sizes = noted((("dp", 4),), flash=True, distributed_optimizer=True)
    resting = step.memory.resting
    assert resting["parameters"] == 2 * elements
    assert resting["optimizer"] == 12 * elements / 4 + 4
    assert resting["buffers"] == 4 * elements
    # Only FSDP's gathers and reductions have pools of their own.
    assert [pool.stream for pool in step.memory.pools] == ["compute"]


@pytest.mark.parametrize("sequence", [False, True])
def test_a_layer_of_tensor_ranks_keeps_the_published_bytes(noted, sequence):
    dims = (("tp", 2),)
    one, two = (
        noted(dims, layers=layers, sequence_parallel=sequence)[0].memory for layers in (1, 2)
    )
    # Korthikanti et al. (arXiv 2205.05198), equations 2 and 4.
    divided = 34 / 2 if sequence else 10 + 24 / 2
    layer = LENGTH * SAMPLES * WIDTH * divided + 5 * SCORES / 2
    assert two.largest["activations"] - one.largest["activations"] == pytest.approx(layer, rel=0.02)
    assert [pool.stream for pool in two.pools] == ["compute"]
    assert "gradients" not in two.largest  # what ranks sum in a layer's backward pass is none


@pytest.mark.parametrize(("recompute", "kept"), [
    ("none", LENGTH * SAMPLES * WIDTH * 34 + 5 * SCORES), ("full", 2 * LENGTH * SAMPLES * WIDTH)
])  # fmt: skip
def test_the_first_stage_of_two_keeps_two_micro_batches(noted, recompute, kept):
    dims, changes = (("pp", 2),), {"micro_batches": 3, "recompute": recompute}
    one, two = (noted(dims, layers=layers, **changes)[0].memory for layers in (2, 4))
    more = two.largest["activations"] - one.largest["activations"]
    assert more == pytest.approx(2 * kept, rel=0.02)
