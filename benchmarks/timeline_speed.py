"""From the end of a recording to all tables: ours and key_averages(), each in processes of its own.

60 training steps of ResNet-18, about 10^5 events. Memory is what the peak of the resident set
rises by after the recording.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

COMMON = """
import sys, time
import torch, torchvision
from torch import nn

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))

def forget_peak():
    open("/proc/self/clear_refs", "w").write("5")

torch.manual_seed(0)
model = torchvision.models.resnet18()
x = torch.randn(2, 3, 32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
steps = int(sys.argv[1])

def step():
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()

for _ in range(3):
    step()
"""
OURS = (
    COMMON
    + """
import re, tempfile
from pathlib import Path
from torchgauge.analyze.timeline.attribution import attribute
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.analyze.timeline.residual import LayerTimes
from torchgauge.analyze.timeline.tree import node_table
from torchgauge.analyze.timeline.typical_step import typical
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.timeline.ranges import Ranges, step_range
from torchgauge.measure.recording.recording import Recorder
from torchgauge.records.timeline import tables
from torchgauge.readers.kineto.kineto import read_events

modules = Modules(model)
tree = CallTree(modules.table, modules.name)
with Ranges(model, modules).marking():
    recorder = Recorder(shapes=True)
    recorder.start()
    for number in range(steps):
        with step_range(number):
            step()
    recorder.stop()
forget_peak()
before, start = peak(), time.perf_counter()
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "recording.json"
    recorder.export(path)
    events = read_events(path)
table = node_table(events, attribute(events, tree), tree, re.compile(r"tg@[0-9]+"))
found = typical(table, LayerTimes([], []), step="training", passes=())
layers, operators = tables.layers(found), tables.operators(found)
shapes = tables.operators(found, by_shape=True)
seconds = time.perf_counter() - start
print(seconds, peak() - before, len(events), len(operators))
"""
)
THEIRS = (
    COMMON
    + """
from torch.profiler import ProfilerActivity, profile
recorder = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
with recorder:
    for number in range(steps):
        step()
forget_peak()
before, start = peak(), time.perf_counter()
names = recorder.key_averages()
shapes = recorder.key_averages(group_by_input_shape=True)
seconds = time.perf_counter() - start
print(seconds, peak() - before, len(recorder.events()), len(names))
"""
)


def main() -> None:
    """Print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    runs: dict[str, list[list[float]]] = {"torchgauge": [], "key_averages()": []}
    for _ in range(options.rounds):
        for name, code in zip(runs, (OURS, THEIRS), strict=True):
            command = [sys.executable, "-c", code, str(options.steps)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            runs[name].append([float(part) for part in done.stdout.split()])
    middle = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in runs.items()
    }
    for name, (seconds, memory, events, operators) in middle.items():
        print(
            f"{name:16} {seconds:7.3f} s   {memory / 1e6:7.0f} MB more   {events:,.0f} events, "
            f"{operators:.0f} operators"
        )
    ours, theirs = middle.values()
    print(f"{theirs[0] / ours[0]:.1f}× faster, {ours[1] / theirs[1]:.2f}× the memory")


if __name__ == "__main__":
    main()
