"""Ends the steps of a loop in one of many ways: `step_ends.py WAY timeline|run plain|compiled`.

With "timeline" the loop is inside `tg.timeline`; with "run" it is what `torchgauge run` is given.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchgauge as tg

STEPS = 24
WAYS = {}


def way(function):
    WAYS[function.__name__] = function
    return function


class World:
    """A small net, plain or compiled, its optimizer, and its loss of random inputs."""

    def __init__(self, *, compiled):
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
        self.run = torch.compile(self.net, backend="aot_eager") if compiled else self.net
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)

    def inputs(self):
        return torch.randn(8, 16, requires_grad=True)

    def loss(self, before=lambda x: x):
        """What is in `before` comes last in the backward pass, which needs the weights no more."""
        return self.run(before(self.inputs())).square().mean()

    def update(self, *_):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def train(self):
        self.loss().backward()
        self.update()


@way
def after_backward(world):
    for _ in range(STEPS):
        world.train()


@way
def for_each_parameter_in_backward(world):
    for parameter in world.net.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.01)

        def step(_parameter, optimizer=optimizer):
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(STEPS):
        world.loss().backward()


@way
def in_a_tensor_hook(world):
    def hooked(x):
        shifted = x + 1
        shifted.register_hook(world.update)
        return shifted

    for _ in range(STEPS):
        world.loss(hooked).backward()


@way
def in_a_backward_hook_of_a_module(world):
    stem = nn.Tanh()
    stem.register_full_backward_hook(world.update)
    for _ in range(STEPS):
        world.loss(stem).backward()


@way
def in_a_function_s_backward(world):
    class Steps(torch.autograd.Function):
        @staticmethod
        def forward(_context, x):
            return x * 1

        @staticmethod
        def backward(_context, gradient):
            world.update()
            return gradient

    for _ in range(STEPS):
        world.loss(Steps.apply).backward()


@way
def as_the_engine_ends(world):
    engine = torch.autograd.Variable._execution_engine
    for _ in range(STEPS):
        loss = world.loss()
        loss.register_hook(lambda _gradient: engine.queue_callback(world.update))
        loss.backward()


@way
def in_a_checkpoint_that_runs_again(world):
    def part(x):
        if torch._C._current_graph_task_id() != -1:
            world.update()
        return x.tanh()

    for _ in range(STEPS):
        world.loss(lambda x: checkpoint(part, x, use_reentrant=True)).backward()


@way
def by_a_closure(world):
    optimizer = torch.optim.LBFGS(world.net.parameters(), max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = world.loss()
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)


@way
def by_a_scaler_that_skips_some(world):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for number in range(STEPS):
        factor = float("inf") if number % 5 == 2 else 1.0
        scaler.scale(world.loss() * factor).backward()
        scaler.step(world.optimizer)
        scaler.update()
        world.optimizer.zero_grad()


@way
def on_a_thread_for_each_step(world):
    for _ in range(STEPS):
        thread = threading.Thread(target=world.train)
        thread.start()
        thread.join()


@way
def beside_threads_that_call_another_model_first(world):
    frozen = nn.Linear(16, 16).requires_grad_(False)
    with ThreadPoolExecutor(1) as pool:
        for number in range(4 * STEPS):
            pool.submit(frozen, torch.randn(8, 16)).result()
            if number > 4:  # in the middle of what is recorded of those calls
                world.train()


@way
def on_a_thread_that_ends_amid_a_recording(world):
    def part():
        for _ in range(4):
            world.train()

    for _ in range(STEPS // 4):
        thread = threading.Thread(target=part)
        thread.start()
        thread.join()


@way
def in_a_module_s_forward(world):
    class Trainer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = world.net

        def forward(self):
            world.train()

    trainer = Trainer()
    for _ in range(STEPS):
        trainer()


@way
def in_the_loader(world):
    class Steps(torch.utils.data.Dataset):
        def __len__(self):
            return STEPS

        def __getitem__(self, _index):
            world.train()
            return 0

    for _ in torch.utils.data.DataLoader(Steps()):
        pass


def main(name, how, kind):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    world = World(compiled=kind == "compiled")
    if how == "run":
        WAYS[name](world)
    else:
        with tg.timeline(world.net) as run:
            WAYS[name](world)
        print("steps", run.record.count, "recorded", run.captured.recorded)
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
