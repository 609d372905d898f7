"""Models divided among devices: counted whole, with how many devices share a batch.

Quickly with ranks that are not there, slowly with two that are: hand-computed FLOPs of an MLP.
"""

import subprocess
import sys

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

from torchgauge.errors import InputError
from torchgauge.measure.training.model_calls import BatchFlops
from torchgauge.measure.training.whole_modules import class_of, division, unwrapped
from torchgauge.targets.inputs.inputs import Inputs

# Of a sample: the first layer's input needs no gradient, all else two products backward.
FLOPS = 4 * (8 * 16) + 6 * (16 * 4)
X = Inputs((torch.ones(3, 8),))
PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}


@pytest.fixture
def mesh():
    """A mesh of 2 × 4 ranks, of which this process is one and the others are not there."""
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    yield init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    dist.destroy_process_group()


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def test_fsdp_is_counted_as_each_device_runs_it(mesh):
    policy = MixedPrecisionPolicy(torch.bfloat16)
    model = mlp()
    fully_shard(model[0], mesh=mesh["dp"], mp_policy=policy)
    fully_shard(model, mesh=mesh["dp"], mp_policy=policy)
    flops = BatchFlops(model)
    assert flops.products(X).by_dtype == {"bfloat16": 3 * FLOPS}, flops.reason
    assert flops.division == (1, "bfloat16")
    assert class_of(model) is nn.Sequential
    assert model[0].weight.shape == (16, 8)
    assert model[0].weight.to_local().shape == (8, 8)  # the training's own is what it was


def test_devices_along_tensor_parallelism_share_a_batch(mesh):
    model = parallelize_module(mlp(), mesh["tp"], PLAN)
    flops = BatchFlops(model)
    assert flops.products(X).model == 3 * FLOPS, flops.reason
    assert flops.division == (4, "")
    fully_shard(model, mesh=mesh["dp"])
    both = BatchFlops(model)
    assert both.products(X).model == 3 * FLOPS, both.reason
    assert both.division == (4, "")


def test_other_divisions_are_not_guessed(mesh):
    model = mlp()
    experts = init_device_mesh("cpu", (8,), mesh_dim_names=("ep",))
    weight = distribute_tensor(model[0].weight, experts, [Shard(0)])
    model[0].weight = nn.Parameter(weight)
    with pytest.raises(InputError, match="divided along 'ep'"):
        division(model)
    assert BatchFlops(model).products(X) is None
    with pytest.raises(InputError, match="DataParallel"):
        unwrapped(nn.DataParallel(mlp()))


RANKS = """
import sys, warnings
import torch
from torch import distributed as dist, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, TensorDataset
from accelerate import Accelerator
from torchgauge.integrate.accelerate import Gauge
from torchgauge.measure.training import gauge as module
from torchgauge.records.work.utilization import PeakUsed

warnings.simplefilter("ignore")
module.device_peak = lambda *_: PeakUsed(
    device="a", dtype="float32", flops_per_second=1e12, source="measured"
)
accelerator, rows = Accelerator(cpu=True), torch.ones(48, 8)

def divided(kind, model):
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if kind == "fsdp":
        model[0] = FullyShardedDataParallel(model[0], device_id=torch.device("cpu"))
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    if kind == "fsdp2":
        fully_shard(model[0])
        return fully_shard(model)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

for kind in ("ddp", "fsdp", "fsdp2", "tp"):
    model = divided(kind, nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(TensorDataset(rows), 4)
    loader = loader if kind == "tp" else accelerator.prepare(loader)
    with Gauge(accelerator, model, loader) as gauge:
        for (x,) in loader:
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    run = gauge.record
    used = run.utilization
    assert used is not None, (kind, run.unknown)
    flops = run.samples * FLOPS
    assert used.model_flops * run.rated == flops, (kind, used.model_flops * run.rated, flops)
    ratio = used.mfu / (flops / run.time / used.devices / 1e12)
    assert abs(ratio - 1) < 1e-6, (kind, ratio)
    if dist.get_rank() == 0:
        print(kind, run.model, run.replicas, used.devices, run.samples)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_ranks_of_each_kind_have_the_utilization_of_the_closed_form(tmp_path):
    program = tmp_path / "ranks.py"
    program.write_text(RANKS.replace("FLOPS", str(FLOPS)))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(
        [*torchrun, str(program)], capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "ddp Sequential 2 1 16",
        "fsdp Sequential 2 1 16",
        "fsdp2 Sequential 2 1 16",
        "tp Sequential 1 2 40",
    ]
