"""Makes tiny_training.json.gz: one training step under torch.profiler, on the CPU."""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.ones(2, 8)

    def step() -> None:
        optimizer.zero_grad()
        with record_function("tg#0"):
            loss = model(inputs).sum()
        loss.backward()
        optimizer.step()

    step()
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        experimental_config=_ExperimentalConfig(capture_overload_names=True),
    ) as recorder:
        step()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "tiny_training.json"
        recorder.profiler.kineto_results.save(str(path))
        text = re.sub(rb'"host_name": "[^"]*"', b'"host_name": "host"', path.read_bytes())
    Path(sys.argv[1]).write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main()
