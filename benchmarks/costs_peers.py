"""MACs by seven tools over 161 real models, each tool in a process of its own.

Install the peers apart, without their dependencies on torch, and say where:

    pip install --target PEERS --no-deps -r benchmarks/requirements-peers.txt
    python benchmarks/costs_peers.py PEERS

Small elementwise work that some tools add to their MACs is let pass: what counts as agreeing is
within 5 % of torchgauge, whose own figures are held against torch's FlopCounterMode, operator by
operator, in costs_models.py, and against hand counts in tests/.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hygiene_models import candidates
from hygiene_peers import IMPORTED
from torchgauge.targets.target import Target

AGREES = 0.05
TIME_LIMIT = 1200
MODEL_LIMIT = 30  # seconds for one model: a fork may wait for a lock that nobody holds any more


class Positional(nn.Module):
    """A model whose named inputs come by position, as some tools need them."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *args: torch.Tensor) -> Any:
        """Call the model by name."""
        return self.model(**dict(zip(self.names, args, strict=True)))


def _torchgauge(model: nn.Module, inputs: tuple[Any, ...]) -> float:
    import torchgauge as tg

    return tg.count_cost(model, inputs).macs


def _flop_counter(model: nn.Module, inputs: tuple[Any, ...]) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*inputs)
    return counter.get_total_flops() / 2


def _thop(model: nn.Module, inputs: tuple[Any, ...]) -> float:
    from thop import profile

    return float(profile(model, inputs=inputs, verbose=False)[0])


def _torchinfo(model: nn.Module, inputs: tuple[Any, ...]) -> float:
    from torchinfo import summary

    return float(summary(model, input_data=inputs, verbose=0).total_mult_adds)


def _ptflops(model: nn.Module, inputs: tuple[Any, ...]) -> float:
    from ptflops import get_model_complexity_info

    names = list(inspect.signature(type(model).forward).parameters)[1:]
    if isinstance(model, Positional):
        model, names = model.model, list(model.names)
    given = dict(zip(names, inputs, strict=False))
    found = get_model_complexity_info(
        model, (1,), input_constructor=lambda _: given, as_strings=False,
        print_per_layer_stat=False, verbose=False,
    )[0]  # fmt: skip
    return float(found)  # None where it failed: a TypeError here


def _fvcore(model: nn.Module, inputs: tuple[Any, ...]) -> float:
    from fvcore.nn import FlopCountAnalysis

    analysis = FlopCountAnalysis(model, inputs)
    quiet = analysis.unsupported_ops_warnings(enabled=False)
    return float(quiet.uncalled_modules_warnings(enabled=False).total())


def _calflops(model: nn.Module, inputs: tuple[Any, ...]) -> float:
    from calflops import calculate_flops

    return float(
        calculate_flops(
            model, args=list(inputs), output_as_string=False, print_results=False,
            print_detailed=False,
        )[1]
    )  # fmt: skip


def _flops_profiler(model: nn.Module, inputs: tuple[Any, ...]) -> float:
    from flops_profiler.profiler import get_model_profile

    return float(
        get_model_profile(model, args=list(inputs), print_profile=False, as_string=False)[1]
    )


TOOLS: dict[str, Callable[[nn.Module, tuple[Any, ...]], float]] = {
    "torchgauge": _torchgauge,
    "FlopCounterMode": _flop_counter,
    "fvcore": _fvcore,
    "ptflops": _ptflops,
    "thop": _thop,
    "torchinfo": _torchinfo,
    "calflops": _calflops,
    "flops-profiler": _flops_profiler,
}


def by_position(target: Target) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return the model in evaluation mode, and its inputs by position."""
    model = target.model
    assert isinstance(model, nn.Module)
    named = target.inputs.kwargs
    if not named:
        return model.eval(), target.inputs.args
    return Positional(model, tuple(named)).eval(), (*target.inputs.args, *named.values())


def count_all(tool: str, out: Path) -> None:
    """Write name → MACs, or the error's name, one JSON document a line, each by a fork."""
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    for module in IMPORTED.get(tool, ("torch._dynamo", "torch.utils.flop_counter")):
        importlib.import_module(module)
    with out.open("w") as lines:
        for candidate in candidates():
            torch.manual_seed(0)
            target = candidate.make()  # here, so that what it imports is imported once
            if (child := os.fork()) == 0:  # some leave patches behind that count the next one too
                signal.alarm(MODEL_LIMIT)
                lines.write(json.dumps([candidate.name, count_one(tool, target)]) + "\n")
                lines.flush()
                os._exit(0)
            os.waitpid(child, 0)


def count_one(tool: str, target: Target) -> Any:
    """Return the MACs, or the error's name."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return TOOLS[tool](*by_position(target))
    except Exception as error:  # noqa: BLE001 - a tool may raise anything
        return type(error).__name__


def in_its_own_process(tool: str, peers: Path) -> dict[str, Any]:
    """Return what the tool found; models after its process died are missing."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.jsonl"
        environment = {**os.environ, "PYTHONPATH": str(peers)}
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [sys.executable, __file__, str(peers), "--tool", tool, "--out", str(out)],
                env=environment, check=False, timeout=TIME_LIMIT, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        return dict(map(json.loads, out.read_text().splitlines())) if out.exists() else {}


def judged(found: Any, right: Any) -> str:
    """Return in which column a tool's figure belongs."""
    if not isinstance(found, int | float):
        return "failed"
    if not isinstance(right, int | float):
        return "no reference"
    if found == right:
        return "equal"
    if right and abs(found / right - 1) <= AGREES:
        return "within 5 %"
    return "less" if found < right else "more"


def main() -> None:
    """Print a Markdown table: how often each tool agrees, says less or more, fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", type=Path)
    parser.add_argument("--tool", choices=list(TOOLS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--details", action="store_true", help="print every figure that differs")
    options = parser.parse_args()
    if options.tool:
        count_all(options.tool, options.out)
        return
    right = in_its_own_process("torchgauge", options.peers)
    columns = ("equal", "within 5 %", "less", "more", "failed")
    print(f"| {len(right)} models | " + " | ".join(columns) + " |")
    print("|---|" + "---|" * len(columns))
    for tool in TOOLS:
        found = right if tool == "torchgauge" else in_its_own_process(tool, options.peers)
        verdicts = {name: judged(found.get(name), macs) for name, macs in right.items()}
        tally = Counter(verdicts.values())
        print(f"| {tool} | " + " | ".join(str(tally[one]) for one in columns) + " |", flush=True)
        if options.details:
            for name, verdict in verdicts.items():
                if verdict in ("less", "more"):
                    print(f"    {name} {found[name]:,.0f} against {right[name]:,}")


if __name__ == "__main__":
    main()
