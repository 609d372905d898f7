"""One rank of a small DistributedDataParallel job on the CPU, with a fault put into it.

`FAULT` is none or one of FAULTS, `--rank` the rank that has it (-1: all), `--extra` how much longer
its steps get, as a share of what they take without.
"""

import argparse
import contextlib
import gc
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FAULTS = ("forward", "backward", "loader", "optimizer", "host", "gc", "item")
WIDTH, DEPTH, BATCH = 512, 4, 192
CALIBRATION = 10  # steps, in which no fault is active
seconds = dict.fromkeys(FAULTS, 0.0)  # of each fault; set after the calibration


def sleep(duration):
    """Wait, if at all: a sleep of 0 gives the core to others."""
    if duration:
        time.sleep(duration)


class Delay(torch.autograd.Function):
    """Waits in its backward pass."""

    @staticmethod
    def forward(_context, x):
        """Return the input."""
        return x.view_as(x)

    @staticmethod
    def backward(_context, gradient):
        """Return the gradient, later."""
        sleep(seconds["backward"])
        return gradient


class Middle(nn.Module):
    """Waits in its forward pass."""

    def forward(self, x):
        """Return the input, later."""
        sleep(seconds["forward"])
        return Delay.apply(x)


class Batches(Dataset):
    """Waits for each batch."""

    def __init__(self, count):
        self.count = count
        self.batch = torch.randn(BATCH, WIDTH)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        """Return the batch, later."""
        sleep(seconds["loader"])
        return self.batch


def delay_optimizer(*_):
    """Wait before the optimizer's step."""
    sleep(seconds["optimizer"])


def run_python():
    """Run Python alone."""
    end, total = time.perf_counter() + seconds["host"], 0
    while time.perf_counter() < end:
        total += sum(range(100))


def collect():
    """Collect garbage again and again."""
    end = time.perf_counter() + seconds["gc"]
    while time.perf_counter() < end:
        gc.collect()


def read_items(values):
    """Read single values by `item()`."""
    end, total = time.perf_counter() + seconds["item"], 0.0
    while time.perf_counter() < end:
        for value in values:
            total += value.item()


def train(steps, fault, extra):
    """Train, with the fault from the step after the calibration."""
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)]
    model = nn.Sequential(*layers[: DEPTH // 2], Middle(), *layers[DEPTH // 2 :])
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    optimizer.register_step_pre_hook(delay_optimizer)
    loss_of, durations, last = nn.MSELoss(), [], time.perf_counter()
    for number, batch in enumerate(DataLoader(Batches(steps), batch_size=None)):
        optimizer.zero_grad()
        loss = loss_of(model(batch), batch)
        loss.backward()
        if seconds["host"]:
            run_python()
        if seconds["gc"]:
            collect()
        if seconds["item"]:
            read_items(loss.detach().expand(64))
        optimizer.step()
        durations.append(time.perf_counter() - last)
        last = time.perf_counter()
        if number == CALIBRATION:
            step = torch.tensor(statistics.median(durations[2:]))
            dist.broadcast(step, 0)
            if fault is not None:
                seconds[fault] = extra * float(step)


def main():
    """Run one rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("fault", choices=(*FAULTS, "none"))
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("--extra", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=80)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    has_fault = options.fault != "none" and options.rank in (-1, int(os.environ["RANK"]))
    with contextlib.suppress(KeyboardInterrupt):
        train(options.steps, options.fault if has_fault else None, options.extra)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
