"""Makes the two traces of the notebook: training steps under torch.profiler, on the CPU.

No GPU was at hand. What a device would do is put in afterwards: for each operator that computes, a
launch inside it and a kernel on one stream, as long as its work suggests. Those times are made up.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

HOST, STREAM = 1, 7
COMPUTING = re.compile(
    r"aten::(addmm|mm|bmm|baddbmm|convolution|add_?|mul_?|div|sum|mean|neg|where|gelu|gelu_backward|"
    r"native_layer_norm|native_layer_norm_backward|_log_softmax|_log_softmax_backward_data|"
    r"nll_loss_forward|nll_loss_backward|embedding|embedding_dense_backward|fill_|copy_|"
    r"_foreach_\w+|_fused_\w+|_scaled_dot_product_flash_attention_for_cpu\w*)"
)
WAITING = "aten::_local_scalar_dense"


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(3)))
        self.head = nn.Linear(width, 128)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embedding(tokens)))


def recorded(*, chatty: bool) -> dict[str, Any]:
    """Record three steps; a chatty loop asks for the norm of every gradient."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=not chatty)
    tokens = torch.randint(128, (8, 32))
    with (
        tempfile.TemporaryDirectory() as folder,
        profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=2, warmup=2, active=3),
            record_shapes=True,
            with_stack=True,
        ) as recorder,
    ):
        for _ in range(7):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            if chatty:
                [float(p.grad.norm()) for p in model.parameters() if p.grad is not None]
            optimizer.step()
            recorder.step()
        path = Path(folder) / "trace.json"
        recorder.export_chrome_trace(str(path))
        return json.loads(path.read_text())


def with_device(trace: dict[str, Any]) -> dict[str, Any]:
    """Return the trace with device work below its operators, and without Python's functions."""
    events = [one for one in trace["traceEvents"] if _wanted(one)]
    first = min(one["ts"] for one in events if one["ph"] == "X")
    made, free = [], 0.0
    spans = sorted((one for one in events if one["ph"] == "X"), key=lambda one: one["ts"])
    for number, one in enumerate(spans, 1):
        one["ts"] = round(one["ts"] - first, 3)
        one["pid"] = one["tid"] = HOST
        at, room = one["ts"] + 0.9 * one["dur"], 0.08 * one["dur"]  # behind what it calls
        if one["name"] == WAITING:
            call = ("cudaMemcpyAsync", "gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 1.5)
        elif COMPUTING.fullmatch(one["name"]):
            call = ("cudaLaunchKernel", "kernel", f"{one['name'][6:]}_kernel", _length(one))
        else:
            continue
        begin = max(free, at + 2.5)
        free = begin + call[3]
        args = {"correlation": number}
        made.append(_span("cuda_runtime", call[0], HOST, at, min(room, 3.0), args))
        more = {"device": 0, "stream": STREAM, "grid": [16, 1, 1], "block": [128, 1, 1]}
        more |= {"bytes": 4} if call[1] == "gpu_memcpy" else {}
        made.append(_span(call[1], call[2], STREAM, begin, call[3], args | more))
    device = {"id": 0, "name": "made up", "computeMajor": 8, "computeMinor": 0, "numSms": 108}
    return {"schemaVersion": 1, "deviceProperties": [device], "traceEvents": [*spans, *made]}


def _window(trace: dict[str, Any]) -> float:
    spans = [one for one in trace["traceEvents"] if _wanted(one)]
    return max(one["ts"] + one["dur"] for one in spans) - min(one["ts"] for one in spans)


def _wanted(one: dict[str, Any]) -> bool:
    if one.get("cat") == "python_function":
        return bool(one["name"].startswith("nn.Module"))
    return one["ph"] == "X" and one.get("cat") in ("cpu_op", "user_annotation")


def _length(one: dict[str, Any]) -> float:
    """Return µs that grow with the operands."""
    shapes = [
        dims for dims in one["args"].get("Input Dims", []) if all(type(d) is int for d in dims)
    ]
    return round(1.5 + sum(map(math.prod, shapes)) / 1e3, 3)


def _span(
    cat: str, name: str, tid: int, ts: float, dur: float, args: dict[str, Any]
) -> dict[str, Any]:
    times = {"ts": round(ts, 3), "dur": round(dur, 3)}
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": int(tid == HOST),
        "tid": tid,
        **times,
        "args": args,
    }


def main() -> None:
    for name, chatty in (("before", True), ("after", False)):
        # The shortest of some: other programs of the machine ran in it least.
        shortest = min((recorded(chatty=chatty) for _ in range(9)), key=_window)
        text = json.dumps(with_device(shortest)).encode()
        (Path(sys.argv[1]) / f"{name}.json.gz").write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main()
