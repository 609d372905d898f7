"""The written trace: read back by our own reader, and as plain JSON."""

import gzip
import json
import tracemalloc
from collections import Counter

import numpy as np
import pytest
import torch
from tests.support.kineto_events import mark, op, read
from tests.support.recorded_trees import recorded_tree
from torch import nn

import torchgauge as tg
from torchgauge.analyze.timeline.attribution import attribute
from torchgauge.analyze.timeline.call_tree import CallTree, NamedModule
from torchgauge.analyze.timeline.launches import named_spans
from torchgauge.measure.forward import opened
from torchgauge.measure.timeline import timeline
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.readers.nesting import nest
from torchgauge.records.record import encodable
from torchgauge.report.export import chrome_trace
from torchgauge.targets.builds.source import Source

ODD = 'quo"te\nnew–línea\\\ud800'


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.add_module(ODD, nn.Sequential(nn.Linear(16, 16), nn.ReLU()))

    def forward(self, x):
        return getattr(self, ODD)(self.first(x)) * 2


def recorded(model, *inputs, train=None):
    kept = []
    source = Source.of_object(model, inputs, training=train is not None)
    timeline.measure(opened(source), train=train, keep=kept.append)
    return kept[0]


@pytest.fixture(scope="module")
def training():
    step = tg.Training(lambda out, _: out.sum(), lambda p: torch.optim.SGD(p, lr=0.1))
    return recorded(Net(), torch.ones(4, 8), train=step)


@pytest.fixture(scope="module")
def written(training, tmp_path_factory):
    return chrome_trace.write(training, tmp_path_factory.mktemp("trace") / "out.json")


def spans(path):
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


def test_what_is_read_back_is_what_was_recorded(training, written):
    before, after = training.events, read_events(written)
    assert len(after) == len(before)
    names = Counter(before.name[i] for i in range(len(before)))
    kept = Counter(after.name[i] for i in range(len(after)))
    operators = {name for name in names if name.startswith(("aten::", "autograd::"))}
    assert len(operators) > 10
    assert {name: kept[name] for name in operators} == {name: names[name] for name in operators}
    codes = before.thread.codes
    order = np.lexsort((-before.duration, before.start, codes))
    assert after.start.tolist() == before.start[order].tolist()
    assert after.duration.tolist() == before.duration[order].tolist()
    assert np.count_nonzero(after.operators.sequence >= 0) == np.count_nonzero(
        before.operators.sequence >= 0
    )
    shapes = Counter(before.operators.dims[i] for i in range(len(before.operators.row)))
    assert shapes == Counter(after.operators.dims[i] for i in range(len(after.operators.row)))
    assert len(after.flows.id) == len(before.flows.id) > 0
    assert after.metadata.base_time == before.metadata.base_time + before.metadata.origin
    assert after.metadata.thread_names == before.metadata.thread_names


def test_all_of_it_nests(written):
    found = read_events(written)
    assert nest(found.start, found.duration, found.thread.codes).overlaps == 0


def test_perfettos_rules_of_nesting_hold(written):
    """Of one thread a span lies within another or beside it; an arrow ends in a span.

    Read as plain JSON, in whole nanoseconds: Perfetto drops or stretches spans that break them.
    """
    events = json.loads(written.read_text())["traceEvents"]
    threads = {}
    for event in events:
        if event["ph"] == "X":
            start, duration = (round(event[key] * 1000) for key in ("ts", "dur"))
            assert duration >= 0
            span = (start, start + duration)
            threads.setdefault((event["pid"], event["tid"]), []).append(span)
    assert len(threads) > 1
    for spans_ in threads.values():
        open_until = []
        for start, end in sorted(spans_, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)
    arrows = [event for event in events if event["ph"] in "sf"]
    assert arrows
    for event in arrows:
        time = round(event["ts"] * 1000)
        found = threads[event["pid"], event["tid"]]
        assert any(start <= time <= end for start, end in found)


def test_layers_are_spans_under_their_names(training, written):
    odd = ODD.replace("\ud800", "\\ud800")
    calls = [event for event in spans(written) if "Class" in event["args"]]
    steps = [event for event in spans(written) if event["name"].startswith("ProfilerStep#")]
    found = Counter((event["name"], event["args"]["Class"]) for event in calls)
    layers = [("Net", "Net"), ("first", "Linear"), (odd, "Sequential")]
    layers += [(f"{odd}.0", "Linear"), (f"{odd}.1", "ReLU")]
    assert found == {layer: len(steps) + 1 for layer in layers}  # one step is not read
    assert {event["cat"] for event in calls} == {"user_annotation"}
    assert not any(event["name"].startswith("tg") for event in spans(written))


def test_what_is_written_is_read_with_its_layers_and_steps(training, written):
    """As a trace from somebody else: the tree has paths and classes, and no warning about them."""
    tree = recorded_tree(read_events(written))
    assert tree.steps == sum(name.startswith("tg@") for name in training.events.name.values)
    rows = {one.path: one.row.type for one in tree.nodes if one.kind in ("model", "layer")}
    assert rows == {
        "": "Net",
        "first": "Linear",
        encodable(ODD): "Sequential",
        encodable(f"{ODD}.0"): "Linear",
        encodable(f"{ODD}.1"): "ReLU",
    }
    assert tree.root.name == "Net"
    assert not {"no-layers", "no-layer-paths"} & {one.id for one in tree.warnings}


def test_what_a_user_marks_under_a_layers_name_is_no_call_of_it():
    spans = [
        mark("Net", 0, 90) | {"args": {"External id": 1, "Class": "Net"}},
        mark("head", 10, 40) | {"args": {"External id": 2, "Class": "Linear"}},
        op("aten::linear", 20, 10),
        mark("head", 60, 20),
        op("aten::relu", 65, 5),
    ]
    tree = recorded_tree(read(*spans))
    head = tree.find("head")
    assert (head.row.calls, [one.name for one in head.children]) == (1, ["aten::linear"])


def test_every_operator_says_whose_it_is(written):
    named = [event for event in spans(written) if event["name"] in ("AddmmBackward0", "aten::relu")]
    odd = ODD.replace("\ud800", "\\ud800")
    assert {event["args"]["Layer"] for event in named} == {"first", f"{odd}.0", f"{odd}.1"}


def test_arrows_join_forward_and_backward(written):
    events = json.loads(written.read_text())["traceEvents"]
    ends = {
        phase: {e["id"]: e["ts"] for e in events if e["ph"] == phase and e["cat"] == "fwdbwd"}
        for phase in "sf"
    }
    assert ends["s"].keys() == ends["f"].keys()
    assert all(ends["s"][number] < ends["f"][number] for number in ends["s"])


def test_packed_it_is_the_same(training, written, tmp_path):
    path = chrome_trace.write(training, tmp_path / "out.json.gz")
    assert gzip.decompress(path.read_bytes()) == written.read_bytes()


def raw(*events):
    return json.dumps({"traceEvents": events, "baseTimeNanoseconds": 7}).encode()


def without_layers(text):
    events = read_events(text)
    tree = CallTree([NamedModule(("",), "Net")], "Net")
    return named_spans(events, attribute(events, tree), tree)


def test_kernels_and_memory_keep_their_figures(tmp_path):
    kernel = {"device": 0, "stream": 7, "correlation": 5, "grid": [1, 2, 3], "block": [32, 1, 1]}
    kernel |= {"est. achieved occupancy %": 25.0, "registers per thread": 16}
    copy = {"device": 0, "stream": 7, "correlation": 6, "bytes": 4096}
    copy |= {"memory bandwidth (GB/s)": 12.5}
    memory = {"Addr": 1, "Bytes": 512, "Total Allocated": 1024, "Device Type": 1, "Device Id": 0}
    text = raw(
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7}
        | {"ts": 10.5, "dur": 4.001, "args": kernel},
        {"ph": "X", "cat": "gpu_memcpy", "name": "copy", "pid": 0, "tid": 7}
        | {"ts": 14.0, "dur": 9.0, "args": copy},
        {"ph": "X", "cat": "cuda_runtime", "name": "launch", "pid": 1, "tid": 1}
        | {"ts": 9.0, "dur": 1.0, "args": {"correlation": 5}},
        {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 9.5, "args": memory},
    )
    path = chrome_trace.write(without_layers(text), tmp_path / "out.json")
    by_name = {event["name"]: event for event in json.loads(path.read_text())["traceEvents"]}
    assert by_name["k"]["args"] == kernel
    assert by_name["copy"]["args"] == copy
    assert by_name["launch"]["args"] == {"correlation": 5}
    assert by_name["allocated CUDA 0"]["args"] == {"bytes": 1024}
    # Both kernels ran on the stream at once: the first is shown until the second begins.
    assert (by_name["k"]["ts"], by_name["k"]["dur"]) == (1.5, 3.5)
    assert (by_name["copy"]["ts"], by_name["copy"]["dur"]) == (5.0, 9.0)


def test_the_longest_traces_keep_their_nanoseconds(tmp_path):
    late = 10**13 - 1  # ns: almost three hours
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1}
        | {"ts": start / 1000, "dur": duration / 1000}
        for name, start, duration in [("a", 0, 1), ("b", late, 3), ("c", late + 1, 2)]
    ]
    path = chrome_trace.write(without_layers(raw(*events)), tmp_path / "out.json")
    found = read_events(path)
    assert found.start.tolist() == [0, late, late + 1]
    assert found.duration.tolist() == [1, 3, 2]


def test_memory_does_not_grow_with_the_events(training, monkeypatch):
    monkeypatch.setattr(chrome_trace, "AT_ONCE", 50)
    whole = sum(map(len, chrome_trace.parts(training)))
    tracemalloc.start()
    for _ in chrome_trace.parts(training):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < whole
