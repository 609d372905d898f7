"""Two steps of a small training, made by hand: what parts of a trace are taken from.

In µs: step 3 from 0 to 100, step 4 from 100 to 200. All but one of the kernels begin in step 4.
"""

import json

from tests.support.kineto_events import ENGINE, MAIN, copy, kernel, launch, module, node, op, span


def arrow(category, number, begin, end):
    (thread, ts), (other, till) = begin, end
    head = {"cat": category, "name": category, "id": number, "pid": 1}
    return [
        {**head, "ph": "s", "tid": thread, "ts": ts},
        {**head, "ph": "f", "tid": other, "ts": till, "bp": "e"},
    ]


def memory(ts, size, address):
    args = {"Bytes": size, "Addr": address, "Total Allocated": size, "Device Type": 1}
    return {
        "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": MAIN,
        "ts": ts, "args": {**args, "Device Id": 0},
    }  # fmt: skip


EVENTS = [
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": MAIN, "ts": 0, "args": {"name": "main"}},
    span("user_annotation", "ProfilerStep#3", 0, 100, **{"External id": 11}),
    span("user_annotation", "ProfilerStep#4", 100, 100, **{"External id": 12}),
    span("gpu_user_annotation", "ProfilerStep#3", 110, 29, tid=7, **{"External id": 11}),
    kernel("before", 2, 3, 99),
    module("Net_0", 5, 60),
    module("Linear_0", 10, 30),
    op("aten::linear", 12, 20, sequence=1),
    op("aten::addmm", 14, 10, **{"Input Dims": [[4, 8], [8, 16]]}),
    memory(15.5, 512, 4096),
    launch(1, 15),
    kernel("gemm", 110, 8, 1, grid=[4, 2, 1], block=[128, 1, 1]),
    module("Linear_1", 45, 15),
    op("aten::linear", 46, 10, sequence=2),
    launch(2, 47),
    kernel("gemm", 120, 6, 2),
    node("AddmmBackward0", 70, 10, sequence=2),
    op("AddmmBackward0", 71, 8, tid=ENGINE, sequence=2),
    launch(3, 73, tid=ENGINE),
    kernel("gemm_back", 130, 9, 3),
    op("aten::item", 105, 50),
    launch(4, 106, name="cudaMemcpyAsync"),
    copy("Memcpy DtoH (Device -> Pinned)", 140, 5, 4, size=64),
    memory(150, -512, 4096),
    {"ph": "i", "s": "g", "name": "mark", "pid": 1, "tid": MAIN, "ts": 160},
    *arrow("ac2g", 1, (MAIN, 15), (7, 110)),
    *arrow("ac2g", 4, (MAIN, 106), (7, 140)),
    *arrow("fwdbwd", 1, (MAIN, 46), (ENGINE, 71)),
    *arrow("fwdbwd", 2, (MAIN, 12), (MAIN, 105)),  # from one step to the next
]
TEXT = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS, "deviceProperties": []})
