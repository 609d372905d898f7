"""Recorded bytes → allocations in order, operators and ranges."""

from __future__ import annotations

import functools
import gzip
import json

import numpy as np
import pytest
from tests.support.paths import public_trace

from torchgauge.analyze.memory.tree_memory import named_ranges, outermost_operators
from torchgauge.errors import InputError
from torchgauge.readers.kineto.kineto import read_events

# With the time of its making in it, a parameter would not be the same for every worker.
squeezed = functools.partial(gzip.compress, mtime=0)


def event(ts, size, address, index, tid=7, device=(0, -1)):
    args = {"Bytes": size, "Addr": address, "Ev Idx": index}
    args |= {"Device Type": device[0], "Device Id": device[1], "Total Allocated": 99}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": tid} | {
        "ts": ts,
        "args": args,
    }


def span(name, ts, dur, tid=7, cat="cpu_op", **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur} | (
        {"args": args} if args else {}
    )


def encoded(*events):
    return json.dumps({"schemaVersion": 1, "traceEvents": list(events)}).encode()


def test_times_are_exact_nanoseconds_from_the_earliest_timestamp():
    # Since 1970 these are 1.7·10¹⁸ ns: a float64 there has steps of 256 ns.
    events = read_events(encoded(span("a", 1669783687464300, 1), event(1669783687464301, 64, 1, 0)))
    assert events.memory.time.tolist() == [1000]
    events = read_events(
        encoded(span("a", 4358559934535.281, 10), event(4358559934536.282, 64, 1, 0))
    )
    assert events.memory.time.tolist() == [1001]
    operators = outermost_operators(events)
    assert operators.start.tolist() == [0]
    assert operators.end.tolist() == [10_000]


def test_timestamps_order_the_threads_and_the_index_orders_equal_ones():
    # One thread's events have all their indices before the other's.
    events = read_events(
        encoded(
            event(5, -64, 1, 1, tid=8),
            event(9, 32, 2, 2, tid=8),
            event(1, 64, 1, 3),
            event(9, 16, 3, 0),
        )
    )
    ordered = events.memory.on_device(0, -1)
    assert ordered.size.tolist() == [64, -64, 16, 32]
    assert events.thread.values == ((1, 8), (1, 7))
    assert ordered.thread.tolist() == [1, 0, 1, 0]


def test_devices_are_told_apart():
    memory = read_events(
        encoded(event(1, 8, 1, 0), event(2, 512, 2, 1, device=(1, 0)), event(3, 4, 3, 2))
    ).memory
    assert memory.on_device(0, -1).size.tolist() == [8, 4]
    assert memory.on_device(1, 0).size.tolist() == [512]
    assert memory.on_device(1, 1).size.tolist() == []


def test_outermost_operators_per_thread_and_marks_apart():
    events = read_events(
        encoded(
            span("tg#0", 0, 100),
            span("aten::linear", 10, 20),
            span("aten::addmm", 10, 20),  # as long as its parent, by rounding
            span("aten::t", 12, 2),
            span("aten::relu", 30, 5),  # starts where the other ends
            span("aten::mul", 15, 3, tid="another"),
            span("step", 0, 90, cat="user_annotation"),
        )
    )
    operators = outermost_operators(events, without=("tg#",))
    assert operators.name == ("aten::linear", "aten::mul", "aten::relu")
    marks = named_ranges(events, "tg#")
    assert marks.name == ("tg#0",)
    assert (marks.start.tolist(), marks.end.tolist()) == ([0], [100_000])
    assert "tg#0" in outermost_operators(read_events(encoded(span("tg#0", 0, 100)))).name


def test_text_ids_missing_categories_foreign_arguments_and_old_names_are_read():
    events = read_events(
        encoded(
            {"ph": "M", "name": "process_name", "pid": "Spans", "ts": 0, "args": {"name": "x"}},
            {"ph": "X", "name": "Record Window End", "pid": "", "tid": "Trace", "ts": 1, "dur": 2},
            {"ph": "f", "id": "a", "pid": 1, "tid": 2, "ts": 3, "name": "ac2g", "bp": "e"},
            span("copy", 5, 1, cat="gpu_memcpy", bytes=3, **{"Device Id": "zero"}),
            span("aten::add", 4, 1, cat="Operator", **{"Ev Idx": "none"}),
        )
    )
    operators = outermost_operators(events)
    assert operators.name == ("aten::add",)
    assert operators.start.tolist() == [3000]
    assert len(events.memory.time) == 0


@pytest.mark.parametrize("pack", [bytes, squeezed])
def test_files_and_bytes_packed_or_not(tmp_path, pack):
    data = pack(encoded(event(1, 8, 1, 0)))
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    for source in (path, data, pack(json.dumps([event(1, 8, 1, 0)]).encode())):
        assert read_events(source).memory.on_device(0, -1).size.tolist() == [8]


@pytest.mark.parametrize(
    ("data", "id"),
    [
        (b"", "trace-empty"),
        (b"PK\x03\x04", "trace-packing"),
        (b"{}", "trace-no-events"),
        (encoded(event(1, 8, 1, 0))[:-20], "trace-truncated"),
        (squeezed(encoded(event(1, 8, 1, 0)))[:-9], "trace-packing"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, data, id):
    path = tmp_path / "broken.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"broken\.json") as error:
        read_events(path)
    assert error.value.id == id
    assert error.value.cause


@pytest.mark.parametrize("arguments", [{"args": {}}, {}])
def test_an_allocation_without_a_size_is_no_event(arguments):
    sizeless = {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1} | arguments
    assert len(read_events(encoded(sizeless)).memory.time) == 0


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError):
        read_events(tmp_path / "absent.json")


# (name, CPU events, CUDA device, its events): counted with the json module.
PUBLIC = [
    ("h100_bert_small", 18, 0, 218),
    ("h100_qwen_0.5b", 200, 0, 2250),
    ("v100_train_memory_events_rank1of2", 1240, 1, 26770),
]


@pytest.mark.parametrize(("name", "cpu", "device", "cuda"), PUBLIC)
def test_public_traces(name, cpu, device, cuda):
    path = public_trace(name)
    memory = read_events(path).memory
    assert len(memory.on_device(0, -1).time) == cpu
    events = memory.on_device(1, device)
    assert len(events.time) == cuda
    # The allocator's own running total is the truth within one recording: each event moves it by
    # its size. In the order of `Ev Idx` alone it would not in the trace with two threads.
    raw = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    allocations = [e for e in raw if e["name"] == "[memory]" and e["args"]["Device Type"] == 1]
    allocations.sort(key=lambda e: (e["ts"], e["args"]["Ev Idx"]))
    running = np.array([e["args"]["Total Allocated"] for e in allocations])
    np.testing.assert_array_equal(np.diff(running), events.size[1:])
    # Nothing is freed that this recording allocated and freed before: addresses pair up.
    alive = {}
    for size, address in zip(events.size.tolist(), events.address.tolist(), strict=True):
        if size > 0:
            assert address not in alive
            alive[address] = size
        else:
            assert alive.pop(address) == -size
