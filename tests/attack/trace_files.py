"""Traces to be changed, and what is to hold of whatever can be read of one."""

import copy
import dataclasses
import gzip
import json
from pathlib import Path

from tests.attack.mutations import ODD
from tests.support.dialects import GPU, PROTON, TPU
from tests.support.kineto_events import DEVICE, launch, launched, mark, module, node, op, span
from tests.support.kineto_events import copy as memcpy
from tests.support.paths import public_traces
from tests.support.same_events import assert_same
from tests.support.span_parts import TEXT

import torchgauge as tg
from torchgauge.analyze.ranks.job import job
from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.analyze.trace.trace_compare import compare_traces
from torchgauge.errors import TorchgaugeError
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records import codec
from torchgauge.records.trace.trace import Trace
from torchgauge.traces import rank_file

DATA = Path(__file__).parents[1] / "data"
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


def events_changed(whole, dice):
    """Return the trace with one to eight fields of its events changed, or its events in part."""
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


def every():
    """Return traces of all makes: by hand, of the tests' data, and recorded ones that are there."""
    files = [
        json.loads(gzip.decompress(one.read_bytes())) for one in sorted(DATA.glob("*.json.gz"))
    ]
    short = [{**one, "traceEvents": one["traceEvents"][:120]} for one in files]
    return [BASE, BASE, json.loads(TEXT), GPU, TPU, PROTON, *short, *recorded()]


def recorded():
    """Return the first events of recorded traces, where they are there."""
    found = []
    for path in public_traces():
        whole = json.loads(gzip.decompress(path.read_bytes()))
        events = whole["traceEvents"]
        gpu = [one for one in events if one.get("cat") in ("kernel", "gpu_memcpy")][:15]
        found.append({**whole, "traceEvents": [*events[:40], *gpu]})
    return found


def analysed(data, *, partial):
    """Read and show a trace; the parts of a device's time add up to its window."""
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


def some_part(dice):
    match dice.randrange(5):
        case 0:
            return {"step": 1}
        case 1:
            return {"layer": dice.choice(["Head_0", "Net_0", "tg#0", "BertModel_0"])}
        case 2:
            return {"begin": dice.choice([0, 1e-5, 50e-6]), "end": dice.choice([100e-6, 1e6])}
    return {}


def arrows(events):
    flows = events.flows
    return sorted(zip(flows.time.tolist(), flows.id.tolist(), flows.begins.tolist(), strict=True))


def converted(path, dice):
    """Convert the trace in every way: what is written again is what was read."""
    part = some_part(dice)
    events = read_events(path)
    for form in ("speedscope", "folded", "parquet", "chrome"):
        out = path.with_name(f"out.{form}")
        try:
            tg.convert_trace(path, form, out, **part)
        except TorchgaugeError as error:
            if error.id not in ("step-unknown", "layer-unknown", "part-empty"):
                raise
            continue
        if form == "speedscope":
            json.loads(out.read_text())
        if form == "chrome":
            again = read_events(out)
            assert len(again) <= len(events)
            if not part:
                assert arrows(events) == arrows(again)  # their order is that of chunks
                assert_same(dataclasses.replace(events, flows=again.flows), again)
    for _ in range(2):  # written, and read
        kept = rank_file.cached_events(path, python="modules", partial=False)
        assert_same(events, kept)
