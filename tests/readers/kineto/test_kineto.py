"""Recorded bytes → events: against a plain decode of the same file, and broken in every way."""

from __future__ import annotations

import collections
import dataclasses
import decimal
import functools
import gzip
import io
import itertools
import json
import os
import time
import zipfile

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings
from tests.support.paths import PUBLIC_TRACES, TINY_TRAINING, public_trace
from tests.support.same_events import assert_same, decoded

import torchgauge as tg
from torchgauge.errors import InputError
from torchgauge.progress import Silent
from torchgauge.readers import unpacking
from torchgauge.readers.kineto.kineto import read_events

# With the time of its making in it, a parameter would not be the same for every worker.
squeezed = functools.partial(gzip.compress, mtime=0)

OLD_FLOWS = {"async_cpu_to_gpu": "ac2g"}


def span(name="a", ts=1, dur=1, tid=7, cat="cpu_op", **args):
    event = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}
    return event | ({"args": args} if args else {})


def encoded(*events, **header):
    return json.dumps(header | {"traceEvents": list(events)}).encode()


def plain(text):
    """Decode with the json module, numbers exactly."""
    found = json.loads(text, parse_float=decimal.Decimal, parse_int=decimal.Decimal)
    return found if isinstance(found, list) else found["traceEvents"]


def ns(value):
    return int(decimal.Decimal(value) * 1000)


def tupled(value):
    if isinstance(value, list):
        return tuple(tupled(item) for item in value)
    return int(value) if isinstance(value, decimal.Decimal) and value % 1 == 0 else value


# table: its categories, and column: (key, absent)
TABLES = {
    "operators": (
        ("cpu_op", "user_annotation", "gpu_user_annotation"),
        {
            "external_id": ("External id", -1),
            "sequence": ("Sequence number", -1),
            "forward_thread": ("Fwd thread id", -1),
            "dims": ("Input Dims", None),
            "strides": ("Input Strides", None),
            "types": ("Input type", None),
            "inputs": ("Concrete Inputs", None),
            "modules": ("Module Hierarchy", None),
        },
    ),
    "launches": (
        ("cuda_runtime", "cuda_driver"),
        {"correlation": ("correlation", -1), "external_id": ("External id", -1)},
    ),
    "device_work": (
        ("kernel", "gpu_memcpy", "gpu_memset"),
        {
            "device": ("device", -1),
            "stream": ("stream", -1),
            "correlation": ("correlation", -1),
            "external_id": ("External id", -1),
            "registers": ("registers per thread", -1),
            "shared_memory": ("shared memory", -1),
            "size": ("bytes", -1),
            "kind": ("kind", None),
        },
    ),
    "python": (("python_function",), {"id": ("Python id", -1), "module": ("Python module id", -1)}),
    "collectives": (
        None,
        {
            "name": ("Collective name", None),
            "dtype": ("dtype", None),
            "elements_in": ("In msg nelems", -1),
            "elements_out": ("Out msg nelems", -1),
            "group": ("Process Group Name", None),
            "group_description": ("Process Group Description", None),
            "group_size": ("Group size", -1),
            "ranks": ("Process Group Ranks", None),
        },
    ),
}


def belongs(event, categories):
    if categories is None:
        return "Collective name" in event.get("args", {})
    return event.get("cat") in categories and event.get("args")


def check_against_plain(events, raw, python):
    spans = [e for e in raw if e["ph"] == "X"]
    if not python:
        spans = [e for e in spans if e.get("cat") != "python_function"]
    flows = [e for e in raw if e["ph"] in "sf" and e.get("cat")]
    memory = [e for e in raw if e["name"] == "[memory]"]
    origin = min(ns(e["ts"]) for e in spans + flows + memory)
    assert events.metadata.origin == origin
    assert events.start.tolist() == [ns(e["ts"]) - origin for e in spans]
    assert events.duration.tolist() == [ns(e.get("dur", 0)) for e in spans]
    assert [events.name[i] for i in range(len(events))] == [e["name"] for e in spans]
    assert [events.category[i] for i in range(len(events))] == [e.get("cat") for e in spans]
    threads = [tuple(tupled([e["pid"], e["tid"]])) for e in spans]
    assert [events.thread[i] for i in range(len(events))] == threads
    for name, (categories, columns) in TABLES.items():
        table = getattr(events, name)
        rows = [i for i, e in enumerate(spans) if belongs(e, categories)]
        assert table.row.tolist() == rows
        for column, (key, absent) in columns.items():
            values = getattr(table, column)
            truth = [tupled(spans[row]["args"].get(key, absent)) for row in rows]
            assert [values[i] for i in range(len(rows))] == truth, (name, column)
    assert events.memory.size.tolist() == [e["args"]["Bytes"] for e in memory]
    assert events.memory.address.tolist() == [e["args"]["Addr"] for e in memory]
    assert events.memory.time.tolist() == [ns(e["ts"]) - origin for e in memory]
    assert sorted(events.flows.id.tolist()) == sorted(e["id"] for e in flows)
    cats = collections.Counter(OLD_FLOWS.get(e["cat"], e["cat"]) for e in flows if e["ph"] == "s")
    begins = events.flows.category.take(events.flows.begins)
    assert collections.Counter(begins[i] for i in range(len(begins))) == cats


@pytest.mark.parametrize("name", PUBLIC_TRACES)
def test_public_traces_equal_a_plain_decode(name):
    path = public_trace(name)
    raw = plain(gzip.decompress(path.read_bytes()))
    check_against_plain(read_events(path, python="all"), raw, python=True)


@pytest.mark.parametrize("chunk", [64, 1000, 1 << 20])
def test_a_recorded_step_equals_a_plain_decode(chunk):
    raw = plain(gzip.decompress(TINY_TRAINING.read_bytes()))
    for python in ("none", "all"):
        events = read_events(TINY_TRAINING, python=python, chunk_size=chunk)
        check_against_plain(events, raw, python=python == "all")
    assert events.metadata.schema_version == 1
    assert events.metadata.display_time_unit == "ms"
    assert events.metadata.base_time > 10**18
    assert events.metadata.trace_name.endswith("tiny_training.json")
    assert [n for n in events.metadata.thread_names.values() if n.startswith("thread ")]
    assert "python" in events.metadata.process_names.values()
    modules = read_events(TINY_TRAINING)
    python = modules.category.where(lambda value: value == "python_function")
    assert {modules.name[i] for i in np.flatnonzero(python)} == {
        "nn.Module: Sequential_0",
        "nn.Module: Linear_0",
        "nn.Module: ReLU_0",
        "nn.Module: Linear_1",
    }
    assert (modules.python.module >= 0).all()
    assert modules.name.where(lambda value: value.startswith("tg#")).sum() == 1
    assert "aten::add_.Tensor" in modules.name.values


@pytest.mark.parametrize(
    ("header", "versions"),
    [
        ({"cuda_runtime_version": 12040, "cuda_driver_version": 12090},
         {"CUDA": "12.4", "CUDA driver": "12.9"}),
        ({"hip_runtime_version": 60443483}, {"HIP": "6.4.43483"}),
        ({"distributedInfo": {"nccl_version": "2.17.1"}}, {"NCCL": "2.17.1"}),
        ({"cuda_runtime_version": 0, "cuda_driver_version": "12.4",
          "distributedInfo": {"nccl_version": 2}}, {}),
    ],
)  # fmt: skip
def test_versions_are_those_of_the_header(header, versions):
    assert read_events(encoded(span(), **header)).metadata.versions == versions


def test_arrows_of_launches_are_left_out_where_nothing_is_written_again():
    arrows = [
        {"ph": phase, "cat": category, "name": category, "id": 7, "pid": 1, "tid": 2, "ts": 5}
        for category in ("ac2g", "async_cpu_to_gpu", "fwdbwd", "forward_backward")
        for phase in ("s", "f")
    ]
    text = encoded(span(), *arrows)
    whole, without = read_events(text), read_events(text, launch_arrows=False)
    assert decoded(whole.flows.category) == [*["'ac2g'"] * 4, *["'fwdbwd'"] * 4]
    assert decoded(without.flows.category) == ["'fwdbwd'"] * 4
    assert without.flows.begins.tolist() == [True, False] * 2
    assert_same(dataclasses.replace(whole, flows=without.flows), without)


def test_times_are_exact_nanoseconds_of_today():
    # A float64 of these microseconds is off by up to 125 ns.
    text = b"""{"traceEvents": [
      {"ph":"X","name":"a","ts":1790857026123456.789,"dur":0.001},
      {"ph":"X","name":"b","ts":1790857026123456,"dur":2},
      {"ph":"X","name":"c","ts":1.790857026123457e15,"dur":1E-3},
      {"ph":"X","name":"d","ts":1790857026123456.7895,"dur":12.5},
      {"ph":"X","name":"e","ts":1790857026123457.1,"dur":-3}]}"""
    events = read_events(text)
    assert events.metadata.origin == 1790857026123456000
    assert events.start.tolist() == [789, 0, 1000, 790, 1100]
    assert events.duration.tolist() == [1, 2000, 1, 12500, 0]
    before = read_events(b'[{"ph":"X","ts":-1.5},{"ph":"X","ts":0.25}]')
    assert (before.metadata.origin, before.start.tolist()) == (-1500, [0, 1750])


@pytest.mark.parametrize("ts", ["1e300", "9223372036854775.808", "null", '"soon"', "true"])
def test_what_is_no_time_is_refused(ts):
    with pytest.raises(InputError) as error:
        read_events(f'[{{"ph":"X","name":"a","ts":{ts}}}]'.encode())
    assert error.value.id == "trace-malformed"


def test_old_names_text_ids_and_missing_parts():
    events = read_events(
        encoded(
            span("aten::mm", 1, cat="Operator", **{"Profiler Event Index": 5}),
            span("gemm", 2, cat="Kernel", correlation=8, grid=[1, 2, 3]),
            {"ph": "X", "name": "window", "pid": "Spans", "tid": "Trace", "ts": 3},
            span("plain", 4),
            {"ph": "M", "name": "process_name", "pid": "Spans", "args": {"name": "x"}},
            {"ph": "s", "id": "text", "cat": "ac2g", "name": "ac2g", "ts": 1},
            {"ph": "f", "id": 7, "cat": "async_cpu_to_gpu", "name": "ac2g", "ts": 1, "bp": "e"},
            {"ph": "C", "name": "counter", "ts": 0, "args": {"value": 1}},
            {},
        )
    )
    assert [events.category[i] for i in range(4)] == ["cpu_op", "kernel", None, "cpu_op"]
    assert events.thread[2] == ("Spans", "Trace")
    assert (events.operators.row.tolist(), events.operators.index.tolist()) == ([0], [5])
    assert events.device_work.grid.tolist() == [[1, 2, 3]]
    assert events.device_work.block.tolist() == [[-1, -1, -1]]
    assert events.flows.id.tolist() == [7]
    assert events.flows.category[0] == "ac2g"
    assert events.metadata.process_names == {"Spans": "x"}
    assert events.warnings == ()


def test_device_facts_have_si_units_and_unknown_ones_are_nan():
    events = read_events(
        encoded(
            span("k", cat="kernel", **{"est. achieved occupancy %": 25, "blocks per SM": 1.5}),
            span("k", cat="kernel", **{"est. achieved occupancy %": 0, "shared memory": 200_000}),
            span("Memcpy", cat="gpu_memcpy", **{"memory bandwidth (GB/s)": 2, "bytes": 10}),
            span("Memcpy", cat="gpu_memcpy", **{"memory bandwidth (GB/s)": "N/A", "bytes": 0}),
        )
    )
    work = events.device_work
    np.testing.assert_array_equal(work.occupancy, [0.25, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(work.bandwidth, [np.nan, np.nan, 2e9, np.nan])
    assert work.size.tolist() == [-1, -1, 10, 0]
    assert work.blocks_per_sm[0] == 1.5


def test_arguments_of_unexpected_types_are_unknown_and_the_others_stay():
    odd = {"Ev Idx": "none", "Sequence number": 2**64 - 1, "External id": 3.0}
    events = read_events(
        encoded(
            span("a", **odd, **{"Input Dims": [[1, 2]], "Input type": "float"}),
            span("b", **{"Ev Idx": 4, "Input Dims": [[True], {"x": 1}]}),
        )
    )
    assert events.operators.index.tolist() == [-1, 4]
    assert events.operators.sequence.tolist() == [-1, -1]
    assert events.operators.external_id.tolist() == [3, -1]
    assert [events.operators.dims[i] for i in (0, 1)] == [((1, 2),), (("True",), "{'x': 1}")]
    assert events.operators.types[0] is None


def test_shapes_nested_without_measure_leave_the_event_and_its_time():
    deep = "[" * 500 + "]" * 500
    event = json.dumps(span("deep", 1, 5, **{"Input Dims": 0})).replace(": 0}", f": {deep}}}")
    events = read_events(f'{{"traceEvents": [{event}]}}'.encode())
    assert events.duration.tolist() == [5000]


@pytest.mark.thorough
def test_threads_whose_numbers_would_collide_in_a_dict_are_told_apart_in_time():
    """Multiples of the modulus of Python's hash of integers: all have one hash."""
    numbers = [(2**61 - 1) * factor for factor in range(1, 20_001)]
    began = time.process_time()
    events = read_events(encoded(*(span("a", 1, 5, number) for number in numbers)))
    colliding = time.process_time() - began
    assert len(set(map(str, events.thread.values))) == 20_000
    began = time.process_time()
    read_events(encoded(*(span("a", 1, 5, number) for number in range(20_000))))
    assert colliding < 20 * (time.process_time() - began)  # quadratic: several hundred times


@pytest.mark.parametrize("chunk", [100, 1 << 20])
@pytest.mark.parametrize("odd", [{"Ev Idx": "none"}, {"Bytes": 2**64}, {"labels": 5}, {"kind": {}}])
def test_one_odd_argument_changes_nothing_about_the_other_events(odd, chunk):
    def recorded(args):
        plain = [
            span(f"a{i}", i + 1.125, **{"Ev Idx": i, "Input Dims": [[i], []]}) for i in range(9)
        ]
        copied = {"bytes": 3, "memory bandwidth (GB/s)": 2.5}
        memory = {"ph": "i", "name": "[memory]", "ts": 5, "args": {"Bytes": 64, "Addr": 1}}
        plain[4:4] = [span("odd", 3, **args), span("b", cat="kernel", **copied)]
        return read_events(encoded(*plain, memory, span("end", **args)), chunk_size=chunk)

    usual, mixed = recorded({"x": 1}), recorded(odd)
    for table in ("operators", "device_work", "memory"):
        for name, column in vars(getattr(usual, table)).items():
            other = getattr(getattr(mixed, table), name)
            if hasattr(column, "codes"):
                assert [*map(column.__getitem__, range(len(column)))] == [
                    *map(other.__getitem__, range(len(other)))
                ]
            else:
                np.testing.assert_array_equal(column, other)
    assert usual.start.tolist() == mixed.start.tolist()
    assert usual.operators.index.tolist() == [0, 1, 2, 3, -1, 4, 5, 6, 7, 8, -1]
    assert usual.memory.size.tolist() == [64]


def test_arguments_that_are_null_are_none_and_unread_functions_leave_no_names():
    call = span("nn.Module: A_0", 2, cat="python_function", **{"Python id": 1})
    code = span("a.py(1): f", 3, cat="python_function", **{"Python id": 2})
    events = read_events(encoded(span() | {"args": None}, call, code))
    assert len(events.operators.row) == 0
    assert events.name.values == ("a", "nn.Module: A_0")
    assert events.python.id.tolist() == [1]
    assert read_events(encoded(call, code), python="none").name.values == ()


def test_the_header_is_read_before_and_after_the_events():
    header = {"deviceProperties": [{"id": 0, "name": "x"}, {"id": 1, "name": "y"}]}
    text = json.dumps({"traceEvents": [span()]})[:-1] + ", " + json.dumps(header)[1:]
    for source in (encoded(span(), **header), text.encode()):
        for chunk in (7, 1 << 20):
            events = read_events(source, chunk_size=chunk)
            assert [d["name"] for d in events.metadata.devices] == ["x", "y"]
            assert len(events) == 1
    odd = read_events(encoded(span(), schemaVersion="one", displayTimeUnit=7, other={}))
    assert (odd.metadata.schema_version, odd.metadata.display_time_unit) == (None, None)
    inside = read_events(encoded(span(), note={"traceEvents": [span("no")]}, schemaVersion=1))
    assert (len(inside), inside.name[0], inside.metadata.schema_version) == (1, "a", 1)


ONE = encoded(span("a"))
NAME = ONE.index(b'"a"')


def zipped(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("_", "."), data)
    return file.getvalue()


def test_a_rate_that_no_memory_has_is_unknown():
    rates = {"memory bandwidth (GB/s)": 1e308}
    events = read_events(encoded(span(cat="gpu_memcpy", **rates)))
    assert np.isnan(events.device_work.bandwidth).all()


def test_packed_files(tmp_path):
    text = encoded(span("a"), span("b"))
    packed = [text, b"\xef\xbb\xbf" + text, b"\n" + text, squeezed(text)]
    packed += [squeezed(text[:20]) + b"\0" * 7 + squeezed(text[20:]) + b"\0" * 9]
    packed += [zipped(t_json=text, readme_txt=b"x"), zipped(t_json_gz=squeezed(text))]
    for data in packed:
        path = tmp_path / "trace"
        path.write_bytes(data)
        for source in (path, str(path), data):
            for chunk in (1, 50, 1 << 20):
                assert len(read_events(source, chunk_size=chunk)) == 2


@pytest.mark.parametrize(
    ("data", "id", "words"),
    [
        (b"", "trace-empty", "nothing"),
        (b" \n", "trace-empty", "nothing"),
        (squeezed(b""), "trace-empty", "nothing"),
        (b"\x80\x02}q\x00.", "trace-not-json", ""),
        (b"ts,dur\n1,2\n", "trace-not-json", ""),
        (b'{"a": 1', "trace-not-json", ""),
        (b'{"a": [1]}', "trace-no-events", "traceEvents"),
        (b'{"traceEvents": 5}', "trace-no-events", "traceEvents"),
        (ONE[:-20], "trace-truncated", f"cut off at byte {len(ONE) - 20}."),
        (ONE.replace(b'"a"', b'"a "b" c"'), "trace-malformed", f"At byte {NAME + 4}:"),
        (ONE.replace(b'"a"', b"NaN"), "trace-malformed", f"At byte {NAME}:"),
        (encoded(6, 5), "trace-malformed", "Expected `object`"),
        (b'[{"args":' + b"[" * 100_000, "trace-truncated", "cut off"),
        (b'[{"args":' + b"[" * 50_000 + b"]" * 50_000 + b"}]", "trace-malformed", "recursion"),
        (squeezed(encoded(span()))[:-9], "trace-packing", "cut off"),
        (squeezed(ONE)[:12] + b"\xff" + squeezed(ONE)[13:], "trace-packing", "damaged"),
        (zipped(t_json=encoded(span()))[:-9], "trace-packing", "zip"),
        (zipped(a_json=b"", b_json=b""), "trace-archive", "a.json, b.json"),
        (zipped(readme_txt=b"x"), "trace-archive", "readme.txt"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused(tmp_path, data, id, words):
    path = tmp_path / "broken.json"
    path.write_bytes(data)
    for chunk in (16, 1 << 20):
        with pytest.raises(InputError, match=r"broken\.json") as error:
            read_events(path, chunk_size=chunk)
        assert error.value.id == id
        assert words in error.value.cause
        assert error.value.remedy


def test_missing_files_and_directories_are_refused(tmp_path):
    with pytest.raises(InputError) as error:
        read_events(tmp_path / "absent.json")
    assert error.value.id == "file-missing"
    with pytest.raises(InputError) as error:
        read_events(tmp_path)
    assert error.value.id == "trace-directory"


@pytest.mark.parametrize("packed", [bytes, squeezed])
def test_it_is_told_how_much_of_the_file_is_read(tmp_path, packed):
    path = tmp_path / "long.json"
    path.write_bytes(packed(encoded(*(span(f"{number:x}" * 50) for number in range(2_000)))))
    told = Told()
    read_events(path, chunk_size=1 << 10, progress=told)
    assert {name for name, _ in told.updates} == {str(path)}
    shares = [share for _, share in told.updates]
    assert shares == sorted(shares)
    assert len(shares) > 5
    assert all(later - share >= 0.02 for share, later in itertools.pairwise(shares))
    assert 0.9 < shares[-1] <= 1


class Told(Silent):
    """Progress that keeps what it is told."""

    def __init__(self):
        self.updates = []

    def update(self, detail, fraction=None):
        self.updates.append((detail, fraction))


def test_pipes_are_refused_before_anything_is_taken_from_them(tmp_path):
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)  # nobody writes to it: reading would never end
    for read in (read_events, tg.read_trace, tg.read_snapshot, tg.load):
        with pytest.raises(InputError) as error:
            read(pipe)
        assert error.value.id == "file-not-regular"
    with pytest.raises(InputError) as error:
        tg.compare(pipe, pipe)
    assert error.value.id == "file-not-regular"


def test_what_inflates_beyond_reason_is_refused(monkeypatch):
    monkeypatch.setenv("TORCHGAUGE_READ_LIMIT", "1e6")
    bomb = squeezed(b"[" + b" " * (8 << 20) + b"]")
    with pytest.raises(InputError) as error:
        read_events(bomb)
    assert error.value.id == "trace-too-large"
    monkeypatch.undo()
    # However much a few bytes unpack to, it comes in small pieces.
    pieces = list(unpacking.unpacked(io.BytesIO(bomb), "bomb", 5000))
    assert max(map(len, pieces)) <= 5000
    assert sum(map(len, pieces)) == (8 << 20) + 2
    assert len(read_events(bomb)) == 0


def test_an_event_that_cannot_be_read_is_left_out_and_counted():
    events = [span(f"e{i}", i + 1) for i in range(200)]
    text = encoded(*events).replace(b'"e50"', b'"e"50"').replace(b'"e150"', b'"e"150"')
    at = text.index(b'50"')
    for chunk in (40, 300, 5000, 1 << 20):
        read = read_events(text, chunk_size=chunk)
        assert set(read.name.values) == {f"e{i}" for i in range(200)} - {"e50", "e150"}
        (warning,) = read.warnings
        assert warning.id == "trace-damaged"
        assert warning.message == "The trace is damaged: 2 of its events could not be read."
        assert warning.cause.startswith(f"At byte {at:,}: ")


@pytest.mark.parametrize("place", [0, 100, 199])
@pytest.mark.parametrize(
    ("written", "name"),
    [
        (rb"torch\cuda\_\q.py", r"torch\cuda\_\q.py"),  # as torch 1.13 wrote paths of Windows
        (b"a\xff", "a\ufffd"),
        (b"a\1\x08", "a  "),
        (rb"a\ud800b", "a\ufffdb"),
        (rb"a\udc00\ud83d\ude00\n\x", "a\ufffd\U0001f600\n\\x"),
    ],
)
def test_text_that_is_not_json_is_corrected_and_counted(written, name, place):
    events = [span("broken" if i == place else f"e{i}", i + 1) for i in range(200)]
    text = encoded(*events, traceName="x").replace(b"broken", written)
    for chunk in (40, 300, 5000, 1 << 20):
        read = read_events(text, chunk_size=chunk)
        assert len(read) == 200
        assert read.name.values[place] == name
        assert read.metadata.trace_name == "x"
        (warning,) = read.warnings
        assert "1 of its events held what JSON forbids" in warning.message


def test_not_a_number_is_unknown_and_without_it_for_a_time_the_event_is_lost():
    events = [span("a", **{"blocks per SM": 1}), span("b", ts=5), span("c", dur=7), span("d")]
    text = encoded(*events).replace(b'"blocks per SM": 1', b'"blocks per SM": NaN')
    text = text.replace(b'"ts": 5', b'"ts": NaN').replace(b'"dur": 7', b'"dur": -Infinity')
    read = read_events(text)
    assert read.name.values == ("a", "d")
    assert (
        "2 of its events could not be read, 1 of its events held what" in read.warnings[0].message
    )


def test_a_header_that_is_not_json_is_corrected():
    for text in (
        b'{"traceName": "C:\\x", "traceEvents": [%s]}',
        b'{"traceEvents": [%s], "traceName": "C:\\x"}',
    ):
        read = read_events(text % json.dumps(span("a")).encode())
        assert read.metadata.trace_name == r"C:\x"
        assert len(read) == 1


def test_a_cut_off_file_with_damage_before_is_cut_off():
    text = encoded(span("a"), span("b"), span("c")).replace(b'"b"', rb'"\p"')
    for chunk in (40, 1 << 20):
        with pytest.raises(InputError) as error:
            read_events(text[:-30], chunk_size=chunk)
        assert error.value.id == "trace-truncated"
        part = read_events(text[:-30], chunk_size=chunk, partial=True)
        assert part.name.values == ("a", "\\p")
        assert (
            "1 of its events held what JSON forbids, now replaced, it is cut off."
            in part.warnings[0].message
        )


def test_partial_reads_what_was_unpacked_before_the_damage():
    whole = encoded(*(span(f"e{i}", i + 1) for i in range(200)), schemaVersion=1)
    for chunk in (40, 300, 5000, 1 << 20):
        cut = read_events(whole[:-30], partial=True, chunk_size=chunk)
        assert len(cut) == 199
        assert cut.warnings[0].cause == f"It is cut off at byte {len(whole) - 30:,}."
        packed = read_events(squeezed(whole)[:-9], partial=True, chunk_size=chunk)
        assert len(packed) == 200
        assert "gzip" in packed.warnings[0].cause
    assert read_events(whole, partial=True).warnings == ()


def test_what_follows_the_events_is_read_after_damage_too():
    text = encoded(span("a"), span("b"), span("c"))[:-1] + b', "traceName": "x"}'
    broken = text.replace(b'"b"', b'"b" "')
    for chunk in (40, 1 << 20):
        read = read_events(broken, chunk_size=chunk)
        assert read.name.values == ("a", "c")
        assert read.metadata.trace_name == "x"
        assert [w.id for w in read.warnings] == ["trace-damaged"]


def begin(name, ts, tid=1):
    return {"ph": "B", "name": name, "ts": ts, "tid": tid}


def end(name, ts, tid=1):
    return {"ph": "E", "name": name, "ts": ts, "tid": tid}


@pytest.mark.parametrize("chunk", [64, 1 << 18])
def test_begins_and_ends_apart_are_joined(chunk):
    events = read_events(
        encoded(
            begin("a", 1), begin("b", 2.5), begin("b", 3), end("b", 4), begin("c", 3, tid=2),
            end("b", 5), span("x"), end("", 7.25), end("c", 9, tid=2),
        ),
        chunk_size=chunk,
    )  # fmt: skip
    joined = sorted(
        (int(events.start[row]), int(events.duration[row]), events.name[row])
        for row in range(len(events))
        if events.name[row] != "x"
    )
    first = joined[0][0]
    assert [(start - first, duration, name) for start, duration, name in joined] == [
        (0, 6250, "a"), (1500, 2500, "b"), (2000, 1000, "b"), (2000, 6000, "c"),
    ]  # fmt: skip
    assert events.warnings == ()


def test_begins_and_ends_without_the_other_are_left_out_with_a_warning():
    events = read_events(encoded(span("x"), begin("a", 1), end("b", 2), begin("c", 3), end("c", 4)))
    assert list(events.name.values) == ["x", "c"]
    (warning,) = events.warnings
    assert warning.id == "trace-unpaired"
    assert warning.message.startswith("2 events")


BOUNDARY = '"},{"name": "x"},\n  {"ph":"X", "args":{"a":[{"name":1},{"pid":2}]}}'
texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from([BOUNDARY, "},{", '"', "\\", "\\\\", '\\"', "]}", '},{"ph":', "\u2028é\x00"]),
)
values = st.recursive(
    st.one_of(texts, st.integers(-3, 3), st.none(), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["name", "ph", "id", BOUNDARY]), inner, max_size=3),
    ),
    max_leaves=6,
)
times = st.one_of(
    st.integers(0, 2**50), st.decimals(0, 2**50, places=3).map(lambda d: format(d.normalize(), "f"))
)


@st.composite
def some_events(draw):
    def one():
        event = {"name": draw(texts), "ph": "X", "ts": "@", "dur": "@"}
        if draw(st.booleans()):
            event = dict(reversed(event.items()))
        if draw(st.booleans()):
            event["cat"] = draw(st.sampled_from(["cpu_op", "kernel", 'o"dd},{']))
        if draw(st.booleans()):
            keys = st.sampled_from(["Input Dims", "Ev Idx", "odd", BOUNDARY])
            event["args"] = draw(st.dictionaries(keys, values, max_size=3))
        # Decimals as text: the json module writes floats only.
        parts = json.dumps(event, ensure_ascii=draw(st.booleans())).split('"@"')
        if len(parts) != 3:
            parts = json.dumps({"ph": "X", "ts": "@", "dur": "@"}).split('"@"')
        return parts[0] + str(draw(times)) + parts[1] + str(draw(times)) + parts[2]

    events = ", ".join(one() for _ in range(draw(st.integers(0, 6))))
    return f'{{"schemaVersion": 1, "traceEvents": [{events}], "traceName": "x"}}'


@settings(max_examples=150, derandomize=True, deadline=None)
@given(some_events(), st.integers(1, 400))
@pytest.mark.slow
def test_any_chunk_size_reads_what_a_plain_decode_reads(text, chunk):
    raw = plain(text)
    events = read_events(text.encode(), chunk_size=chunk)
    if next((ns(e["ts"]) for e in raw if ns(e["ts"])), 0) >= 10**13:
        raw = [e for e in raw if ns(e["ts"])]  # times that were lost
    origin = min((ns(e["ts"]) for e in raw), default=0)
    assert events.metadata.origin == origin
    assert events.start.tolist() == [ns(e["ts"]) - origin for e in raw]
    assert events.duration.tolist() == [ns(e["dur"]) for e in raw]
    assert [events.name[i] for i in range(len(events))] == [e.get("name", "") for e in raw]
    assert [events.category[i] for i in range(len(events))] == [e.get("cat") for e in raw]
    assert events.metadata.trace_name == "x"
    for i, row in enumerate(events.operators.row.tolist()):
        said = isinstance(raw[row]["args"].get("Input Dims"), list)
        assert (events.operators.dims[i] is not None) == said


@pytest.mark.parametrize("end", ["[", "}", ",", "]"])
def test_cut_between_two_events_it_is_damaged_too(end):
    whole = b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1}, {"ph": "M"}]}'
    part = read_events(whole[: whole.index(end.encode()) + 1], partial=True)
    assert [warning.id for warning in part.warnings] == ["trace-damaged"]


@pytest.mark.thorough
@settings(max_examples=60, derandomize=True, deadline=None)
@given(some_events(), st.integers(1, 400), st.data())
def test_cut_at_any_byte_it_is_refused_or_its_readable_part_is_read(text, chunk, data):
    whole = text.encode()
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(InputError):
        read_events(whole[:end], chunk_size=chunk)
    try:
        part = read_events(whole[:end], chunk_size=chunk, partial=True)
    except InputError:
        assert end <= whole.index(b'"traceEvents": [') + 15
        return
    assert part.warnings
    names = [part.name[i] for i in range(len(part))]
    assert names == [e.get("name", "") for e in plain(text)][: len(names)]


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.binary(max_size=60), st.integers(1, 80), st.booleans())
@example(b'{"traceEvents":[{"ph":"X","ts":1,"args":\xff}]}', 5, True)
def test_any_bytes_give_events_or_an_error_of_ours(junk, chunk, partial):
    for prefix in (
        b"",
        b'{"traceEvents":[',
        b'[{"ph":"X","ts":1,"args":{',
        b"\x1f\x8b\x08",
        b"PK\3\4",
    ):
        try:
            found = read_events(prefix + junk, chunk_size=chunk, partial=partial)
        except InputError as error:
            assert error.id.startswith("trace-")  # noqa: PT017 - either is right
        else:
            assert len(found.name.codes) == len(found)


@pytest.mark.parametrize(
    "events",
    [
        [span(ts=-9.2e15), span(ts=9.2e15)],  # as far apart as an int64 does not hold
        [span(dur=4e15), span(dur=4e15)],  # so long together
        [span(ts=4.5e15, dur=4.5e15)],  # so late an end
    ],
)
def test_times_whose_sums_no_int64_holds_are_malformed(events):
    with pytest.raises(InputError, match="cannot be read") as error:
        read_events(encoded(*events))
    assert error.value.id == "trace-malformed"


@pytest.mark.parametrize("base", [10**30, 2**63 - 1, -1])
def test_a_base_time_that_is_none_is_unknown(base):
    events = read_events(encoded(span(ts=2**52), baseTimeNanoseconds=base))
    assert events.metadata.base_time is None
    assert events.start.tolist() == [0]


@pytest.mark.parametrize("zero", ["0", "0.0", "0.000"])
@pytest.mark.parametrize("chunk_size", [1, 200, 1 << 18])
def test_events_whose_time_was_lost_are_left_out_and_counted(zero, chunk_size):
    """The profiler writes 0 for a time that it does not have, days before all others."""

    def reading(*times):
        head = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 5, "ts":'
        spans = ", ".join(f"{head} {time}}}" for time in times)
        return read_events(f'{{"traceEvents": [{spans}]}}'.encode(), chunk_size=chunk_size)

    since_boot = [6914912346678 + 100 * number for number in range(5)]
    events = reading(zero, *since_boot, zero)
    assert len(events) == 5
    assert int(events.start.max()) == 400_000
    (warning,) = events.warnings
    assert (warning.id, warning.message) == (
        "trace-time-zero", "2 events are left out of the trace.",
    )  # fmt: skip
    relative = reading(zero, 100, 200)  # times count from the first
    assert (len(relative), relative.warnings) == (3, ())
    assert len(reading(zero, zero)) == 2
