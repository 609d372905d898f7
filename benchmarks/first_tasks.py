"""Twelve things that people do first with a profiler: steps, and seconds to an answer.

    pip install --target PEERS --no-deps -r benchmarks/requirements-peers.txt
    python benchmarks/first_tasks.py PEERS [--before CHECKOUT] [--rounds 3] [--only NAME]

Each task is done by torchgauge and by what serves best for it among other tools, in turn, each in a
terminal of its own. A step is a command to type, or a line of Python to write for the tool. The
first output is the first text on the terminal; the answer is there once the terminal holds the
figure or the name that was asked for. `--before` does the same with an earlier checkout. Times are
medians of the rounds, and those of this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pty
import re
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "traces"
ESCAPES = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")
DEADLINE = 300.0  # seconds

PROFILER = """
import torch
from model import make
from torch.profiler import profile
model, images = make()
with torch.no_grad(), profile() as recorded:
    for _ in range(10):
        model(images)
print(recorded.key_averages().table(sort_by="self_cpu_time_total"))
"""
LLAMA = """
import torch, torchinfo
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(vocab_size=128256, hidden_size=8192, intermediate_size=28672,
    num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8)
with torch.device("meta"):
    model = LlamaForCausalLM(config)
torchinfo.summary(model, depth=1)
"""
DICT_MODEL = """
import torch
from transformers import BertConfig, BertModel
model = BertModel(BertConfig(num_hidden_layers=2)).eval()
ids = torch.randint(30000, (2, 64))
inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
"""
TIMERS = """
from model import make
from torch.utils.benchmark import Timer
model, images = make()
for batch in (1, 2, 4, 8, 16, 32):
    x = images[:1].expand(batch, -1, -1, -1).contiguous()
    time = Timer("model(x)", globals={"model": model, "x": x}).blocked_autorange().median
    print(batch, time, "below 100 ms" if time < 0.1 else "above")
print("done")
"""
COMPARE = """
from model import changed, make
from torch.utils.benchmark import Compare, Timer
timings = []
for name, build in (("before", make), ("after", changed)):
    model, images = build()
    timer = Timer("model(x)", globals={"model": model, "x": images}, description=name)
    timings.append(timer.blocked_autorange(min_run_time=2))
Compare(timings).print()
"""
FORWARD = """
import torch
from model import make
model, images = make()
with torch.no_grad():
    for _ in range(20):
        model(images)
"""
HTA = """
from hta.trace_analysis import TraceAnalysis
trace = TraceAnalysis(trace_files={0: "bert.json.gz"}, trace_dir=".")
print(trace.get_temporal_breakdown(visualize=False).T)
print(trace.get_idle_time_breakdown(ranks=[0], visualize=False)[0])
"""
BENCHMARKED = """
import os, pytest
from model import changed, make
def test_latency(benchmark):
    model, images = (changed if os.environ.get("CHANGED") else make)()
    benchmark(model, images)
"""


@dataclass(frozen=True)
class Way:
    """How a tool does a task: what is typed, what is written before, and what answers."""

    tool: str
    commands: tuple[str, ...]
    answer: str
    script: str = ""
    given: str = ""  # what the user has anyway, before the lines of `script`

    @property
    def steps(self) -> int:
        """Return the commands and the lines that a user writes."""
        return len(self.commands) + len(self.script.strip().splitlines())


@dataclass(frozen=True)
class Task:
    """What a user wants, with torchgauge and with another tool."""

    name: str
    ours: Way
    peer: Way
    earlier: tuple[str, ...] = field(default=())  # commands where an earlier version had others


def _ours(*commands: str, answer: str, script: str = "", given: str = "") -> Way:
    return Way("torchgauge", commands, answer, script, given)


TASKS = (
    Task(
        "first profile",
        _ours("torchgauge profile model.py:make", answer=r"(?i)bound by"),
        Way("torch.profiler", ("python script.py",), "Self CPU time total", PROFILER),
    ),
    Task(
        "count of 70 B parameters",
        _ours("torchgauge count hf:llama-3-70b", answer=r"70,553,706,496|70\.55? ?[GB]"),
        Way("torchinfo", ("python script.py",), "70,553,706,496", LLAMA),
        (
            "torchgauge count 'hf:llama?vocab_size=128256&hidden_size=8192&intermediate_size=28672"
            "&num_hidden_layers=80&num_attention_heads=64&num_key_value_heads=8'",
        ),
    ),
    Task(
        "own model in a notebook",
        _ours(
            "python -m IPython script.ipy", answer=r"(?i)bound by",
            script="import torchgauge as tg\nprint(tg.profile(model, images))",
            given="from model import make\nmodel, images = make()",
        ),
        Way(
            "torchinfo", ("python -m IPython script.ipy",), "Total mult-adds",
            "import torchinfo\nprint(torchinfo.summary(model, input_data=images))",
            "from model import make\nmodel, images = make()",
        ),
    ),
    Task(
        "inputs in a dictionary",
        _ours(
            "python script.py", answer=r"(?i)bound by", given=DICT_MODEL,
            script="import torchgauge as tg\nprint(tg.profile(model, inputs))",
        ),
        Way(
            "torchinfo", ("python script.py",), "Total mult-adds",
            "import torchinfo\nprint(torchinfo.summary(model, input_data=inputs))", DICT_MODEL,
        ),
    ),
    Task(
        "training script",
        _ours("torchgauge run train.py", answer=r"(?i)waiting for data|data"),
        Way("pyinstrument", ("python -m pyinstrument train.py",), r"__getitem__|sleep"),
    ),
    Task(
        "slow layer",
        _ours("torchgauge profile model.py:make", answer=r"blocks\.1"),
        Way("pyinstrument", ("python -m pyinstrument script.py",), r"Block\.forward", FORWARD),
    ),
    Task(
        "high memory",
        _ours("torchgauge profile model.py:make", answer=r"(?i)peak"),
        Way(
            "memray",
            (
                "python -m memray run --force -o memory.bin script.py",
                "python -m memray stats memory.bin",
            ),
            "largest allocating locations", FORWARD,
        ),
    ),
    Task(
        "batch under 100 ms",
        _ours(
            "torchgauge sweep model.py:make --batch 1,2,4,8,16,32 --where 'latency<100ms'",
            answer=r"(?i)best|not distinguishable|within",
        ),
        Way("torch.utils.benchmark", ("python script.py",), "done", TIMERS),
    ),
    Task(
        "did my change slow it",
        _ours("torchgauge compare model.py:make model.py:changed", answer=r"blocks\.2"),
        Way("torch.utils.benchmark", ("python script.py",), "Times are in", COMPARE),
    ),
    Task(
        "recorded trace",
        _ours("torchgauge trace bert.json.gz", answer=r"(?i)idle"),
        Way("HTA", ("python script.py",), "idle_time", HTA),
    ),
    Task(
        "memory snapshot",
        _ours("torchgauge snapshot memory.pickle", answer=r"(?i)peak|allocated"),
        Way(
            "torch _memory_viz",
            (
                "python -m torch.cuda._memory_viz trace_plot memory.pickle -o plot.html",
                "ls plot.html",
            ),
            "plot.html",
        ),
    ),
    Task(
        "gate in CI",
        _ours(
            "torchgauge profile model.py:make --processes 10 --output-dir base --quiet",
            "torchgauge gate --baseline base/profile.json model.py:changed",
            answer=r"blocks\.2|slower|worse",
        ),
        Way(
            "pytest-benchmark",
            (
                "python -m pytest -q test_script.py --benchmark-save=base",
                "CHANGED=1 python -m pytest -q test_script.py --benchmark-compare"
                " --benchmark-compare-fail=mean:10%",
            ),
            "Performance has regressed", BENCHMARKED,
        ),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """Seconds from the first command to the first text and to the answer, None without one."""

    first: float | None
    answer: float | None
    end: float


def outcome(way: Way, commands: tuple[str, ...], python_path: str) -> Outcome:
    """Do a task in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(Path(__file__).with_suffix("").with_name("first_tasks_files"), folder,
                        dirs_exist_ok=True)  # fmt: skip
        shutil.copy(DATA / "h100_bert_small.json.gz", folder / "bert.json.gz")
        shutil.copy(DATA / "snapshot_public_sample.pickle", folder / "memory.pickle")
        for script in ("script.py", "script.ipy", "test_script.py"):
            (folder / script).write_text(f"{way.given}\n{way.script}\n")
        _executable(folder / "bin" / "torchgauge", "-m torchgauge")
        _executable(folder / "bin" / "python", "")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= {
            "PATH": f"{folder / 'bin'}:{environment['PATH']}", "PYTHONPATH": python_path,
            "COLUMNS": "120", "TERM": "xterm", "NO_COLOR": "1",
        }  # fmt: skip
        return _watched(" && ".join(commands), folder, environment, re.compile(way.answer))


def _executable(path: Path, arguments: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
    path.chmod(0o755)


def _watched(
    command: str, folder: Path, environment: dict[str, str], answer: re.Pattern[str]
) -> Outcome:
    ours, theirs = pty.openpty()
    start = time.perf_counter()
    child = subprocess.Popen(
        ["sh", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs,
        stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    text, first, answered = "", None, None
    while time.perf_counter() - start < DEADLINE:
        if not select.select([ours], [], [], 1.0)[0]:
            continue
        try:
            read = os.read(ours, 65536)
        except OSError:  # the terminal is closed: all have ended
            break
        text += ESCAPES.sub("", read.decode("utf8", "replace"))
        now = time.perf_counter() - start
        if first is None and text.strip():
            first = now
        if answered is None and answer.search(text):
            answered = now
    end = time.perf_counter() - start
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # where it took too long
    os.close(ours)
    child.wait()
    if answered is None:
        print(text[-1500:], file=sys.stderr)
    return Outcome(first, answered, end)


def main() -> None:
    """Print a row for each task."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("peers", type=Path)
    parser.add_argument("--before", type=Path, help="an earlier checkout of torchgauge")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="tasks whose name holds this")
    options = parser.parse_args()
    print("| task | torchgauge: steps, first, answer |" + " before |" * bool(options.before)
          + " other tool | steps, first, answer |")  # fmt: skip
    print("|---|---|" + "---|" * bool(options.before) + "---|---|")
    for task in TASKS:
        if options.only in task.name:
            print(_row(task, options.peers, options.before, options.rounds), flush=True)


def _row(task: Task, peers: Path, before: Path | None, rounds: int) -> str:
    here = str(ROOT / "src")
    ways = [(task.ours, task.ours.commands, here)]
    if before is not None:
        commands = task.earlier or task.ours.commands
        ways.append((task.ours, commands, str(before / "src")))
    ways.append((task.peer, task.peer.commands, str(peers)))
    outcomes: list[list[Outcome]] = [[] for _ in ways]
    for _ in range(rounds):
        for (way, commands, path), kept in zip(ways, outcomes, strict=True):
            kept.append(outcome(way, commands, path))
    cells = [
        f"{way.steps}, {_median([o.first for o in kept])}, {_median([o.answer for o in kept])}"
        for (way, _, _), kept in zip(ways, outcomes, strict=True)
    ]
    return f"| {' | '.join([task.name, *cells[:-1], task.peer.tool, cells[-1]])} |"


def _median(seconds: list[float | None]) -> str:
    known = [time for time in seconds if time is not None]
    return f"{statistics.median(known):.1f} s" if len(known) == len(seconds) else "none"


if __name__ == "__main__":
    main()
