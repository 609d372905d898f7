"""Context and expert parallelism by torch's own means: bytes sent, computed by hand."""

import functools

import pytest
import torch
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.tensor import Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.experimental._context_parallel import _attention as context
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module
from torch.nn import functional

from torchgauge.analyze.parallel.rank_lifetimes import groups_of
from torchgauge.errors import InputError
from torchgauge.measure.parallel.fake_job import fake_job
from torchgauge.measure.parallel.rank_step import RankStep, note_step
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.training.training import Training

RANKS, BATCH, HEADS, LENGTH, FEATURES = 4, 2, 4, 32, 16
KEYS_AND_VALUES = 2 * 4 * BATCH * HEADS * LENGTH // RANKS * FEATURES  # bytes of one rank
# Some parameters are DTensors and some are not, which no operator on lists takes.
ADAMW = functools.partial(torch.optim.AdamW, foreach=False)
TRAINING = Training(lambda outputs, _: outputs.sum(), ADAMW)


def noted(dims, build):
    with fake_job(dims, 0) as mesh:
        model, inputs = build(mesh)
        return note_step(RankStep(model, Inputs.of(inputs), TRAINING), groups_of(dims, 0))


def rows(step):
    sums = {}
    for row in step.collectives:
        calls, size = sums.get((row.kind, row.group, row.phase), (0, 0))
        sums[row.kind, row.group, row.phase] = calls + row.calls, size + row.bytes
    return sums


class Inner(nn.Module):
    def forward(self, query, key, value, mask=None):
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None
        )


class Attention(nn.Module):
    def __init__(self, *masks):
        super().__init__()
        self.masks = masks
        width = HEADS * FEATURES
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.inner = Inner()

    def forward(self, x):
        heads = self.inputs(x).unflatten(-1, (3, HEADS, FEATURES)).permute(2, 0, 3, 1, 4)
        return self.inner(*heads.unbind(0), *self.masks).transpose(1, 2).flatten(2)


@pytest.fixture
def ring():
    """Attention around a ring of 4 ranks, whose keys and values go by sends or a gather."""
    rotation = context._cp_options.rotate_method

    def build(method, masked=False):
        def rank(mesh):
            context.set_rotate_method(method)
            model = Attention(
                *([torch.zeros(BATCH, HEADS, LENGTH // RANKS, LENGTH)] if masked else [])
            )
            style = context._ContextParallel(2, context._ContextParallel.AttentionType.SDPA)
            parallelize_module(model.inner, mesh["cp"], style)
            context._enable_context_parallel_dispatcher()
            x = torch.randn(BATCH, LENGTH, HEADS * FEATURES)
            return model, context._context_parallel_shard(mesh["cp"], [x], [1])[0]

        return rank

    yield build
    context._disable_context_parallel_dispatcher()
    context._cp_options.rotate_method = rotation


CP = (("cp", RANKS),)


def test_keys_and_values_go_around(ring):
    # Each rank's come by in 3 sends; in backward again, with gradients that also return home.
    assert rows(noted(CP, ring("alltoall"))) == {
        ("send", "cp", "forward"): (3, 3 * KEYS_AND_VALUES),
        ("send", "cp", "backward"): (3 + 4, 7 * KEYS_AND_VALUES),
    }


def test_keys_and_values_are_gathered(ring):
    assert rows(noted(CP, ring("allgather"))) == {
        ("all_gather", "cp", "forward"): (1, RANKS * KEYS_AND_VALUES),
        ("all_gather", "cp", "backward"): (1, RANKS * KEYS_AND_VALUES),
        ("send", "cp", "backward"): (4, 4 * KEYS_AND_VALUES),
    }


def test_attention_without_a_ring_is_refused(ring):
    with pytest.raises(InputError) as refused:
        noted(CP, ring("alltoall", masked=True))
    assert refused.value.id == "attention-unsupported"


TOKENS, WIDTH, EXPERTS = 8, 16, 4


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH))

    def forward(self, tokens):
        weight = self.weight.to_local()
        return torch.bmm(tokens.view(len(weight), -1, WIDTH), weight).view(-1, WIDTH)


class ExpertParallel(ParallelStyle):
    """Each rank has some of the experts; tokens go to theirs and back, as many to each."""

    def _apply(self, module, mesh):
        def divide(_name, experts, mesh):
            weight = distribute_tensor(experts.weight, mesh, [Shard(0)])
            experts.weight = nn.Parameter(weight)

        def exchange(tokens):
            return all_to_all_single_autograd(tokens, None, None, mesh.get_group())

        return distribute_module(
            module,
            mesh,
            divide,
            lambda _module, inputs, _mesh: (exchange(inputs[0]),),
            lambda _module, outputs, _mesh: exchange(outputs),
        )


def test_tokens_go_to_their_experts_and_back():
    def rank(mesh):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), Experts())
        parallelize_module(model[1], mesh["ep"], ExpertParallel())
        return model, torch.randn(TOKENS, WIDTH)

    step = noted((("ep", 2),), rank)
    exchange = 4 * TOKENS * WIDTH
    assert rows(step) == {
        ("all_to_all", "ep", "forward"): (2, 2 * exchange),
        ("all_to_all", "ep", "backward"): (2, 2 * exchange),
    }
    assert step.memory.resting["parameters"] == 4 * (1 + EXPERTS // 2) * WIDTH * WIDTH
