"""Records blocks and runs of one build on a busy machine, call by call, for simulations.

`busy_recordings.py record FILE --load 8 --seconds 600` (Linux) keeps about so many processes
running beside the measurement (its own are stopped and continued as others come and go) and appends
a line of JSON for each block, and for each run, of three models in turn. A block is as a gate has
it: four processes in the order A, B, B, A, four visits of 0.1 s each, then three in which layers
are stamped. A run is as a latency has it: processes one after the other for five seconds. Of each
call the wall clock, the main thread's CPU time and the whole process's are kept. Processes are
forked from this one, which has imported torch and run nothing.
`busy_recordings.py pack FILES… busy_blocks.json.gz` keeps of them what the simulations need.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

STRESS = r"""
import random, sys, time
import numpy as np
kind = sys.argv[1]
a = np.ones(2_000_000)
m = np.ones((300, 300))
while True:
    if kind == "python":
        sum(range(100_000))
    elif kind == "copy":
        a[:] = a[::-1]
    elif kind == "matmul":
        m @ m
    else:
        end = time.monotonic() + random.expovariate(5)
        while time.monotonic() < end:
            sum(range(10_000))
        time.sleep(random.expovariate(8))
"""
KINDS = ("python", "bursts", "copy", "bursts", "matmul", "bursts")
ROUNDS, VISIT, CALLS, LAYER_ROUNDS = 4, 0.1, 3, 3
WAKING, WARMUP, WARMUP_CALLS = 0.02, 0.5, 3
RUN, PROCESS, PROCESS_CALLS = 5.0, 0.3, 10


def running():
    """Return the processes that run or wait for a core now, without this one."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("procs_running"):
            return int(line.split()[1]) - 1
    return 0


class Stress:
    """Children that keep about `load` others running; each is stopped when there are enough."""

    def __init__(self, load):
        self.load, self.active = load, 0
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self.children = [
            subprocess.Popen(
                [sys.executable, "-c", STRESS, KINDS[n % len(KINDS)]], env=os.environ | one
            )
            for n in range(round(load * 1.7))
        ]
        for child in self.children:
            child.send_signal(signal.SIGSTOP)
        self.seen = []
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.keep, daemon=True)
        self.thread.start()

    def keep(self):
        """Stop and continue children so that about `load` processes run."""
        recent = []
        while not self.done.wait(0.13):
            recent.append(running())
            self.seen.append(recent[-1])
            if len(recent) < 10 or not self.children:
                continue
            mean = statistics.fmean(recent)
            recent = recent[-2:]
            if mean < self.load - 0.5 and self.active < len(self.children):
                self.children[self.active].send_signal(signal.SIGCONT)
                self.active += 1
            elif mean > self.load + 1 and self.active:
                self.active -= 1
                self.children[self.active].send_signal(signal.SIGSTOP)

    def take(self):
        """Return the mean of what ran since the last time."""
        seen, self.seen = self.seen, []
        return statistics.fmean(seen) if seen else 0.0

    def close(self):
        """End the children."""
        self.done.set()
        for child in self.children:
            child.kill()
            child.wait()


def subject(name):
    """Return a model and its input."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    if name == "mlp":
        layers = [layer for _ in range(8) for layer in (nn.Linear(384, 384), nn.ReLU())]
        return nn.Sequential(*layers), torch.randn(192, 384)
    if name == "transformer":
        layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
        return nn.TransformerEncoder(layer, 2), torch.randn(1, 32, 128)
    blocks = [
        nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        for _ in range(6)
    ]
    return nn.Sequential(*blocks), torch.randn(1, 32, 56, 56)


class Child:
    """The forked process: loads, warms up, then answers."""

    def __init__(self, name):
        import torch

        self.model, self.inputs = subject(name)
        self.model.eval()
        self.torch = torch

    def call(self):
        """Return the ns of one call: by the wall, the main thread's CPU and the process's."""
        w, t, p = time.perf_counter_ns(), time.thread_time_ns(), time.process_time_ns()
        self.model(self.inputs)
        return (time.perf_counter_ns() - w, time.thread_time_ns() - t, time.process_time_ns() - p)

    def calls(self, seconds, least):
        """Return the times of calls."""
        found, end = [], time.perf_counter() + seconds
        while len(found) < least or time.perf_counter() < end:
            found.append(self.call())
        return found

    def warm(self):
        """Run until all has been allocated."""
        self.calls(WARMUP, WARMUP_CALLS)

    def visit(self):
        """Time as one visit of a gate does."""
        self.calls(WAKING, 1)
        calls = self.calls(VISIT, CALLS)
        return {"calls": list(zip(*calls, strict=True))}

    def layers(self):
        """Return by layer the median wall ns, the median CPU ns, the least of both."""
        stack, steps = [], []

        def enter(_, __):
            stack.append((time.perf_counter_ns(), time.thread_time_ns()))

        def leave(module, *_):
            w, t = stack.pop()
            steps[-1].setdefault(module, []).append(
                (time.perf_counter_ns() - w, time.thread_time_ns() - t)
            )

        leaves = [m for m in self.model.modules() if not list(m.children())]
        hooks = [m.register_forward_pre_hook(enter) for m in leaves]
        hooks += [m.register_forward_hook(leave) for m in leaves]
        end = time.perf_counter() + 0.1
        while len(steps) < 6 or (len(steps) < 60 and time.perf_counter() < end):
            steps.append({})
            self.model(self.inputs)
        for hook in hooks:
            hook.remove()
        by_layer = []
        for leaf in leaves:
            times = [
                [sum(c) for c in zip(*step[leaf], strict=True)]
                for step in steps[1:]
                if leaf in step
            ]
            if times:
                wall, cpu = zip(*times, strict=True)
                by_layer.append(
                    [statistics.median(wall), statistics.median(cpu), min(wall), min(cpu)]
                )
        return by_layer

    def run(self):
        """Time as a short latency does, then the layers."""
        calls = []
        end = time.perf_counter() + PROCESS
        while len(calls) < PROCESS_CALLS or time.perf_counter() < end:
            calls.append(self.call())
        return {"calls": list(zip(*calls, strict=True)), "layers": self.layers()}


class Forked:
    """The parent's end of a child."""

    def __init__(self, name):
        there, here = os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                os.close(there[1]), os.close(here[0])
                serve(name, os.fdopen(there[0]), os.fdopen(here[1], "w"))
                code = 0
            finally:
                os._exit(code)
        os.close(there[0]), os.close(here[1])
        self.questions, self.answers = os.fdopen(there[1], "w"), os.fdopen(here[0])

    def ask(self, question):
        """Return the answer to a question."""
        self.questions.write(question + "\n")
        self.questions.flush()
        return self.answer()

    def answer(self):
        """Return the next answer."""
        return json.loads(self.answers.readline())

    def close(self):
        """End the child."""
        self.questions.write("end\n")
        self.questions.close()
        self.answers.close()
        os.waitpid(self.pid, 0)


def serve(name, questions, answers):
    """Answer until there are no questions."""
    import torch

    torch.set_grad_enabled(False)
    child = Child(name)

    def say(what):
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    with torch.inference_mode():
        if questions.readline().strip() == "warm":
            child.warm()
        say("ready")
        for line in iter(questions.readline, "end\n"):
            say(getattr(child, line.strip())())


def block(name):
    """Return the visits and layers of four processes."""
    children = [Forked(name) for _ in range(4)]
    for child in children:
        child.questions.write("warm\n")
        child.questions.flush()
    for child in children:
        child.answer()
    visits = [[] for _ in children]
    for _ in range(ROUNDS):
        for child, found in zip(children, visits, strict=True):
            found.append(child.ask("visit"))
    layers = [[] for _ in children]
    for _ in range(LAYER_ROUNDS):
        for child, found in zip(children, layers, strict=True):
            found.append(child.ask("layers"))
    for child in children:
        child.close()
    return {"visits": visits, "layers": layers}


def latency_run(name):
    """Return the processes of a run."""
    processes, end = [], time.monotonic() + RUN
    longest = 0.0
    while len(processes) < 3 or (len(processes) < 20 and time.monotonic() + longest < end):
        start = time.monotonic()
        child = Forked(name)
        child.ask("none")
        processes.append(child.ask("run"))
        child.close()
        longest = max(longest, time.monotonic() - start)
    return {"processes": processes}


def packed(files):
    """Return what simulations need, by name of file and model.

    Logs of seconds by process: of typical, fastest and undisturbed calls, of a block's layers; and
    the share of the undisturbed moments in which the main thread had a core.
    """
    found = {"blocks": {}, "runs": {}}
    for file in files:
        for row in map(json.loads, file.read_text().splitlines()):
            if row["kind"] == "block":
                calls = [[v["calls"][0] for v in visits] for visits in row["visits"]]
                layers = row["layers"]
            else:
                calls = [[process["calls"][0]] for process in row["processes"]]
                layers = [[process["layers"]] for process in row["processes"]]
            one = packed_processes(calls, layers) | {"running": round(row["running"], 1)}
            if row["kind"] == "run":
                del one["layers"]
            found[f"{row['kind']}s"].setdefault(f"{file.stem}, {row['model']}", []).append(one)
    return found


def packed_processes(calls, layers):
    """Return the logs from ns of calls, and of layers, by process and visit."""
    least = [
        [[min(times) for times in zip(*one, strict=True)] for one in zip(*visits, strict=True)]
        for visits in layers
    ]
    wall = [sum(times[2] for times in process) for process in least]
    return {
        "typical": [
            round(statistics.fmean(map(log, map(statistics.median, visits))), 4) for visits in calls
        ],
        "fastest": [log(min(map(min, visits))) for visits in calls],
        "undisturbed": list(map(log, wall)),
        "quiet": [
            round(sum(times[3] for times in process) / total, 2)
            for process, total in zip(least, wall, strict=True)
        ],
        "layers": [[log(times[2]) for times in process] for process in least],
    }


def log(nanoseconds):
    """Return the log of seconds, to a ten-thousandth."""
    return round(math.log(nanoseconds / 1e9), 4)


def record(file, load, seconds, names, works):
    """Append blocks and runs to the file."""
    import torch  # noqa: F401 - children have it from here

    stress = Stress(load)
    try:
        time.sleep(15 if load else 1)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for name in names:
                for work in works:
                    stress.take()
                    began = time.time()
                    found = (block if work == "block" else latency_run)(name)
                    line = {
                        "kind": work,
                        "model": name,
                        "wanted": load,
                        "at": began,
                        "took": time.time() - began,
                        "running": stress.take(),
                        "average": os.getloadavg()[0],
                        "active": stress.active,
                        **found,
                    }
                    with file.open("a") as out:
                        out.write(json.dumps(line) + "\n")
                    print(
                        time.strftime("%H:%M:%S"),
                        work,
                        name,
                        *(f"{k} {line[k]:.1f}" for k in ("took", "running", "average", "active")),
                        flush=True,
                    )
    finally:
        stress.close()


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["record", "pack"])
    parser.add_argument("files", type=Path, nargs="+", help="to pack: recordings, and the result")
    parser.add_argument("--load", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--models", nargs="*", default=["mlp", "convolutions", "transformer"])
    parser.add_argument("--works", nargs="*", default=["block", "run"])
    given = parser.parse_args()
    if given.what == "pack":
        *recordings, result = given.files
        text = json.dumps(packed(recordings), separators=(",", ":"))
        result.write_bytes(gzip.compress(text.encode(), mtime=0))
        return
    record(given.files[0], given.load, given.seconds, given.models, given.works)


if __name__ == "__main__":
    main()
