"""Events as Parquet: what others read of it, and that it is read back whole or not at all."""

import io
import json
import pickle
import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.paths import TINY_TRAINING
from tests.support.same_events import assert_same
from tests.support.span_parts import EVENTS, TEXT

import torchgauge as tg
from torchgauge.errors import MissingExtraError
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.readers.parquet import parquet, parquet_columns, parquet_reading
from torchgauge.readers.parquet.parquet_columns import Origin, facts_of
from torchgauge.records.trace.events import Coded
from torchgauge.traces.rank_file import SUFFIX

ORIGIN = Origin(size=1, changed=2, python="modules")
COLLECTIVE = {
    "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 8, "Out msg nelems": 8,
    "Process Group Name": "0", "Group size": 2, "Process Group Ranks": "[0, 1]",
}  # fmt: skip
ODD = [
    {"ph": "X", "cat": "cpu_op", "name": 'quo"te\nnew–línea', "pid": 7, "tid": "7", "ts": 1.5,
     "dur": 0, "args": {"Input Dims": [[], [1, [2]]], "Concrete Inputs": ["", 1.5, 10**30, None]}},
    {"ph": "X", "cat": "cpu_op", "name": "", "pid": "7", "tid": 7, "ts": 2, "dur": 1},
    {"ph": "X", "name": "no category", "pid": 7, "tid": 7, "ts": 2.001, "dur": 1},
    {"ph": "X", "cat": "kernel", "name": "nccl", "pid": 0, "tid": 3, "ts": 9, "dur": 2,
     "args": {**COLLECTIVE, "device": 0, "stream": 3, "correlation": 5, "grid": [1, 2, 3],
              "est. achieved occupancy %": 37, "memory bandwidth (GB/s)": 1.5, "bytes": 2**62}},
    {"ph": "X", "cat": "cuda_runtime", "name": "launch", "pid": 1, "tid": 1, "ts": 9, "dur": 2,
     "args": {"nothing": 1}},
    {"ph": "M", "name": "process_name", "pid": "7", "tid": 0, "ts": 0, "args": {"name": "p"}},
    {"ph": "M", "name": "process_labels", "pid": 7, "tid": 0, "ts": 0, "args": {"labels": "l"}},
]  # fmt: skip
HEADER = {
    "deviceProperties": [{"id": 0, "large": 10**25, "name": "é"}],
    "distributedInfo": {"rank": 1, "world_size": 2, "pg_config": [{"ranks": []}]},
    "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    "traceName": "a/b.json",
}


def packed(events, *, kept=None, origin=ORIGIN, rank=None):
    counts = (len(events), len(events.memory.time), len(events.flows.time))
    every = np.ones(sum(counts), bool) if kept is None else kept
    nothing = {
        name: Coded(np.full(sum(counts), -1, np.int32), ())
        if form == "text"
        else np.full(sum(counts), -1)
        for name, form in parquet.LOCATION_COLUMNS.items()
    }
    one = parquet.Rank(rank, events, nothing, every, facts_of(events, counts, origin))
    return b"".join(parquet.parts([one]))


def odd():
    return read_events(json.dumps({"traceEvents": ODD} | HEADER).encode())


@pytest.fixture
def file(tmp_path):
    def write(data):
        path = tmp_path / "kept.parquet"
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize(
    "events",
    [
        lambda: read_events(TEXT.encode()),
        lambda: read_events(TINY_TRAINING, python="all"),
        odd,
        lambda: read_events(b'{"traceEvents": []}'),
    ],
    ids=["made", "tiny", "odd", "empty"],
)
def test_what_is_read_back_is_what_was_written(events, file):
    before = events()
    assert_same(before, parquet_reading.read(file(packed(before)), ORIGIN))


def test_groups_of_rows_are_one_table(file, monkeypatch):
    monkeypatch.setattr(parquet, "_AT_ONCE", 50)
    before = read_events(TINY_TRAINING, python="all")
    path = file(packed(before))
    assert pq.ParquetFile(path).num_row_groups == -(-pq.read_metadata(path).num_rows // 50)
    assert_same(before, parquet_reading.read(path, ORIGIN))


def test_the_columns_are_those_of_the_events(tmp_path):
    source, out = tmp_path / "trace.json", tmp_path / "trace.parquet"
    source.write_text(TEXT)
    tg.convert_trace(source, "parquet", out)
    found = pq.read_table(out)
    events = read_events(source)
    spans = found.slice(0, len(events))
    assert spans.column("name").to_pylist() == [events.name[i] for i in range(len(events))]
    assert spans.column("start").to_numpy().tolist() == events.start.tolist()
    assert spans.column("duration").to_numpy().tolist() == events.duration.tolist()
    work = found.filter(pa.compute.equal(found.column("kind").cast("string"), "device"))
    assert work.column("correlation").to_pylist() == events.device_work.correlation.tolist()
    assert work.column("bytes").to_pylist() == [None, None, None, None, 64]
    assert work.column("grid_x").to_pylist() == [None, 4, None, None, None]
    assert found.column("kind").to_pylist()[len(events) :] == ["memory"] * 2 + ["flow"] * 8


def test_one_byte_that_is_freed_is_no_null(file):
    events = [
        {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": at, "args": {"Bytes": size}}
        for at, size in enumerate((1, -1, 8, -8))
    ]
    before = read_events(json.dumps({"traceEvents": [*EVENTS, *events]}).encode())
    path = file(packed(before))
    table = pq.read_table(path).to_pylist()
    freed = [row["bytes"] for row in table if row["kind"] == "memory"]
    assert freed[-4:] == [1, -1, 8, -8]
    assert_same(before, parquet_reading.read(path, ORIGIN))


def test_each_event_says_where_it_belongs(tmp_path):
    source, out = tmp_path / "trace.json", tmp_path / "trace.parquet"
    source.write_text(TEXT)
    tg.convert_trace(source, "parquet", out)
    table = pd.read_parquet(out).set_index("name")
    gemm, back = table.loc["gemm"], table.loc["gemm_back"]
    assert gemm.step.tolist() == [3, 3]
    assert gemm.layer.tolist() == ["Linear_0", "Linear_1"]
    assert gemm.operator.tolist() == ["aten::linear"] * 2  # as the user called it
    assert gemm.phase.tolist() == ["forward"] * 2
    assert (back.layer, back.phase, back.step) == ("Linear_1", "backward", 3)
    assert table.loc["aten::addmm"].shapes == "[[4,8],[8,16]]"
    assert table.loc["before"].isna()[["layer", "operator", "phase"]].all()
    kept = table[table.kind == "memory"]
    assert kept.layer.astype(object).fillna("none").tolist() == ["Linear_0", "none"]
    assert kept.step.tolist() == [3, 4]


def test_a_part_of_several_ranks_is_one_table(tmp_path):
    for rank in range(2):
        header = {"distributedInfo": {"rank": rank + 4}}
        (tmp_path / f"{rank}.json").write_text(json.dumps({"traceEvents": EVENTS} | header))
    out = tmp_path / "out" / "job.parquet"
    tg.convert_trace(tmp_path, "parquet", out, layer="Linear_1")
    found = pd.read_parquet(out)
    assert found["rank"].tolist() == [4] * 10 + [5] * 10
    assert (
        found.groupby("rank").duration.sum().tolist()
        == [(15 + 10 + 2 + 6 + 10 + 8 + 2 + 9) * 1000] * 2
    )


def test_of_another_origin_there_is_none(file):
    path = file(packed(odd()))
    for other in (Origin(2, 2, "modules"), Origin(1, 3, "modules"), Origin(1, 2, "all")):
        assert parquet_reading.read(path, other) is None
    assert parquet_reading.read(file(packed(odd(), origin=None)), ORIGIN) is None


def test_of_another_version_there_is_none(file, monkeypatch):
    path = file(packed(odd()))
    monkeypatch.setattr(parquet_columns, "VERSION", parquet_columns.VERSION + 1)
    assert parquet_reading.read(path, ORIGIN) is None


def test_a_foreign_file_has_none(file):
    table = io.BytesIO()
    pq.write_table(pa.table({"kind": ["span"]}), table)
    foreign = (b"", b"PAR1", b"no parquet at all", pickle.dumps({}), table.getvalue())
    for data in foreign:
        assert parquet_reading.read(file(data), ORIGIN) is None
    assert parquet_reading.read(file(b"").with_name("none"), ORIGIN) is None


@pytest.mark.parametrize("name", ["rows", "track", "shapes"])
def test_a_file_made_to_mislead_has_none(file, name):
    before = read_events(TEXT.encode())
    path = file(packed(before))
    table, metadata = pq.read_table(path), pq.read_metadata(path).metadata
    if name == "rows":
        table = table.slice(1)
    else:
        place = table.schema.get_field_index(name)
        wrong = [99] * len(table) if name == "track" else pa.array(["7"] * len(table))
        column = pa.array(wrong).dictionary_encode() if name == "shapes" else pa.array(wrong)
        table = table.set_column(place, name, column.cast(table.schema.field(name).type))
    kept = {key: metadata[key] for key in metadata if key.startswith(b"torchgauge")}
    pq.write_table(table, path)
    assert parquet_reading.read(path, ORIGIN) is None  # without its facts
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(kept)
    assert parquet_reading.read(path, ORIGIN) is None


def test_facts_that_were_changed_are_none(file):
    whole = packed(odd())
    assert (
        whole.count(b'"version": %d,' % parquet_columns.VERSION)
        == whole.count(b'"begin": 1500,')
        == 1
    )
    changed = whole.replace(b'"begin": 1500,', b'"begin": 1700,')
    assert parquet_reading.read(file(changed), ORIGIN) is None


@pytest.mark.parametrize("seed", range(2))
def test_of_a_damaged_file_all_is_read_or_nothing(file, seed):
    before = odd()
    whole = packed(before)
    chance = random.Random(seed)
    for _ in range(100):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 1, 3))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.2:
            data = data[: chance.randrange(len(data))]
        found = parquet_reading.read(file(bytes(data)), ORIGIN)
        if found is not None:
            assert_same(before, found)


def test_without_pyarrow_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    source = tmp_path / "trace.json"
    source.write_text(TEXT)
    for way in (
        lambda: tg.convert_trace(source, "parquet", tmp_path / "out"),
        lambda: tg.read_trace(source, cache=True),
    ):
        with pytest.raises(MissingExtraError, match=r"torchgauge-profiler\[parquet\]"):
            way()
    assert {one.name for one in tmp_path.iterdir()} == {"trace.json"}
    assert SUFFIX.endswith(".parquet")
