"""What do other tools leave changed? The observer of hygiene.py, as a Markdown table.

Install the peers apart, without their dependencies on torch, and say where:

    pip install --target PEERS --no-deps -r benchmarks/requirements-peers.txt
    python benchmarks/hygiene_peers.py PEERS

Each tool runs in a process of its own, each case in a fork of it. The models are in training mode
with a part of them frozen, as in the middle of fine-tuning.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hygiene_models import Recurrent
from hygiene_observer import differences, snapshot

IMPORTED = {
    "thop": ("thop",),
    "torchinfo": ("torchinfo",),
    "ptflops": ("ptflops",),
    "fvcore": ("fvcore.nn",),
    "calflops": ("calflops",),
    "flops-profiler": ("flops_profiler.profiler",),
    "torchgauge": ("torchgauge.measure.plan",),
}
GROUPS = {
    "parameter": "parameters",
    "buffer": "buffers",
    "state dict keys": "state dict keys",
    "training": "training flags",
    "hooks": "hooks",
    "attribute": "attributes",
    "requires_grad": "requires_grad",
    "grad mode": "grad mode",
    "function": "torch functions",
    "method": "methods of torch's classes",
    "methods": "methods of the model's classes",
    "warnings": "warnings filters",
    "open files": "open files",
}


def models() -> dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...]]]:
    """Return how each model is made, and its inputs."""
    from torchvision.models import resnet18
    from transformers import BertConfig, BertModel

    bert = BertConfig(
        vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, attn_implementation="eager",
    )  # fmt: skip
    normalized = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))
    image = torch.randn(2, 3, 32, 32)
    return {
        "ResNet-18": (resnet18, (image,)),
        "BERT": (lambda: BertModel(bert), (torch.arange(32).reshape(2, 16),)),
        "LSTM": (lambda: Recurrent(nn.LSTM), (torch.randn(2, 12, 16),)),
        "BatchNorm": (lambda: nn.Sequential(*normalized), (image,)),
    }


def _thop(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    from thop import profile

    profile(model, inputs=inputs, verbose=False)


def _torchinfo(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    from torchinfo import summary

    summary(model, input_data=inputs, verbose=0)


def _ptflops(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    from ptflops import get_model_complexity_info

    names = list(inspect.signature(type(model).forward).parameters)[1:]
    given = dict(zip(names, inputs, strict=False))
    # Its own except prints the error and returns None.
    found = get_model_complexity_info(
        model, (1,), input_constructor=lambda _: given, print_per_layer_stat=False, verbose=False
    )
    if found[0] is None:
        raise RuntimeError


def _fvcore(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    from fvcore.nn import FlopCountAnalysis

    analysis = FlopCountAnalysis(model, inputs)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).total()


def _calflops(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    from calflops import calculate_flops

    calculate_flops(model, args=list(inputs), print_results=False, print_detailed=False)


def _flops_profiler(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    from flops_profiler.profiler import get_model_profile

    get_model_profile(model, args=list(inputs), print_profile=False, as_string=False)


def _torchgauge(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    import torchgauge as tg

    tg.measure_size(model)
    failure = None
    for measure in (
        lambda: tg.measure_latency(model, inputs, iterations=2, progress=False),
        lambda: tg.measure_memory(model, inputs),
    ):
        try:
            measure()
        except tg.TorchgaugeError as error:
            failure = error
    if failure is not None:
        raise failure


def case(peer: str, name: str, *, fails: int) -> dict[str, Any]:
    """Run one tool on one model whose forward raises in the middle of call `fails` (0: never)."""
    make, inputs = models()[name]
    torch.manual_seed(0)
    model = make()
    model.eval()
    with torch.no_grad():
        model(*inputs)  # what a library loads lazily is no tool's doing
    model.train()
    leaves = [module for module in model.modules() if not list(module.children())]
    leaves[0].eval()
    if fails:
        _break(leaves[len(leaves) // 2], fails)
    run = globals()["_" + peer.replace("-", "_")]
    said, raised = io.StringIO(), ""
    before = snapshot(model, inputs)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            run(model, inputs)
    except Exception as error:  # noqa: BLE001 - whatever the tool raises
        raised = f"{type(error).__name__}: {error}"[:200]
    return {"changed": differences(before, snapshot(model, inputs)), "raised": raised}


def _break(module: nn.Module, number: int) -> None:
    forward, left = module.forward, [number]

    def broken(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise RuntimeError("planted")
        return forward(*args, **kwargs)

    module.forward = broken  # type: ignore[method-assign]


def child(peer: str) -> None:
    """Run every case of a tool in a fork of this process; print the results as JSON."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for module in IMPORTED[peer]:  # importing is not what is judged
        importlib.import_module(module)
    found: dict[str, Any] = {}
    for name in models():
        for fails in (0, 1, 2):  # some tools call once, some warm up
            receive, send = os.pipe()
            if (pid := os.fork()) == 0:
                os.close(receive)
                with os.fdopen(send, "w") as result:
                    json.dump(case(peer, name, fails=fails), result)
                os._exit(0)
            os.close(send)
            with os.fdopen(receive) as result:
                found[f"{name}|{fails}"] = json.loads(
                    result.read() or '{"changed": ["died"], "raised": ""}'
                )
            os.waitpid(pid, 0)
    print(json.dumps({"version": importlib.metadata.version(peer), "cases": found}))


def cell(cases: dict[str, Any], *, fails: bool) -> str:
    """Return what changed, each with the models it changed in unless in all."""
    groups: defaultdict[str, dict[str, None]] = defaultdict(dict)
    refused, names = [], dict.fromkeys(key.partition("|")[0] for key in cases)
    for key, result in cases.items():
        name, _, call = key.partition("|")
        if (call != "0") is not fails or (fails and not result["raised"]):
            continue
        if not fails and result["raised"]:
            refused.append(name)
        for changed in result["changed"]:
            groups[_group(changed)][name] = None
    said = [
        group if len(where) == len(names) else f"{group} ({', '.join(where)})"
        for group, where in groups.items()
    ]
    if refused:
        said.append(f"raised on {', '.join(refused)}")
    return "; ".join(said) or "nothing"


def _group(name: str) -> str:
    return next((GROUPS[start] for start in sorted(GROUPS, key=len, reverse=True)
                 if name.startswith(start)), name)  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="?", help="the folder the peers were installed to")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--details", action="store_true", help="every entry that changed, too")
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    if not options.peers:
        print("No folder with peers given: see the head of this file.")
    print("| tool | changed after success | changed after an exception in the forward |")
    print("|---|---|---|")
    directory = tempfile.mkdtemp()  # another program's temporary files are no tool's doing
    environment = os.environ | {"PYTHONPATH": options.peers or "", "TMPDIR": directory}
    for peer in IMPORTED:
        if not options.peers and peer != "torchgauge":
            continue
        command = [sys.executable, str(Path(__file__)), "--child", peer]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            print(f"| {peer} | did not run: {done.stderr.strip().splitlines()[-1]} | |")
            continue
        result = json.loads(done.stdout.splitlines()[-1])
        success, failure = (cell(result["cases"], fails=fails) for fails in (False, True))
        print(f"| {peer} {result['version']} | {success} | {failure} |", flush=True)
        if options.details:
            for key, found in result["cases"].items():
                print("   ", key, found["raised"], len(found["changed"]), found["changed"][:12])


if __name__ == "__main__":
    main()
