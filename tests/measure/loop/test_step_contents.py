"""What a step of a loop consists of, whatever calls the model: FLOPs and phases counted by hand."""

import time

import pytest
import torch
from tests.support.watched_memory import run_alone
from torch import nn
from torch.utils.data import DataLoader, Dataset

import torchgauge as tg
from torchgauge.measure.loop import loop_memory

LONG, BATCH = 24, 8
# Of Linear(16, 32) and Linear(32, 1) in a forward pass, and in a backward one, which needs the
# gradient of the second's input and not of the first's.
FORWARD = 2 * BATCH * (16 * 32 + 32)
BACKWARD = FORWARD + 2 * BATCH * 32


def net():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))


def loss_of(model):
    return model(torch.randn(BATCH, 16)).square().mean()


def closure_of(model, optimizer):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    return closure


def flops(run):
    return run.record.utilization.model_flops


def phases(run, name):
    return {
        node.row.phase
        for node in run.tree.root.walk()
        if node.kind == "operator" and node.name.startswith(name)
    }


def bucket(run, name):
    found = [node for node in run.tree.root.children if (node.kind, node.name) == ("bucket", name)]
    return found[0] if found else None


@pytest.mark.parametrize("by_name", [False, True])
def test_a_step_by_a_closure_is_that_without(by_name):
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    closure = closure_of(model, optimizer)
    with tg.timeline(model) as run:
        for _ in range(LONG):
            returned = optimizer.step(closure=closure) if by_name else optimizer.step(closure)
    assert returned.shape == ()
    assert (run.record.by, run.record.count, run.captured.recorded) == ("optimizer", LONG, 5)
    assert [node.calls for node in run.tree.match("0")] == [1]
    assert flops(run) == FORWARD + BACKWARD
    assert phases(run, "aten::addmm") == {"forward"}
    assert phases(run, "AddmmBackward0") == {"backward"}
    assert phases(run, "Optimizer.zero_grad") == {"zero_grad"}
    assert phases(run, "Optimizer.step") == {"optimizer"}
    assert "aten::mean" in {node.name for node in bucket(run, "closure").walk()}


def test_the_time_of_a_closure_is_not_the_optimizer_s():
    model = nn.Sequential(nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    class Slow(nn.Module):
        def forward(self, x):
            time.sleep(0.004)
            return x

    model.append(Slow())
    closure = closure_of(model, optimizer)

    def slow_closure():
        time.sleep(0.002)
        return closure()

    with tg.timeline(model) as run:
        for _ in range(30):
            optimizer.step(slow_closure)
    times = run.record.step_times
    assert min(times.forward) > 0.004
    assert min(times.outside) > 0.002
    assert sum(times.optimizer) < sum(times.outside)


def test_a_closure_that_is_called_several_times_counts_each_time():
    class Thrice(torch.optim.SGD):
        def step(self, closure):
            losses = [closure() for _ in range(3)]
            super().step()  # with hooks of its own
            return losses[-1]

    model = net()
    torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = Thrice(model.parameters(), lr=0.01)
    closure = closure_of(model, optimizer)
    with tg.timeline(model) as run:
        for _ in range(LONG):
            optimizer.step(closure)
    assert run.record.count == LONG
    assert [node.calls for node in run.tree.match("0")] == [3]
    assert flops(run) == 3 * (FORWARD + BACKWARD)


def test_accumulated_gradients_are_all_in_the_step():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tg.timeline(model) as run:
        for _ in range(LONG):
            for _ in range(3):
                loss_of(model).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert (run.record.count, flops(run)) == (LONG, 3 * (FORWARD + BACKWARD))


def test_a_scaled_step_has_the_work_of_one():
    model = net()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.01), torch.amp.GradScaler("cpu")
    with tg.timeline(model) as run:
        for _ in range(LONG):
            scaler.scale(loss_of(model)).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert (run.record.count, flops(run)) == (LONG, FORWARD + BACKWARD)


def test_two_models_and_optimizers_are_one_step():
    generator, critic = nn.Linear(16, 16, bias=False), nn.Linear(16, 1, bias=False)
    of_generator, of_critic = (
        torch.optim.SGD(model.parameters(), lr=0.01) for model in (generator, critic)
    )
    with tg.timeline() as run:
        for _ in range(LONG):
            critic(generator(torch.randn(BATCH, 16)).detach()).mean().backward()
            of_critic.step()
            of_critic.zero_grad()
            critic(generator(torch.randn(BATCH, 16))).mean().backward()
            of_generator.step()
            of_generator.zero_grad()
    small, large = 2 * BATCH * 16, 2 * BATCH * 16 * 16  # of critic and generator
    forward = 2 * (small + large)
    backward = small + (2 * small + large)  # gradients of weights, and of the critic's input
    assert (run.record.by, run.record.count, flops(run)) == ("optimizer", LONG, forward + backward)


def test_an_optimizer_of_a_hook_in_the_backward_pass_is_no_backward():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model[0].weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())
    with tg.timeline(model) as run:
        for _ in range(LONG):
            loss_of(model).backward()
    assert phases(run, "Optimizer.step") == {"optimizer"}
    assert flops(run) == FORWARD + BACKWARD


class Scale(nn.Module):
    """A transform of samples, with a product and time that are its own."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(16), requires_grad=False)

    def forward(self, x):
        time.sleep(0.001)
        return x @ self.weight


class Samples(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return LONG * BATCH

    def __getitem__(self, _index):
        return self.transform(torch.randn(16))


def loader(where, workers):
    transform = nn.Sequential(Scale(), Scale())
    if where == "samples":
        return transform, DataLoader(Samples(transform), BATCH, num_workers=workers)
    return transform, DataLoader(
        Samples(nn.Identity()), BATCH, num_workers=workers,
        collate_fn=lambda samples: transform(torch.stack(samples)),
    )  # fmt: skip


@pytest.mark.parametrize("where", ["samples", "collate"])
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_modules_in_a_loader_are_its_own_work(where, workers):
    _, batches = loader(where, workers)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tg.timeline() as run:
        for x in batches:
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert (run.record.by, run.record.count) == ("optimizer", LONG)
    assert run.record.roots == ("Sequential",)
    assert {node.row.path for node in run.tree.root.layers} == {"Sequential"}
    assert flops(run) == FORWARD + BACKWARD
    assert [node.calls for node in run.tree.match("Sequential")] == [1]
    if not workers:
        times = run.record.step_times
        assert min(times.loading) > 0.002
        assert sum(times.forward) < sum(times.loading)
        assert "aten::matmul" in {node.name for node in bucket(run, "data loading").walk()}


def test_a_module_of_the_model_that_a_loader_calls_too_has_the_loop_s_calls_alone():
    model = nn.Sequential(Scale(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.01)
    batches = DataLoader(Samples(model[0]), BATCH)
    with tg.timeline(model) as run:
        for x in batches:
            model(x).square().mean().backward()
            optimizer.step()
    node = run.tree.find("0")
    assert node.calls == 1
    for calls in run._steps.stamped:
        assert len(calls) == 3


def test_values_that_a_loader_reads_are_not_the_loop_s():
    class Reading(Samples):
        def __getitem__(self, index):
            return super().__getitem__(index) * torch.ones(()).item()

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tg.timeline() as run:
        for x in DataLoader(Reading(nn.Identity()), BATCH):
            model(x).square().mean().backward()
            optimizer.step()
    assert run.record.scalars == ()


@pytest.fixture
def _alone(monkeypatch, request):
    run_alone(monkeypatch, request.node)


@pytest.mark.usefixtures("_alone")
def test_memory_that_a_loader_s_modules_take_is_loading():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    transform, batches = loader("collate", 0)
    watched = loop_memory.LoopMemoryWatch._origin
    sites = []

    def noted(self, recomputes):
        site = watched(self, recomputes)
        sites.append(site[0])
        return site

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_memory.LoopMemoryWatch, "_origin", noted)
        with tg.timeline(memory=True) as run:
            for x in batches:
                model(x).square().mean().backward()
                optimizer.step()
    assert run.captured.recorded == 5
    assert {site.layer for site in sites if site.phase == "loading"} == {""}
    assert {site.layer for site in sites if site.phase == "forward"} >= {"Sequential.0"}
    assert not run._modules.has(transform)
