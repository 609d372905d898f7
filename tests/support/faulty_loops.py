"""Training loops with one thing wrong each, small enough for a CPU."""

import gc
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 8
# What is wrong with a loop, and the finding that names it; "clean" has nothing wrong.
EXPECTED = {
    "clean": None,
    "loader": "input-pipeline",
    "collection": "garbage-collection",
    "small": "small-operators",
    "optimizer": "optimizer-loop",
    "recompilation": "compilation",
}


class _Samples(Dataset):
    def __init__(self, count, seconds):
        self._count, self._seconds = count, seconds

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        if self._seconds:
            time.sleep(self._seconds)
        return torch.full((256,), index / self._count)


class _Network(nn.Module):
    """A network whose products take most of a step, with what the fault asks for beside it."""

    def __init__(self, fault):
        super().__init__()
        width = 256 if fault == "small" else 1024
        self.layers = nn.Sequential(
            nn.Linear(256, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 8),
        )
        count = 400 if fault == "optimizer" else 0
        self.many = nn.ParameterList(nn.Parameter(torch.zeros(8)) for _ in range(count))
        self.additions = 2000 if fault == "small" else 0

    def forward(self, samples):
        result = self.layers(samples)
        if len(self.many):
            result = result + torch.stack(list(self.many)).sum(0)
        for index in range(self.additions):
            result = result + index
        return result


class FaultyLoop:
    """A loop with a fault; `run` takes its steps and calls `ended` after each."""

    def __init__(self, fault, workers=0):
        self.fault = fault
        self._workers = workers
        self.model = _Network(fault)
        compiles = fault == "recompilation"
        self._call = (
            torch.compile(self.model, dynamic=False, backend="eager") if compiles else self.model
        )
        kind = torch.optim.Adam if fault == "optimizer" else torch.optim.SGD
        self._optimizer = kind(self.model.parameters(), 1e-4)
        # What a collection has to look through.
        self._objects = [[] for _ in range(500_000 if fault == "collection" else 0)]
        self._taken = 0

    def run(self, steps, ended=lambda: None):
        dataset = _Samples(steps * BATCH, 0.005 if self.fault == "loader" else 0)
        for samples in DataLoader(dataset, batch_size=BATCH, num_workers=self._workers):
            self._taken += 1
            batch = samples.repeat(16, 1)
            if self.fault == "recompilation":  # a size that never was before
                batch = batch.repeat(2, 1)[: 128 + self._taken]
            self._optimizer.zero_grad()
            self._call(batch).sum().backward()
            self._optimizer.step()
            if self.fault == "collection" and self._taken % 4 == 0:
                gc.collect()
            ended()
