"""Whatever a trace holds, the answer is a record to show and save, or one of our errors."""

import collections
import copy
import json
import random

import pytest
from tests.analyze.kineto_events import (
    DEVICE,
    TRACES,
    launch,
    launched,
    mark,
    module,
    node,
    op,
    span,
)
from tests.analyze.kineto_events import copy as memcpy
from tests.trace.dialects import GPU, PROTON, TPU

from torchgauge.analyze.job import job
from torchgauge.analyze.rank_trace import rank_trace
from torchgauge.analyze.trace_compare import compare_traces
from torchgauge.errors import TorchgaugeError
from torchgauge.model import codec
from torchgauge.model.trace import Trace
from torchgauge.trace.kineto import read_events

NCCL = {"Collective name": "allreduce", "In msg nelems": 100, "Out msg nelems": 100,
        "dtype": "Float", "Group size": 2, "Process Group Ranks": "[0, 1]"}  # fmt: skip
FACTS = {"grid": [10, 1, 1], "block": [128, 1, 1], "registers per thread": 40,
         "shared memory": 1024, "warps per SM": 2.5, "est. achieved occupancy %": 30}  # fmt: skip
DIMS = {"Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"],
        "Input Strides": [[8, 1], [2, 1]], "Concrete Inputs": ["", ""]}  # fmt: skip
BASE = {
    "schemaVersion": 1,
    "deviceProperties": [DEVICE],
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
    "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "p"}},
        mark("ProfilerStep#1", 0, 200),
        module("Net_0", 1, 190),
        module("Head_0", 2, 60),
        op("aten::linear", 3, 40, sequence=5, **DIMS),
        op("aten::addmm", 4, 30, sequence=5, **DIMS),
        *launched("gemm", 60, 20, at=6, **FACTS),
        op("aten::item", 70, 30),
        launch(1, 75, 20, name="cudaStreamSynchronize"),
        launch(2, 101),
        memcpy("Memcpy HtoD (Pageable -> Device)", 104, 6, 2),
        node("AddmmBackward0", 110, 20, sequence=5),
        *launched("ncclDevKernel_AllReduce_Sum", 120, 60, at=112, stream=9, **NCCL),
        mark("Optimizer.step#SGD.step", 140, 20),
        {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5, "s": "t",
         "args": {"Bytes": 64, "Addr": 4096, "Device Type": 1, "Device Id": 0, "Ev Idx": 3,
                  "Total Allocated": 64, "Total Reserved": 128}},
        {"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1, "ts": 6},
        {"ph": "f", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 60},
        span("Trace", "PyTorch Profiler (0)", 0, 200),
    ],
}  # fmt: skip
ODD = [
    None, "", "x", 0, -1, 1, -5.5, 1e308, 2**31, 2**63, 2**64, 10**40, True, [], [[]], {}, {"a": 1},
    [None, -1], "NaN", "9" * 400, "\ud83d\ude00\x1b[31m", "nccl", "Memcpy DtoH", "tg#0", "tg@1",
    "ProfilerStep#9", "nn.Module: A_1", "aten::mm", "[[1, 2]", 0.1, "kernel", "cpu_op",
    "python_function", "X", "B", "i", "f", "/host:CPU", "/device:GPU:0", "/device:TPU:0",
    "Stream #7", "XLA Ops", "GPU Stream 7", "$a.py:1 f", "scope", "flow", "grid:1,1 regs:x",
]  # fmt: skip


def bytes_changed(text: bytes, dice: random.Random) -> bytes:
    found = bytearray(text)
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(found)) if found else 0
        match dice.randrange(5):
            case 0:
                found[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                del found[at : at + dice.randint(1, 40)]
            case 2:
                found[at:at] = dice.choice([b'"', b"}", b"]", b",", b"\\", b"\0", b"{", b"1e999"])
            case 3:
                del found[dice.randrange(len(found)) if found else 0 :]
            case _:
                found += found[at : at + dice.randint(1, 400)]
    return bytes(found)


def fields_changed(whole: dict, dice: random.Random) -> bytes:
    whole = copy.deepcopy(whole)
    events = whole["traceEvents"]
    for _ in range(dice.randint(1, 8)):
        target = dice.choice([*events[:40], whole] if len(events) > 40 else [*events, whole])
        if target is not whole and isinstance(target.get("args"), dict) and dice.random() < 0.6:
            target = target["args"]
        name = dice.choice([*target, "ts", "dur"])
        if target is whole and name == "traceEvents":
            match dice.randrange(3):
                case 0:
                    dice.shuffle(events)
                case 1:
                    events += copy.deepcopy(dice.choices(events, k=5))
                case _:
                    del events[dice.randrange(len(events)) :]
                    events += copy.deepcopy(BASE["traceEvents"][:1])
        elif dice.random() < 0.2:
            target.pop(name, None)
        else:
            target[name] = dice.choice(ODD)
    return json.dumps(whole).encode()


def recorded() -> list[dict]:
    """Return the first events of recorded traces, where they are there."""
    import gzip

    found = []
    for path in sorted(TRACES.glob("*.json.gz")):
        whole = json.loads(gzip.decompress(path.read_bytes()))
        events = whole["traceEvents"]
        gpu = [one for one in events if one.get("cat") in ("kernel", "gpu_memcpy")][:15]
        found.append({**whole, "traceEvents": [*events[:40], *gpu]})
    return found


def look(data: bytes, partial: bool) -> None:
    rank, calls = rank_trace(read_events(data, partial=partial), "made.json")
    record = Trace(name="made", ranks=(rank,))
    assert codec.decode(codec.encode(record)) == record
    difference = compare_traces(rank, rank, ("a", "b"))
    for one in (record, difference):
        assert str(one)
        assert one.to_markdown()
    job({0: rank, 1: rank}, {0: calls, 1: calls})
    for device in rank.times:
        part = device.breakdown
        assert abs(part.busy + part.idle.total - part.window) <= 1e-9 + 1e-12 * part.window


@pytest.mark.parametrize("cases", [200, pytest.param(4000, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("error")
def test_mutated_traces(cases):
    bases = [BASE, BASE, GPU, TPU, PROTON, *recorded()]
    texts = [json.dumps(base).encode() for base in bases]
    seen: collections.Counter[str] = collections.Counter()
    for seed in range(cases):
        dice = random.Random(seed)
        which = dice.randrange(len(bases))
        change = dice.random() < 0.5
        data = bytes_changed(texts[which], dice) if change else fields_changed(bases[which], dice)
        try:
            look(data, partial=dice.random() < 0.5)
            seen["result"] += 1
        except TorchgaugeError as error:
            seen[error.id] += 1
        except BaseException:
            print(f"seed {seed}")
            raise
    print(dict(seen))
    assert seen["result"] > cases / 5
    assert len(seen) > 3
    assert all(seen)  # an error without an id cannot be told from another
