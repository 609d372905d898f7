"""Recorded traces with some of their events changed, and what a record of any trace keeps."""

import functools
import gzip
import json

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.trace.breakdown import CriticalPath

MOST_EVENTS = 1500  # of a case: all of a trace take too long
NANOSECOND = 1e-9
LINKS = ("compute", "communication", "wait", "copy", "host", "launch", "pause")


@functools.cache
def recorded(path):
    """The spans of a trace in order of time, and the other parts of its file."""
    content = json.loads(gzip.decompress(path.read_bytes()))
    spans = [event for event in content["traceEvents"] if event.get("ph") == "X"]
    rest = [event for event in content["traceEvents"] if event.get("ph") in "Mi"][:400]
    spans = [span for span in spans if span.get("cat") != "Trace"]
    return sorted(spans, key=lambda span: float(span["ts"])), rest, content


def mutated(path, dice):
    """Return the text of a stretch of a trace in which one to forty spans are changed."""
    spans, rest, content = recorded(path)
    first = dice.randrange(max(len(spans) - MOST_EVENTS, 1))
    chosen = [dict(span) for span in spans[first : first + MOST_EVENTS]]
    for _ in range(dice.choice([1, 2, 5, 40])):
        _change(chosen, dice)
    return json.dumps(content | {"traceEvents": chosen + rest}).encode()


def _change(spans, dice):
    number = dice.randrange(len(spans))
    span, other = spans[number], dice.choice(spans)
    match dice.randrange(9):
        case 0:
            step = dice.choice([0.001, 1, 50, 1e4, 1e6])
            span["ts"] = float(span["ts"]) + dice.uniform(-step, step)
        case 1:
            length = float(span.get("dur", 0))
            span["dur"] = dice.choice([0, -1, length / 1000, length * 3, length * 1e3, 1e6])
        case 2:
            del spans[number]
        case 3:
            spans.append(dict(span))
        case 4:
            span["args"] = other.get("args", {})
        case 5:
            key = dice.choice(["correlation", "stream", "device", "External id", "Sequence number"])
            value = dice.choice([0, -1, 7, other.get("args", {}).get(key, 1)])
            span["args"] = {**span.get("args", {}), key: value}
        case 6:
            span["name"] = other["name"]
        case 7:
            span["cat"] = other.get("cat", "")
        case _:
            span["tid"], span["pid"] = other["tid"], other["pid"]


def broken_invariants(text):
    """Return what the record of a trace says against itself, as text; empty where it is in order.

    Sums of some thousand times are compared, so what is less than a nanosecond is rounding.
    """
    record = rank_trace(read_events(text), "mutated.json")[0]
    return [
        *_operators(record), *_devices(record), *_path(record), *_findings(record)
    ]  # fmt: skip


def _more(value, limit):
    return value > limit * (1 + NANOSECOND) + NANOSECOND


def _operators(record):
    own = record.table("operators").columns.get("Self CUDA", [])
    kernels = sum(record.table("kernels").columns.get("device_time", []))
    device = record.device_time
    if _more(sum(time for time in own if time), device):
        yield f"operators have {sum(own)} s of {device}"
    if abs(kernels - device) > NANOSECOND + device * NANOSECOND:
        yield f"kernels have {kernels} s of {device}"
    in_tree = record.tree.root.device_time or 0
    if abs(in_tree - device) > NANOSECOND + device * NANOSECOND:
        yield f"the tree has {in_tree} s of {device}"


def _devices(record):
    for device in record.times:
        for times in (device.breakdown, *(stream.breakdown for stream in device.streams)):
            if abs(times.busy + times.idle.total - times.window) > NANOSECOND:
                yield f"busy {times.busy} and idle {times.idle.total} of {times.window}"
            if _more(times.window, record.window):
                yield f"a device has {times.window} s of {record.window}"


def _path(record):
    path: CriticalPath | None = record.critical_path
    if path is None:
        return
    parts = [getattr(path, link) or 0 for link in LINKS]
    if min(parts) < 0 or abs(sum(parts) - path.length) > NANOSECOND:
        yield f"the path has {parts} of {path.length}"
    if _more(path.length, record.window):
        yield f"the path has {path.length} s of {record.window}"
    streams = [stream for device in record.times for stream in device.streams]
    if len(streams) == 1:
        times = streams[0].breakdown
        idle = times.idle.total + record.window - times.window  # before its first work too
        if _more(path.pause, idle):
            yield f"pauses of {path.pause} s beside {idle} idle"


def _findings(record):
    for finding in record.findings:
        time, worth = finding.time, finding.worth
        if worth is not None and (time is None or worth < 0 or _more(worth, time)):
            yield f"{finding.id} is worth {worth} of {time}"
        if time is not None and not 0 <= time <= record.window + NANOSECOND:
            yield f"{finding.id} speaks of {time} s of {record.window}"
