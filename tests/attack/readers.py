"""Every reader of files, given mutations of whole ones: it gives a result, or one of our errors.

A reader takes dice and a folder of its own, writes the case there and reads it.
"""

import builtins
import functools
import io
import json
import pickle
import sqlite3
import tempfile
import warnings
import zlib
from pathlib import Path

from tests.attack.mutations import bytes_changed, json_changed, packed, zipped
from tests.attack.record_kinds import KINDS, show

from torchgauge.records import codec

READERS = {}


def reader(function):
    READERS[function.__name__] = function
    return function


# Traces


@functools.cache
def traces():
    from tests.attack import trace_files

    return trace_files.every()


def trace_changed(dice):
    from tests.attack.trace_files import events_changed

    whole = dice.choice(traces())
    if dice.random() < 0.4:
        return bytes_changed(json.dumps(whole).encode(), dice)
    return events_changed(whole, dice) if dice.random() < 0.6 else json_changed(whole, dice)


@reader
def trace(dice, folder):
    from tests.attack.trace_files import analysed

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        analysed(trace_changed(dice), partial=dice.random() < 0.5)


@reader
def packed_trace(dice, folder):
    import torchgauge as tg

    path = folder / "made.json.gz"
    path.write_bytes(packed(trace_changed(dice), dice))
    record = tg.read_trace(path, partial=dice.random() < 0.5, python=dice.random() < 0.5)
    assert str(record)
    assert codec.decode(codec.encode(record)) == record


@reader
def archived_traces(dice, folder):
    from torchgauge.readers.kineto.kineto import read_events
    from torchgauge.readers.tar_archive import trace_paths

    names = ["rank0.json", "rank1.json.gz", "../rank2.json", "a/rank0.json", "notes.txt", "x.zip"]
    members = [(dice.choice(names), trace_changed(dice)) for _ in range(dice.randint(1, 3))]
    path = folder / "job.zip"
    path.write_bytes(zipped(members, dice))
    for one in trace_paths(path) or [path]:
        read_events(one, partial=dice.random() < 0.5)


@reader
def tarred_traces(dice, folder):
    from tests.support.archives import tar

    from torchgauge.readers.kineto.kineto import read_events
    from torchgauge.readers.tar_archive import tar_paths

    names = ["rank0.json", "rank1.json.gz", "../rank2.json", "a/rank0.json", "notes.txt", "x.zip"]
    members = [(dice.choice(names), trace_changed(dice)) for _ in range(dice.randint(1, 3))]
    data = tar(members, packing=dice.choice(["", "gz"]))
    path = folder / "job.tar"
    path.write_bytes(bytes_changed(data, dice) if dice.random() < 0.5 else data)
    for one in tar_paths(path) or [path]:
        read_events(one, partial=dice.random() < 0.5)


@reader
def xplane(dice, folder):
    from tests.support.dialects import GPU
    from tests.support.xspaces import xspace

    import torchgauge as tg

    path = folder / "host.xplane.pb"
    data = xspace([event for event in GPU["traceEvents"] if event])
    path.write_bytes(bytes_changed(data, dice) if dice.random() < 0.8 else data)
    assert str(tg.read_trace(path, partial=dice.random() < 0.5))


@reader
def rocprof(dice, folder):
    from tests.support.rocprof_file import ROCPROF

    import torchgauge as tg

    path = folder / "results.json"
    path.write_bytes(json_changed(ROCPROF, dice))
    assert str(tg.read_trace(path))


@reader
def ranks_of_traces(dice, folder):
    """The files of a job's ranks, each read as its own process would."""
    from torchgauge.traces import rank_file
    from torchgauge.traces.rank_files import job_trace
    from torchgauge.traces.read_options import ReadOptions
    from torchgauge.traces.trace_files import trace_files

    for number in range(3):
        data = trace_changed(dice) if dice.random() < 0.6 else json.dumps(rank(number)).encode()
        (folder / f"rank{number}.json").write_bytes(data)
    files = trace_files(folder)
    options = ReadOptions()
    read = [rank_file.decoded(str(file), rank_file.answered(str(file), options)) for file in files]
    record = job_trace("job", read)
    assert str(record)
    assert codec.decode(codec.encode(record)) == record


def rank(number):
    from tests.attack.trace_files import BASE

    return {**BASE, "distributedInfo": {"backend": "nccl", "rank": number, "world_size": 3}}


@reader
def converted_trace(dice, folder):
    from tests.attack.trace_files import converted

    path = folder / "made.json"
    path.write_bytes(trace_changed(dice))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        converted(path, dice)


@reader
def cached_trace(dice, folder):
    """The cache beside a trace, damaged: what is read is what the trace says."""
    from tests.support.same_events import assert_same

    from torchgauge.readers.kineto.kineto import read_events
    from torchgauge.traces.rank_file import SUFFIX, cached_events

    path = folder / "made.json"
    path.write_bytes(json.dumps(dice.choice(traces())).encode())
    cached_events(path, python="modules", partial=False)
    kept = path.with_name(path.name + SUFFIX)
    kept.write_bytes(bytes_changed(kept.read_bytes(), dice))
    assert_same(read_events(path), cached_events(path, python="modules", partial=False))


@reader
def recorded_allocations(dice, folder):
    from torchgauge.analyze.memory.allocations import pair
    from torchgauge.analyze.memory.tree_memory import named_ranges, outermost_operators
    from torchgauge.readers.kineto.kineto import read_events

    path = folder / "made.json"
    data = trace_changed(dice)
    path.write_bytes(packed(data, dice) if dice.random() < 0.3 else data)
    events = read_events(path)
    pair(events.memory.on_device(0, -1))
    outermost_operators(events, without=("tg@", "tg#"))
    named_ranges(events, "tg@")


# Memory snapshots


@functools.cache
def snapshots():
    from tests.attack import snapshot_files

    return snapshot_files.every()


@reader
def snapshot(dice, folder):
    from tests.attack import snapshot_files

    import torchgauge as tg

    data = snapshot_files.changed(dice.choice(snapshots()), dice)
    snapshot_files.shown(data)
    path = folder / "made"
    path.write_bytes(data)
    show(tg.load(path) if dice.random() < 0.3 else tg.read_snapshot(path))


# Records


def _add_record_kinds():
    for kind, whole in KINDS.items():

        def read(dice, folder, whole=whole):
            path = folder / "record.json"
            path.write_bytes(json_changed(dice.choice(whole()), dice, torn=0.05))
            show(codec.load(path))

        READERS[f"record_{kind}"] = read


_add_record_kinds()


@reader
def ranks_of_a_loop(dice, folder):
    import torchgauge as tg

    for number in range(3):
        whole = json.loads(codec.encode(loop_of(number)))
        (folder / f"loop.rank{number}.json").write_bytes(json_changed(whole, dice))
    show(tg.load(folder))


def loop_of(number):
    import msgspec
    from tests.support import exported_records

    from torchgauge.records.timeline.loop import Rank

    return msgspec.structs.replace(exported_records.loop(), rank=Rank(number=number, world=3))


@functools.cache
def baselines():
    from tests.support.latency_runs import TEN, layer_times, layered, timed

    current = timed(*TEN, tree=layered(), layers=layer_times())
    return current, json.loads(codec.encode(current))


@reader
def baseline(dice, folder):
    """A stored run is what anybody may have edited: it is compared and gated, or named."""
    import torchgauge as tg
    from torchgauge.records import rendering

    current, whole = baselines()
    path = folder / "baseline.json"
    path.write_bytes(json_changed(whole, dice))
    verdict = tg.gate(path, current, tolerance="latency:1%:3%", thresholds=["memory:1GB"])
    for form in ("console", "markdown", "junit", "csv", "html"):
        assert rendering.text(verdict, form)
    show(verdict.comparison)
    assert codec.decode(codec.encode(verdict)) == verdict
    tg.detect_regressions(current, path)


# The history


@functools.cache
def stores():
    from tests.support import history_runs as runs

    from torchgauge.history.store import Store

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history.db"
        with Store.open(str(file)) as store:
            for day in range(6):
                store.add(runs.run(day, layers={"a": 5}, labels={"k": "v"}, work={"matmul": 0.1}))
        # Without a log beside it, all is in the one file.
        connection = sqlite3.connect(file)
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.close()
        return file.read_bytes()


@reader
def store(dice, folder):
    from tests.support import history_runs as runs

    from torchgauge.history.store import Store
    from torchgauge.history.trend import trend

    file = folder / "history.db"
    file.write_bytes(stores())
    if dice.random() < 0.5:
        rows_changed(file, dice)
    else:
        file.write_bytes(bytes_changed(stores(), dice))
    with Store.open(str(file)) as opened:
        for one in (trend(opened, metrics=["latency_median"]), trend(opened, layer="*")):
            show(one)
        list(opened.entries())
        opened.add(runs.run(100))
        opened.remove([opened.find("latest").uuid])


def rows_changed(file, dice):
    """Change a value of a store's tables, or put another record into a row."""
    with sqlite3.connect(file) as connection:
        table = dice.choice(["runs", "runs", "labels", "metrics", "layers", "yardsticks"])
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        if table == "runs" and dice.random() < 0.5:
            ((profile,),) = connection.execute("SELECT profile FROM runs LIMIT 1")
            changed = json_changed(json.loads(zlib.decompress(profile)), dice)
            data = zlib.compress(changed)
            data = bytes_changed(data, dice) if dice.random() < 0.3 else data
            connection.execute("UPDATE runs SET profile = ? WHERE id = 1", (data,))
            return
        odd = [None, 0, -1, 1e300, -1e300, 2**62, "", "x", b"\x00\xff", "2026-13-45", "9" * 400]
        column = dice.choice(columns)
        with_ = dice.choice(odd)
        try:
            connection.execute(f'UPDATE {table} SET "{column}" = ?', (with_,))
        except sqlite3.IntegrityError:
            connection.execute(f"DELETE FROM {table}")


@functools.cache
def exported_lines():
    from tests.support import history_runs as runs

    from torchgauge.history.imports import json_lines

    return [json.loads(line) for line in json_lines(runs.run(day) for day in range(3))]


@reader
def history_import(dice, folder):
    from torchgauge.history.imports import entries
    from torchgauge.records.run import Facts

    lines = [
        json_changed(one, dice) if dice.random() < 0.5 else json.dumps(one).encode()
        for one in exported_lines()
    ]
    path = folder / "runs.jsonl"
    data = b"\n".join(lines)
    path.write_bytes(bytes_changed(data, dice) if dice.random() < 0.2 else data)
    for one in entries(path, Facts()):
        assert one.run.created


ALERTS = b"""
[[threshold]]
name = "slow"
metric = "latency_median"
target = "net*"
branch = "main"
above = "12ms"

[[change]]
metric = "memory_peak"
by = "3%"
within = 2

[[budget]]
metric = "host_time"
layer = "a*"
sum = "2ms"

[[budget]]
metric = "flops"
growth = "10%"
over = "30d"

[webhook]
url_env = "NOWHERE"
"""
PIECES = [
    b"[[", b"]]", b'"', b"=", b"\n", b"1e999", b"nan", b"inf", b"-", b"99999999d", b"1e308",
    b"0%", b"[" * 2000, b"{a=" * 200, b"a." * 500, b"9" * 5000, b"'''", b"2026-01-01", b"true",
]  # fmt: skip


@reader
def alert_rules(dice, folder):
    from torchgauge.history import rules

    path = folder / "alerts.toml"
    data = bytearray(bytes_changed(ALERTS, dice) if dice.random() < 0.5 else ALERTS)
    for _ in range(dice.randint(0, 3)):
        at = dice.randrange(len(data) + 1)
        data[at : at + dice.randint(0, 6)] = dice.choice(PIECES)
    path.write_bytes(bytes(data))
    found = rules.read(path)
    watch(found.rules)


def watch(found):
    import msgspec
    from tests.support import trends

    from torchgauge.analyze.history.alerts import alerts

    trend = trends.trend()
    for rule in found:
        broken = alerts(rule, trend.series)
        show(msgspec.structs.replace(trend, alerts=tuple(broken or ())))


# What is loaded


class RunsCode:
    """Runs code where it is unpickled."""

    def __reduce__(self):
        return exec, ("import builtins; builtins.it_ran = True",)


@functools.cache
def state_dicts():
    import torch
    from safetensors.torch import save

    state = torch.nn.Linear(4, 4).state_dict()
    files = [(".safetensors", save(state)), (".pt", pickle.dumps([1, "x"]))]
    files.append((".pt", pickle.dumps({"weight": RunsCode()})))
    for options in ({}, {"_use_new_zipfile_serialization": False}):
        for content in (state, {"model": state, "epoch": 3}, {"weight": RunsCode()}):
            buffer = io.BytesIO()
            torch.save(content, buffer, **options)
            files.append((".pt", buffer.getvalue()))
    return files


@reader
def weights(dice, folder):
    import torch

    from torchgauge.targets.loaders.load import load_weights

    suffix, data = dice.choice(state_dicts())
    suffix = dice.choice([suffix, suffix, ".bin", ".safetensors"])
    path = folder / f"weights{suffix}"
    path.write_bytes(bytes_changed(data, dice))
    try:
        load_weights(torch.nn.Linear(4, 4), path)
    finally:
        assert not hasattr(builtins, "it_ran")


@functools.cache
def programs():
    import torch

    model, inputs = torch.nn.Linear(4, 4), (torch.ones(1, 4),)
    exported, scripted = io.BytesIO(), io.BytesIO()
    torch.export.save(torch.export.export(model, inputs), exported)
    torch.jit.save(torch.jit.trace(model, inputs), scripted)
    return [(".pt2", exported.getvalue()), (".pt", scripted.getvalue())]


@reader
def program(dice, folder):
    """A saved program that is not trusted: what it is may be told, none of it is loaded."""
    from torchgauge.targets.loaders.load import load
    from torchgauge.targets.target import TargetRequest

    suffix, data = dice.choice(programs())
    path = folder / f"model{dice.choice([suffix, '.pt2', '.pt', '.ts', '.onnx'])}"
    path.write_bytes(bytes_changed(data, dice))
    load(TargetRequest(str(path), device="meta"))


# What torchgauge keeps


@functools.cache
def kept():
    import msgspec
    from tests.support.past_runs import run as past

    from torchgauge.device.calibration import Calibration, PastRuns
    from torchgauge.device.roofs.roofs import StoredRoofs
    from torchgauge.records.doctor import NoiseRun
    from torchgauge.records.work.roofline import BandwidthPoint, Roofs

    noise = NoiseRun(
        created="2026-01-01T00:00:00+00:00", workload="w", torch="2.13", threads=1,
        differences=(0.01, -0.01), medians=(1e-3,) * 8, other=0.1,
    )  # fmt: skip
    bandwidth = (
        BandwidthPoint(working_set=2**14, bytes_per_second=1e11),
        BandwidthPoint(working_set=2**28, bytes_per_second=1e10),
    )
    roofs = Roofs(
        device="A CPU", source="measured", method="m", peaks={"float32": 1e11}, bandwidth=bandwidth,
        quality="quiet", machine="m", spread=0.01, other=0.1, created="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    yardstick = {"matmul": 1e-4, "copy": 1e-4, "python": 1e-4}
    every = (
        Calibration(machines={"m": (noise,) * 4}),
        StoredRoofs(machines={"m": roofs}),
        PastRuns(machines={"m": (past(yardstick=yardstick),) * 6}),
    )
    return [msgspec.to_builtins(one) for one in every]


@reader
def state_files(dice, folder):
    """What is kept of the machine never stands in the way: it is used, or nothing is kept."""
    import msgspec

    from torchgauge.analyze.latency.noise import with_speed
    from torchgauge.device import calibration
    from torchgauge.device.roofs.roofs import store
    from torchgauge.records.doctor import NoiseRun
    from torchgauge.records.latency.latency import Yardstick
    from torchgauge.records.work.roofline import Roofs

    whole = kept()
    for name, one in zip(("calibration", "roofs", "past_runs"), whole, strict=True):
        (folder / f"{name}.json").write_bytes(json_changed(one, dice))
    noise = msgspec.convert(whole[0]["machines"]["m"][0], NoiseRun)
    roofs = msgspec.convert(whole[1]["machines"]["m"], Roofs)
    calibration.between_sessions("m", "w", folder / "calibration.json")
    calibration.keep("m", noise, folder / "calibration.json")
    found = store(roofs, folder / "roofs.json")
    found.bandwidth_at(2**20)
    known = calibration.past_runs("m", file=folder / "past_runs.json")
    calibration.remember(
        "m", msgspec.structs.replace(past(), target="t"), folder / "past_runs.json"
    )
    with_speed(Yardstick(times={"matmul": 1e-4, "copy": 1e-4, "python": 1e-4}), known, "mlp")


def past():
    from tests.support.past_runs import run

    return run(yardstick={"matmul": 1e-4})


@reader
def sweep_journal(dice, folder):
    import msgspec
    from tests.support.sweeps import SWEPT, journal_entry

    from torchgauge.sweeps.journal import SCHEMA, Journal, _Head

    head = msgspec.to_builtins(_Head(SCHEMA, dict(SWEPT)))
    lines = [head, *(msgspec.to_builtins(journal_entry(number)) for number in (1, 2, 3))]
    data = b"\n".join(
        json_changed(one, dice) if dice.random() < 0.3 else json.dumps(one).encode()
        for one in lines
    )
    path = folder / "cells.jsonl"
    path.write_bytes((bytes_changed(data, dice) if dice.random() < 0.2 else data) + b"\n")
    with Journal(path, SWEPT) as journal:
        journal.add(journal_entry(4))


@reader
def machine_files(dice, folder):
    """What a container shows of /proc and /sys may be anything: doctor says what it can read."""
    from tests.support import fake_machine

    from torchgauge.device.checks.every import checks

    files = {
        name: bytes_changed(text.encode(), dice).decode(errors="replace")
        if dice.random() < 0.3
        else text
        for name, text in fake_machine.FILES.items()
    }
    for one in checks(fake_machine.machine(folder, files)):
        assert one.title
