"""Records of traces and of memory snapshots for tests of the page, their sums known."""

import json
import pickle

import msgspec
from tests.support import snapshots as made
from tests.support.kineto_events import copy, launch, launched, module, op, read
from tests.support.snapshots import ADAM, BASE, LOG, MIB, TRAIN, block, segment, whole

from torchgauge import read_trace
from torchgauge.analyze.snapshot.growth import growth as grown
from torchgauge.analyze.snapshot.snapshot import snapshot as analysed
from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.analyze.trace.trace_compare import compare_traces
from torchgauge.readers.snapshot.snapshot import read_recording
from torchgauge.records.trace.trace import Trace


def parts(gemm="gemm", *, longer=0):
    """A window of 150 µs: 70 compute, 30 of communication beside it, 10 copies, 40 idle."""
    return [
        module("Net_0", 0, 90),
        module("Head_0", 1, 80),
        op("aten::mm", 5, 60, **{"Input Dims": [[4, 4], [4, 4]], "Input type": ["float", "float"]}),
        launch(9, 6, 50, name="cudaStreamSynchronize"),
        *launched(gemm, 100, 50 + longer, at=10),
        *launched("ncclDevKernel_AllReduce_Sum", 120 + longer, 60, at=12, stream=9),
        *launched("other", 200 + longer, 20, at=14),
        launch(1, 16),
        copy("Memcpy HtoD (Pageable -> Device)", 240 + longer, 10, 1, stream=8),
    ]


def rank(*found, name="made.json", **header):
    return rank_trace(read(*(found or parts()), **header), name)[0]


def trace():
    return Trace(name="made.json", ranks=(rank(),))


def drawn_trace():
    """The trace with the events for the page's timeline."""
    drawn = rank_trace(read(*parts()), "made.json", timeline_bytes=100_000)[0]
    return Trace(name="made.json", ranks=(drawn,))


def job(folder, ranks=3, late=1):
    """Ranks of which one comes 500 µs late to all collectives."""
    for number in range(ranks):
        shift = 500 if number == late else 0
        found = [module("Net_0", 0, 90)]
        for call in range(8):
            begin = 10_000 * call
            found += launched("gemm", begin + 100, 50 + shift, at=begin + 10)
            arrived = begin + 200 + shift
            found += launched(
                "ncclDevKernel_AllReduce_Sum_f32",
                arrived, begin + 800 - arrived, at=begin + 12, stream=9,
            )  # fmt: skip
        header = {"distributedInfo": {"rank": number, "world_size": ranks + 1}}
        path = folder / f"rank{number}.json"
        path.write_text(json.dumps({"traceEvents": found} | header))
    return read_trace(folder, workers=1)


def diff():
    """The product takes 30 µs more, so the window does; one kernel has another name."""
    old, new = rank(), rank(*parts("gemm", longer=30))
    return compare_traces(old, new, ("before.json", "after.json"))


def snapshot(blocks=10):
    """40 MiB, of which 20 are in use in two pieces; then 15 MiB are asked for.

    The program marked a step of 8 µs, its forward pass in the first half, and what did not end.
    """
    memory = made.Allocator()
    memory.reserve(BASE, 40 * MIB)
    places = [BASE + at * 10 * MIB for at in range(4)]
    for place, stack in zip(places, (TRAIN, LOG, ADAM, LOG), strict=True):
        memory.alloc(place, 10 * MIB, stack)
    memory.free(places[0], 10 * MIB)
    memory.free(places[2], 10 * MIB)
    memory.oom(15 * MIB, 2 * MIB, LOG)
    states = ["inactive", "active_allocated"] * 2
    found = [
        block(place, 10 * MIB, state=state, stack=LOG)
        for place, state in zip(places, states, strict=True)
    ]
    small = [block(BASE + (100 + at) * MIB, MIB, stack=LOG) for at in range(blocks)]
    other = segment(BASE, block(BASE, 3 * MIB), device=1)
    segments = [segment(BASE, *found), segment(BASE + 100 * MIB, *small), other]
    marks = [
        made.mark("step", "START", 0),
        made.mark("forward", "START", 0),
        made.mark("forward", "END", 4),
        made.mark("optimizer", "START", 5),
        made.mark("step", "END", 8),
    ]
    return told(whole(segments, memory, external_annotations=marks))


def told(content, name="made.pickle"):
    return analysed(read_recording(pickle.dumps(content)), name)


def growth():
    """The stack of the log holds 7 MiB more."""
    return grown(snapshot(3), snapshot(10))


def renamed(record, names):
    """Return the record with names of strangers wherever a file may bring them."""
    names = iter(names * 1_000)

    def of(value):
        if isinstance(value, tuple):
            return tuple(map(of, value))
        if not isinstance(value, msgspec.Struct):
            return value
        found = {
            field: next(names)
            if field in {"name", "path", "type", "shapes", "operator", "layer", "call", "label",
                         "file", "device_name", "title", "evidence", "remedy", "baseline",
                         "current", "pool", "message"}
            and isinstance(getattr(value, field), str)
            else of(getattr(value, field))
            for field in value.__struct_fields__
        }  # fmt: skip
        return msgspec.structs.replace(value, **found)

    return of(record)
