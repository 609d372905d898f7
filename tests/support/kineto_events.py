"""Traces made by hand: what Kineto would write, times in microseconds."""

import itertools
import json

from torchgauge.readers.kineto.kineto import read_events

MAIN, ENGINE = 1, 2
# An A100's: 108 multiprocessors.
DEVICE = {
    "id": 0,
    "computeMajor": 8,
    "computeMinor": 0,
    "numSms": 108,
    "warpSize": 32,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 167936,
}


def span(cat, name, ts, dur, tid=MAIN, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur} | (
        {"args": args} if args else {}
    )


def op(name, ts, dur, tid=MAIN, sequence=None, **args):
    number = {} if sequence is None else {"Sequence number": sequence, "Fwd thread id": 0}
    return span("cpu_op", name, ts, dur, tid, **{"External id": 1} | number | args)


def node(name, ts, dur, sequence=None, tid=ENGINE):
    """A span of autograd's engine around one node; it begins as the node does."""
    number = {} if sequence is None else {"Sequence number": sequence, "Fwd thread id": 1}
    name = f"autograd::engine::evaluate_function: {name}"
    return span("cpu_op", name, ts, dur, tid, **{"External id": 1} | number)


def mark(name, ts, dur, tid=MAIN):
    return span("user_annotation", name, ts, dur, tid, **{"External id": 1})


def module(name, ts, dur, tid=MAIN):
    return span("python_function", f"nn.Module: {name}", ts, dur, tid, **{"Python id": 1})


def launch(correlation, ts, dur=2, tid=MAIN, name="cudaLaunchKernel"):
    return span("cuda_runtime", name, ts, dur, tid, correlation=correlation)


def kernel(name, ts, dur, correlation, stream=7, cat="kernel", device=0, **args):
    args = {"device": device, "stream": stream, "correlation": correlation} | args
    return span(cat, name, ts, dur, tid=stream, **args)


def copy(name, ts, dur, correlation, size=1000, **args):
    return kernel(name, ts, dur, correlation, cat="gpu_memcpy", bytes=size, **args)


def launched(name, ts, dur, at, tid=MAIN, numbers=itertools.count(1000), **args):  # noqa: B008
    """A kernel with its launch, by the one default counter for all of them."""
    number = next(numbers)
    return [launch(number, at, tid=tid), kernel(name, ts, dur, number, **args)]


def read(*parts, devices=(DEVICE,), **header):
    found = [one for part in parts for one in (part if isinstance(part, list) else [part])]
    header |= {"deviceProperties": list(devices)}
    return read_events(json.dumps(header | {"traceEvents": found}).encode())
