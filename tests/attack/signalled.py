"""Measures again and again in a process that another one sends signals to; tells what was changed.

One line of JSON for each time: how it ended, and what an observer that shares no code with
torchgauge finds changed. Signals are taken from the line "go" on until the measurement has ended.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import traceback

import torch
from benchmarks.hygiene_observer import differences, snapshot
from torch import nn

import torchgauge as tg

# What torch, Python and libraries fill once per process is no change that anybody would see.
WARM = 2


class StoppedError(BaseException):
    """What the program's own handler of SIGTERM raises: no error of the model's."""


def stop(*_):
    raise StoppedError


class Model(nn.Module):
    """Layers that write to themselves, an attribute that a forward sets, hooks, a frozen part."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(64, 64), nn.BatchNorm1d(64)
        self.drop, self.last = nn.Dropout(0.5), nn.Linear(64, 8)
        self.calls, self.seen = 0, []
        self.first.register_forward_hook(lambda *_: None)
        self.first.weight.requires_grad_(False)

    def forward(self, x):
        self.calls += 1
        self.seen.append(self.calls)
        return self.last(self.drop(self.norm(self.first(x)).relu()))


model, x = Model(), torch.randn(32, 64)
model(x).sum().backward()
model.norm.eval()


# A loop's own work is not undone: this one has none, not even a `torch.no_grad`, which a signal can
# leave half entered.
plain = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).eval().requires_grad_(False)


def loop():
    with tg.timeline(plain):
        for _ in range(40):
            plain(x)


TRAINING = tg.Training(
    loss=lambda outputs, inputs: outputs.square().mean(),
    optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
)  # fmt: skip
VERBS = {
    "profile": lambda: tg.profile(model, x, budget=0.2, roofs=False, progress=False),
    "train": lambda: tg.profile(
        model, x, train=TRAINING, budget=0.2, iterations=20, roofs=False, progress=False
    ),
    "count": lambda: tg.count_cost(model, x, backward=True),
    "latency": lambda: tg.measure_latency(model, x, iterations=50, warmup=5, progress=False),
    "memory": lambda: tg.measure_memory(model, x),
    "timeline": loop,
}


def quiet(there):
    """Ignore signals from now on; `there` gets the handlers that there were."""
    while True:
        try:
            if not there:
                there += [[signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]]
            for one in (signal.SIGINT, signal.SIGTERM):
                signal.signal(one, signal.SIG_IGN)
        except (KeyboardInterrupt, StoppedError):
            continue
        return


def observed(verb):
    """Run the verb once, and return how it ended."""
    start = time.perf_counter()
    try:
        verb()
        end = "returned"
    except (KeyboardInterrupt, StoppedError) as error:
        end = type(error).__name__
        error.__traceback__ = None
    except BaseException:  # noqa: BLE001 - it is told
        end = traceback.format_exc()
    return end, time.perf_counter() - start


def main():
    verb = VERBS[sys.argv[1]]
    mine = [signal.default_int_handler, stop]
    for _ in range(WARM):
        verb()
    end, seconds = observed(verb)
    print(json.dumps({"seconds": seconds}), flush=True)
    for line in sys.stdin:
        assert line == "next\n"
        before = {**snapshot(model, [x]), **snapshot(plain)}
        for one, handler in zip((signal.SIGINT, signal.SIGTERM), mine, strict=True):
            signal.signal(one, handler)
        end, there, begun = "", [], False
        while not end:
            try:
                if not begun:
                    begun = True
                    print("go", flush=True)
                end, _ = observed(verb)
            except (KeyboardInterrupt, StoppedError) as error:  # it had ended already
                end = type(error).__name__
        quiet(there)
        after = {**snapshot(model, [x]), **snapshot(plain)}
        changed = [name for name in differences(before, after) if name != "signals"]
        if there != [mine]:
            changed.append(f"signals {there}")
        print(json.dumps({"end": end, "changed": changed}), flush=True)


if __name__ == "__main__":
    main()
