"""Typical mistakes of newcomers on the command line, and what is printed for them.

`python -m tests.support.mistakes` prints a table of them.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support import records

from torchgauge.cli.main import main

MODELS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, image, scale=1.0):
        return self.conv(image) * scale


def make():
    return Net(), torch.ones(1, 3, 8, 8)


def bare():
    return Net()


def words():
    return nn.Embedding(10, 4), torch.ones(1, 5, dtype=torch.int64)


def wide(width):
    return nn.Linear(width, width)
"""
QUICK = ("--iterations", "2", "--warmup", "0", "--no-roofs")


class Mistake(NamedTuple):
    """A command without `torchgauge`, the id of its error, what it must tell, and the exit code."""

    command: str
    id: str
    tells: str
    code: int = 2
    without: str = ""  # a library that is not installed


MISTAKES = (
    # verbs and options
    Mistake("profle models.py:make", "verb-unknown", "torchgauge profile models.py:make"),
    Mistake("models.py:make", "verb-unknown", "torchgauge profile models.py:make"),
    Mistake("history lst", "action-unknown", "torchgauge history list"),
    Mistake(
        "profile models.py:make --precison bf16",
        "option-unknown",
        "torchgauge profile models.py:make --precision bf16",
    ),
    Mistake(
        "count models.py:make --dtype=bf16",
        "option-unknown",
        "torchgauge count models.py:make --precision=bf16",
    ),
    Mistake("profile models.py:make --detail Kernels", "option-invalid", "--detail kernels"),
    Mistake("profile models.py:make --batch 0", "option-invalid", "whole number of 1 or more"),
    Mistake("profile models.py:make --batch abc", "option-invalid", "whole number of 1 or more"),
    Mistake("profile models.py:make --batch -1", "option-invalid", "whole number of 1 or more"),
    Mistake("profile models.py:make --precision fp61", "precision-unknown", "fp16"),
    Mistake("profile models.py:make --device gpu", "device-unknown", "cuda"),
    Mistake("doctor models.py:make", "argument-unknown", "torchgauge doctor [options]"),
    # targets
    Mistake("profile", "target-missing", "For more: torchgauge profile --help"),
    Mistake("profile resnet18", "target-unknown", "torchvision:resnet18"),
    Mistake("profile bert-base-uncased", "target-unknown", "hf:bert"),
    Mistake("profile torchvison:resnet18", "module-missing", "torchvision:resnet18"),
    Mistake("profile torchvision:resnet19", "torchvision-unknown", "resnet18"),
    Mistake("profile models.py", "factory-missing", "make, bare, words"),
    Mistake("profile models.py:mak", "factory-missing", "models.py:make"),
    Mistake("profile models.make", "target-unknown", "models.py:make"),
    Mistake("profile model.py:make", "file-missing", "models.py"),
    Mistake("profile models.py:wide", "factory-arguments", "width"),
    Mistake("profile timm:resnet18", "missing-extra", "torchgauge-profiler[timm]", without="timm"),
    # inputs
    Mistake("profile models.py:bare", "input-missing", "image"),
    Mistake("profile models.py:bare --input imgae=1x3x8x8", "inputs-unfit", "image"),
    Mistake("profile models.py:bare --input 1,3,8,8", "input-spec", "1x3x8x8"),
    Mistake("profile models.py:bare --input 1x4x8x8", "forward-raised", "channels", 1),
    Mistake("profile models.py:words --input 1x5", "forward-raised", "int64", 1),
    # limits, and what is written
    Mistake("profile models.py:make --threshold latncy:5ms", "metric-unknown", "latency"),
    Mistake("profile models.py:make --threshold latency>5ms", "threshold-invalid", "latency:5ms"),
    Mistake("profile models.py:make --threshold latency:5", "threshold-invalid", "latency:5ms"),
    Mistake("profile models.py:make --output-dir notes.txt/x", "output-unwritable", "place"),
    Mistake("profile models.py:make --format csv", "option-conflict", "--output-dir"),
    Mistake("profile models.py:make --format pdf --output-dir o", "option-invalid", "html"),
    Mistake("profile models.py:make --weights run.json", "weights-unreadable", "state_dict"),
    # saved files
    Mistake("report notes.txt", "record-unreadable", "torchgauge"),
    Mistake("report runs.json", "file-missing", "run.json"),
    Mistake("report models.py:make", "file-missing", "torchgauge profile models.py:make"),
    Mistake("compare run.json", "argument-missing", "torchgauge compare A B"),
    Mistake(
        "compare run.json models.py:make", "compare-sides", "torchgauge profile models.py:make"
    ),
    Mistake("gate models.py:make", "option-conflict", "--base-ref"),
    Mistake("trace notes.txt", "trace-not-json", "torch.profiler"),
    Mistake("trace run.json", "trace-no-events", "torchgauge report run.json"),
    Mistake("snapshot notes.txt", "snapshot-not-one", "_dump_snapshot"),
    Mistake("history show latest --store h.db", "store-missing", "torchgauge history add"),
    # the other verbs
    Mistake("run scrpt.py", "file-missing", "script.py"),
    Mistake("run", "argument-missing", "torchgauge run [options] script.py"),
    Mistake("sweep models.py:make --batch 1,two", "axis-invalid", "two"),
    Mistake("advise models.py:make --candidates compil", "candidate-unknown", "compile"),
    Mistake("count models.py:make --on h10", "device-unknown", "h100"),
)


def write_files(folder: Path) -> None:
    """Write what the commands name: models, a saved run, a script, a text."""
    (folder / "models.py").write_text(MODELS)
    (folder / "script.py").write_text("print(1)\n")
    (folder / "notes.txt").write_text("only notes\n")
    records.profile().save(folder / "run.json")


def printed(mistake: Mistake | Sequence[str]) -> tuple[int, str, str]:
    """Run a command in the current folder; return its exit code, standard error and output."""
    arguments, absent = list(mistake), ""
    if isinstance(mistake, Mistake):
        arguments, absent = mistake.command.split(), mistake.without
        arguments += QUICK if mistake.code == 1 else ()
    out, err = io.StringIO(), io.StringIO()
    with _without(absent), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, err.getvalue(), out.getvalue()


@contextlib.contextmanager
def _without(library: str) -> Iterator[None]:
    """Let the library be one that is not installed."""
    before = sys.modules.get(library)
    if library:
        sys.modules[library] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if before is not None:
            sys.modules[library] = before
        else:
            sys.modules.pop(library, None)


def table() -> str:
    """Return the commands and what is printed, as Markdown."""
    lines = ["| mistake | exit | what is printed |", "|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        os.chdir(folder)
        for mistake in MISTAKES:
            code, err, _ = printed(mistake)
            text = "<br>".join(line.replace("|", "\\|") for line in err.strip().splitlines())
            lines.append(f"| `torchgauge {mistake.command}` | {code} | {text} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
