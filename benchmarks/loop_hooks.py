"""What the hooks of `torchgauge run` add to a step of a small training loop, as a ratio.

    python benchmarks/loop_hooks.py --blocks 24

One process trains by turns inside a timeline that records nothing and outside of it: what is left
are the hooks that the verdict is made of, with `--on-oom` also the thread that watches memory.
"""

import argparse
import itertools
import math
import statistics
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchgauge as tg
from torchgauge.analyze.statistics.paired import estimate

STEPS = 150  # of a block
SETTLING = 30


def model_of(width):
    """Return a perceptron of six layers."""
    layers = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(6)]
    return nn.Sequential(*layers)


def train(model, optimizer, batches):
    """Train for a block and return the median seconds of a step, without the first ones."""
    durations, loss_of, last = [], nn.MSELoss(), time.perf_counter()
    for (batch,) in itertools.islice(batches, STEPS):
        optimizer.zero_grad()
        loss_of(model(batch), batch).backward()
        optimizer.step()
        now = time.perf_counter()
        durations.append(now - last)
        last = now
    return statistics.median(durations[SETTLING:])


def block(model, optimizer, data, options):
    """Return the median step of a block; None for `options` is one without a timeline."""
    if options is None:
        return train(model, optimizer, iter(data))
    with tg.timeline(model, schedule=tg.Schedule(skip=10 * STEPS), **options):
        return train(model, optimizer, iter(data))


def main():
    """Print the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for width in arguments.widths:
        model = model_of(width)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        data = DataLoader(TensorDataset(torch.randn(64 * STEPS, width)), batch_size=64)
        with tempfile.TemporaryDirectory() as folder:
            for name, options in (("hooks", {}), ("hooks, --on-oom", {"on_oom": folder})):
                ratios, bare = [], []
                for number in range(arguments.blocks):
                    pair = [options, None] if number % 2 else [None, options]
                    times = {turn is None: block(model, optimizer, data, turn) for turn in pair}
                    ratios.append(math.log(times[False] / times[True]))
                    bare.append(times[True])
                found = estimate(ratios)
                low, mean, high = (math.exp(v) for v in (found.low, found.mean, found.high))
                print(
                    f"width {width}: step {statistics.median(bare) * 1e3:.3f} ms, "
                    f"{name}: {mean:.4f} ({low:.4f} to {high:.4f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
