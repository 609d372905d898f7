"""One fake rank's step, against what can be computed by hand; nothing is left of its job."""

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from torchgauge.analyze.parallel.rank_lifetimes import groups_of
from torchgauge.errors import InputError
from torchgauge.measure.parallel.checkpointing import repeated_layers
from torchgauge.measure.parallel.fake_job import fake_job
from torchgauge.measure.parallel.parallel_options import ParallelOptions
from torchgauge.measure.parallel.rank_step import RankStep, adapt_replicas, note_step
from torchgauge.measure.parallel.sharded_target import shard
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.training.training import Training

WIDTH, LAYERS, BATCH = 16, 3, 4
ELEMENTS = LAYERS * WIDTH * WIDTH
TRAINING = Training(lambda outputs, _: outputs.sum(), torch.optim.AdamW)


def layers():
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def noted(dims, sharded):
    with fake_job(dims, 0) as mesh:
        model = sharded(layers(), mesh)
        adapt_replicas(model)
        step = RankStep(model, Inputs.of(torch.randn(BATCH, WIDTH)), TRAINING)
        return note_step(step, groups_of(dims, 0))


def rows(step):
    return {
        (row.kind, row.group, row.phase, row.exposure): (row.calls, row.bytes)
        for row in step.collectives
    }


@pytest.fixture(scope="module")
def fsdp():
    def sharded(model, mesh):
        for layer in model:
            fully_shard(layer, mesh=mesh["fsdp"])
        return fully_shard(model, mesh=mesh["fsdp"])

    return noted((("fsdp", 4),), sharded)


def test_a_rank_of_four_holds_a_quarter(fsdp):
    resting = fsdp.memory.resting
    assert resting["parameters"] == 4 * ELEMENTS / 4
    assert resting["optimizer"] == 8 * ELEMENTS / 4 + 4 * LAYERS  # and a number of steps each
    assert resting["inputs"] == 4 * BATCH * WIDTH
    assert fsdp.memory.largest["gradients"] == 4 * ELEMENTS / 4


class Summed(torch.autograd.Function):
    """A layer's own collectives: its rows are gathered, and their gradients reduced."""

    @staticmethod
    def forward(ctx, x):
        whole = x.new_empty(2 * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(whole, x)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        part = gradient.new_empty(gradient.shape[0] // 2, gradient.shape[1])
        dist.reduce_scatter_tensor(part, gradient.contiguous())
        dist.all_reduce(part)
        return part


class Gathering(nn.Linear):
    """A layer that gathers what it computes."""

    def forward(self, x):
        """Map (N, WIDTH) to (2 N, WIDTH)."""
        return Summed.apply(super().forward(x))


def test_collectives_of_a_layer_of_the_users_are_no_gathers_of_fsdp():
    step = noted((("tp", 2),), lambda model, mesh: nn.Sequential(model, Gathering(WIDTH, WIDTH)))
    assert [pool.stream for pool in step.memory.pools] == ["compute"]
    assert "gathered" not in step.memory.largest
    elements = (LAYERS + 1) * WIDTH**2 + WIDTH
    assert step.memory.largest["gradients"] == 4 * elements
    assert {row.exposure for row in step.collectives} == {"exposed"}


def test_each_layer_is_gathered_twice_and_its_gradient_reduced_once(fsdp):
    layer = 4 * WIDTH * WIDTH
    collectives = rows(fsdp)
    gathered = {key: figures for key, figures in collectives.items() if key[0] == "all_gather"}
    assert sum(calls for calls, _ in gathered.values()) == 2 * LAYERS
    assert sum(size for _, size in gathered.values()) == 2 * LAYERS * layer
    # Nothing precedes the first gather, and nothing follows the last reduction.
    assert collectives["all_gather", "fsdp", "forward", "exposed"] == (1, layer)
    assert collectives["reduce_scatter", "fsdp", "backward", "exposed"] == (1, layer)
    reduced = ("reduce_scatter", "fsdp", "backward", "overlappable")
    assert collectives[reduced] == (LAYERS - 1, (LAYERS - 1) * layer)


def test_products_are_those_of_its_own_samples(fsdp):
    products = {}
    for row in fsdp.work:
        products[row.phase] = products.get(row.phase, 0) + row.matmul_flops
    forward = 2 * BATCH * ELEMENTS
    # The inputs need no gradient.
    assert products["forward"] == forward
    assert products["backward"] == 2 * forward - forward // LAYERS


def test_gathers_and_gradients_have_pools_of_their_own(fsdp):
    pools = {pool.stream: pool.peak for pool in fsdp.memory.pools}
    assert set(pools) == {"compute", "all_gather", "reduce_scatter"}
    assert pools["reduce_scatter"] == 4 * ELEMENTS / 4
    assert fsdp.memory.reserved == sum(pools.values()) > fsdp.memory.peak


def test_activations_belong_to_the_layers_that_made_them(fsdp):
    alive = {item.layer: item.bytes for item in fsdp.memory.at_peak if item.part == "activations"}
    assert set(alive) <= {"0", "1", "2", ""}


def test_replicas_reduce_all_gradients():
    step = noted(
        (("ddp", 2),), lambda model, mesh: DistributedDataParallel(model, device_mesh=mesh["ddp"])
    )
    ((kind, group, phase, _),) = rows(step)
    assert (kind, group, phase) == ("all_reduce", "ddp", "backward")
    assert sum(size for _, size in rows(step).values()) == 4 * ELEMENTS


def test_nothing_is_left_of_a_job(fsdp):
    assert not dist.is_initialized()
    assert type(torch.ones(1)) is torch.Tensor
    assert torch.ones(1).item() == 1.0


def test_repeated_layers_are_the_outermost_of_a_class():
    model = nn.ModuleDict({"blocks": nn.ModuleList(layers() for _ in range(2)), "head": layers()})
    names = [name for _, name in repeated_layers(model)]
    assert names == ["0", "1", "0", "1", "2"]  # the blocks, then those of the head


@pytest.mark.parametrize(
    ("mesh", "identity"),
    [("pp", "recipe-unknown"), ("ep", "recipe-unknown"), ("tp", "recipe-unfit")],
)
def test_what_no_recipe_shards_is_refused_by_name(mesh, identity):
    options = ParallelOptions(mesh=((mesh, 2),))
    with fake_job(options.mesh, 0) as job, pytest.raises(InputError, match=mesh) as refused:
        shard(layers(), job, options)
    assert refused.value.id == identity
