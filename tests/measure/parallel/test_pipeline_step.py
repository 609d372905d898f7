"""Stages of pipelines: what each sends, and how many micro-batches are alive in it."""

import pytest
import torch
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

from torchgauge.analyze.parallel.rank_lifetimes import groups_of
from torchgauge.errors import InputError
from torchgauge.measure.parallel.fake_job import fake_job
from torchgauge.measure.parallel.rank_step import PipelineStep, note_step
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.training.training import Training

WIDTH, ROWS, MICRO_BATCHES = 64, 32, 6
ACTIVATION = 4 * ROWS * WIDTH  # bytes of one micro-batch between two stages
TRAINING = Training(lambda outputs, _: outputs, torch.optim.AdamW)


def noted(schedule, ranks, rank, *, stages_per_rank=1, shapes=True):
    dims = (("pp", ranks),)
    with fake_job(dims, rank) as mesh:
        group = mesh["pp"].get_group()

        def sizes(index):
            micro_batch = torch.zeros(ROWS, WIDTH)
            passed_on = micro_batch.clone().requires_grad_()
            return {"input_args": passed_on if index else micro_batch, "output_args": passed_on}

        stages = [
            PipelineStage(
                nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU()),
                rank + ranks * index,
                ranks * stages_per_rank,
                torch.device("cpu"),
                group=group,
                **(sizes(rank + ranks * index) if shapes else {}),
            )
            for index in range(stages_per_rank)
        ]
        pipeline = schedule(
            stages[0] if stages_per_rank == 1 else stages,
            n_microbatches=MICRO_BATCHES,
            loss_fn=lambda outputs, target: (outputs - target).square().mean(),
        )
        x = torch.randn(MICRO_BATCHES * ROWS, WIDTH)
        step = PipelineStep(pipeline, Inputs((x,), {"target": x}), TRAINING)
        return note_step(step, groups_of(dims, rank))


def sent(step, kind="send"):
    sums = {}
    for row in step.collectives:
        if row.kind == kind:
            calls, size = sums.get(row.phase, (0, 0))
            sums[row.phase] = calls + row.calls, size + row.bytes
    return sums


def times(number):
    return number, number * ACTIVATION


@pytest.mark.parametrize("schedule", [ScheduleGPipe, Schedule1F1B])
def test_a_stage_sends_each_micro_batch_on_and_its_gradient_back(schedule):
    first, middle, last = (noted(schedule, 3, rank) for rank in range(3))
    forward, backward = {"forward": times(MICRO_BATCHES)}, {"backward": times(MICRO_BATCHES)}
    assert (sent(first), sent(middle), sent(last)) == (forward, forward | backward, backward)
    received = [sent(step, "recv") for step in (first, middle, last)]
    assert received == [backward, forward | backward, forward]


@pytest.mark.thorough
def test_interleaved_stages_of_a_rank_send_to_each_other_ranks_stages():
    # Rank 0 has stages 0 and 2 of 4, rank 1 has 1 and 3.
    first, last = (noted(ScheduleInterleaved1F1B, 2, rank, stages_per_rank=2) for rank in range(2))
    assert sent(first) == {"forward": times(2 * MICRO_BATCHES), "backward": times(MICRO_BATCHES)}
    assert sent(last) == {"forward": times(MICRO_BATCHES), "backward": times(2 * MICRO_BATCHES)}


def test_a_stage_of_1f1b_keeps_as_many_micro_batches_as_stages_follow():
    alive = [noted(Schedule1F1B, 4, rank).memory.largest["activations"] for rank in range(4)]
    assert alive[:3] == [4 * ACTIVATION, 3 * ACTIVATION, 2 * ACTIVATION]
    # The last one has one, and what its loss keeps: the differences and a few numbers.
    assert 2 * ACTIVATION <= alive[3] < 2 * ACTIVATION + 64


def test_a_stage_of_gpipe_keeps_all_micro_batches():
    alive = [noted(ScheduleGPipe, 3, rank).memory.largest["activations"] for rank in (0, 1)]
    assert alive == [MICRO_BATCHES * ACTIVATION] * 2


def test_a_stage_without_shapes_is_refused():
    with pytest.raises(InputError) as refused:
        noted(Schedule1F1B, 2, 0, shapes=False)
    assert refused.value.id == "pipeline-shapes-missing"
