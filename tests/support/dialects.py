"""Traces as JAX and Proton write them, made by hand after their formats; times in microseconds."""

import json

from torchgauge.readers.kineto.kineto import read_events

HOST, DEVICE = 701, 1
SHAPE = "regs:16 static_shared:1024 dynamic_shared:512 grid:8,2,1 block:256,1,1 occ_pct:{}"


def named(pid, name, **threads):
    """Names of a process and of its threads, these by `t7="name"`."""
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    for tid, text in threads.items():
        said = {"name": text}
        yield {"ph": "M", "pid": pid, "tid": int(tid[1:]), "name": "thread_name", "args": said}


def span(pid, tid, name, ts, dur, **args):
    found = {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name}
    return found | ({"args": args} if args else {})


def jax(*events):
    """A file as XLA writes it: an empty event ends it."""
    return {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True},
            "traceEvents": [*events, {}]}  # fmt: skip


GPU = jax(
    *named(HOST, "/host:CPU", t5="python"),
    *named(
        DEVICE, "/device:GPU:0", t13="Stream #13(Kernel)", t14="Stream #14(MemcpyH2D,Memset)",
        t91="XLA Modules", t92="XLA Ops", t93="Steps",
    ),
    span(HOST, 5, "train", 0, 300, step_num="0"),
    span(HOST, 5, "$loop.py:7 step", 1, 290),
    span(HOST, 5, "PjitFunction(f)", 5, 40),
    span(HOST, 5, "cuLaunchKernel", 10, 4, correlation_id="1", device_id="0"),
    span(HOST, 5, "cuLaunchKernel", 20, 4, correlation_id="2", device_id="0"),
    span(HOST, 5, "cuMemcpyHtoDAsync", 30, 4, correlation_id="3", device_id="0"),
    span(HOST, 5, "cuStreamSynchronize", 50, 200, correlation_id="4", device_id="0"),
    span(DEVICE, 13, "loop_fusion", 100, 50, correlation_id="1", hlo_op="fusion",
         hlo_module="jit_f", kernel_details=SHAPE.format(75)),
    span(DEVICE, 13, "gemm", 160, 40, correlation_id="2", kernel_details=SHAPE.format(0)),
    span(DEVICE, 14, "MemcpyH2D", 140, 40, correlation_id="3",
         memcpy_details="kind_src:pageable kind_dst:device size:4096 dest:0 async:1"),
    span(DEVICE, 14, "Memset", 182, 3, Memset_details="kind:device num_bytes:64 async:1"),
    span(DEVICE, 91, "jit_f(1)", 100, 100),
    span(DEVICE, 92, "fusion", 100, 50),
    span(DEVICE, 93, "0", 100, 100),
)  # fmt: skip

TPU = jax(
    *named(HOST, "/host:CPU", t5="python"),
    *named(DEVICE, "/device:TPU:0", t1="Steps", t2="XLA Modules", t3="XLA Ops"),
    span(HOST, 5, "PjitFunction(f)", 5, 40),
    span(DEVICE, 1, "0", 100, 150),
    span(DEVICE, 2, "jit_f(1)", 100, 150),
    span(DEVICE, 3, "while.1", 100, 100),
    span(DEVICE, 3, "fusion.1", 100, 40),
    span(DEVICE, 3, "all-reduce.1", 150, 30),
    span(DEVICE, 3, "while.2", 180, 20),
    span(DEVICE, 3, "fusion.3", 180.0005, 19.9995),  # in whole ns it outlasts its loop
    span(DEVICE, 3, "fusion.2", 210, 40),
)

LANES = named(
    0, "Trace", t5="CPU Thread 5", t100007="Graph: Stream 7",
    t200007="GPU Stream 7", t200008="GPU Stream 8",
)  # fmt: skip


def scope(name, ts, dur, cat="scope", tid=5):
    return span(0, tid, name, ts, dur, call_stack=["ROOT", name]) | {"cat": cat}


def arrow(number, begin, end, to):
    common = {"name": "launch->kernel", "cat": "flow", "pid": 0, "id": number, "bp": "e"}
    return [common | {"ph": "s", "tid": 5, "ts": begin}, common | {"ph": "f", "tid": to, "ts": end}]


PROTON = {
    "displayTimeUnit": "us",
    "traceEvents": [
        *LANES,
        scope("step", 0, 110),
        scope("forward", 10, 50),
        scope("loss: <value, 0.500000>", 70, 20, cat="metric"),
        scope("captured", 30, 50, tid=100007),
        *arrow(1, 0, 30, to=200007),
        *arrow(3, 10, 50, to=200007),
        *arrow(3, 10, 55, to=200008),
        *arrow(9, 70, 85, to=200007),
        scope("first", 30, 10, cat="kernel", tid=200007),
        scope("foo", 50, 30, cat="kernel", tid=200007),
        scope("bar", 55, 15, cat="kernel", tid=200008),
        scope("baz", 85, 10, cat="kernel", tid=200007),
        scope("of_a_graph", 96, 4, cat="kernel", tid=200007),
    ],
}


def read(whole, **options):
    return read_events(json.dumps(whole).encode(), **options)
