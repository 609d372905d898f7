"""Kernels of CUDA graphs joined to the operators of their capture."""

import gzip
import json
from collections import defaultdict

import numpy as np
import pytest
from tests.support.kineto_events import kernel, mark, op, read, span
from tests.support.paths import TRACES

import torchgauge as tg
from torchgauge.analyze.timeline.launches import launched
from torchgauge.analyze.trace.device_work import attributed
from torchgauge.analyze.trace.graph_captures import joined
from torchgauge.readers.kineto.kineto import read_events

CAPTURE, REPLAY = (TRACES / f"vllm_{name}.json.gz" for name in ("capture", "replay"))
SMALL, LARGE = [[4, 8], [8, 2]], [[400, 8], [8, 2]]


def call(name, ts, **args):
    return span("cuda_runtime", name, ts, 1, **args)


def captured(*operators, begin=0, sizes=SMALL):
    """The capture of a graph in which each operator launches one kernel, given by its name."""
    events = [call("hipStreamBeginCapture", begin, correlation=begin + 1)]
    for number, (name, kernel_name) in enumerate(operators):
        at = begin + 10 * (number + 1)
        events.append(op(name, at, 8, **{"Input Dims": sizes, "Input type": ["float", "float"]}))
        launch = call("hipModuleLaunchKernel", at + 4, correlation=at, kernel=kernel_name)
        events.append(launch)
    end = begin + 10 * (len(operators) + 1)
    return [*events, call("hipStreamEndCapture", end, correlation=end + 1)]


def replayed(*kernels, correlation=1, at=0, nodes=None, streams=None):
    """A launch of a graph, and its kernels one after the other."""
    events = [call("hipGraphLaunch", at, correlation=correlation) | {"dur": 50}]
    for number, name in enumerate(kernels):
        args = {} if nodes is None else {"graph node id": nodes[number]}
        stream = 7 if streams is None else streams[number]
        events.append(kernel(name, at + 60 + 10 * number, 9, correlation, stream=stream, **args))
    return events


def operators_of(events, recordings):
    """Return the operator of each kernel in order of time, None without, and the figures."""
    events, figures = joined(events, recordings)
    _, spans = attributed(events)
    work = launched(events, spans)
    by_begin = np.argsort(events.start[work.row])
    places = work.span[by_begin].tolist()
    names = [None if one == -1 else str(events.name[spans.row[one]]) for one in places]
    return names, figures


def test_every_kernel_of_a_public_replay_is_joined_to_the_operator_around_its_launch():
    spans = defaultdict(list)
    for file in (CAPTURE, REPLAY):
        for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]:
            spans[file, event.get("cat")].append(event)
    calls = sorted(spans[CAPTURE, "cuda_runtime"], key=lambda event: event["ts"])
    begins = [event["ts"] for event in calls if event["name"] == "hipStreamBeginCapture"]
    ends = [event["ts"] for event in calls if event["name"] == "hipStreamEndCapture"]
    expected = []
    for begin, end in zip(begins, ends, strict=True):
        for event in calls:
            if begin < event["ts"] < end and "kernel" in event.get("args", {}):
                around = [
                    one
                    for one in (*spans[CAPTURE, "cpu_op"], *spans[CAPTURE, "user_annotation"])
                    if begin < one["ts"] <= event["ts"] < one["ts"] + one["dur"]
                ]
                innermost = max(around, key=lambda one: one["ts"])["name"]
                expected.append((event["args"]["kernel"], innermost))
    graphs = {
        event["args"]["correlation"]
        for event in spans[REPLAY, "cuda_runtime"]
        if event["name"] == "hipGraphLaunch"
    }
    replay = read_events(REPLAY)
    names, figures = operators_of(replay, [read_events(CAPTURE)])
    kernels = sorted(
        (event for kind in ("kernel", "gpu_memcpy") for event in spans[REPLAY, kind]),
        key=lambda event: event["ts"],
    )
    found = [
        (event["name"], name)
        for event, name in zip(kernels, names, strict=True)
        if event["args"]["correlation"] in graphs
    ]
    assert found == expected
    assert (figures.launches, figures.work, figures.joined) == (25, 361, 361)
    assert figures.without_sizes == 0


def test_the_record_has_flops_of_replays_and_what_is_in_the_file():
    alone, both = tg.read_trace(REPLAY), tg.read_trace(REPLAY, capture=CAPTURE)
    before, after = alone.ranks[0], both.ranks[0]
    assert before.graphs.joined == 0
    assert any("--capture FILE" in sentence for sentence in before.missing)
    assert not any("CUDA graphs" in sentence for sentence in after.missing)
    assert before.contents == after.contents
    assert (before.times, before.device_time) == (after.times, after.device_time)
    work = {}
    for row in after.tree.rows:
        if row.kind == "operator" and row.name == "aten::addmm":
            work[row.shapes] = work.get(row.shapes, 0) + row.flops
    m = 8192
    expected = {
        "[[2880], [8192, 4096], [4096, 2880], [], []]": 24 * 2 * m * 4096 * 2880,
        "[[32], [8192, 2880], [2880, 32], [], []]": 24 * 2 * m * 2880 * 32,
        "[[5120], [8192, 2880], [2880, 5120], [], []]": 24 * 2 * m * 2880 * 5120,
    }
    assert set(work) == set(expected)
    for shapes, products in expected.items():  # and the sum with the bias
        assert products <= work[shapes] <= 1.001 * products


# From TraceLens' reference report of these two files (ops_summary.csv): calls, and ms of kernels,
# rounded to the quarter of a microsecond that its floats of microseconds have.
REFERENCE = {
    "vllm::moe_forward": (24, 124.8857861328125),
    "aten::addmm": (72, 17.3018173828125),
    "vllm::unified_attention_with_output": (24, 5.1469072265625),
    "aiter::rmsnorm2d_fwd_with_add_ck": (48, 3.36773828125),
    "_C::rotary_embedding": (24, 1.7063291015625),
    "triton_poi_fused_constant_pad_nd_moe_forward_0": (24, 1.566326171875),
    "_C_cache_ops::reshape_and_cache_flash": (24, 0.58637109375),
    "triton_poi_fused__to_copy_1": (23, 0.4356962890625),
    "SortTokens": (24, 0.4313720703125),
    "aten::mm": (1, 0.34663671875),
    "TopK": (24, 0.1415771484375),
    "aten::copy_": (11, 0.0791962890625),
    "triton_poi_fused_0": (1, 0.043439453125),
    "aiter::rms_norm": (1, 0.0396787109375),
    "aten::index": (1, 0.003638671875),
    "aten::sub": (1, 0.0033994140625),
}


def test_the_time_of_every_operator_is_that_of_a_peers_reference_report():
    trace = tg.read_trace(REPLAY, capture=CAPTURE).ranks[0]
    columns = trace.table("operators").columns
    rows = zip(columns["Name"], columns["# of Calls"], columns["Self CUDA"], strict=True)
    by_name = {name: (calls, time * 1e3) for name, calls, time in rows if time}
    assert by_name == {
        name: (calls, pytest.approx(time, rel=2e-5, abs=5e-7 * calls))
        for name, (calls, time) in REFERENCE.items()
    }


def test_captures_are_found_in_the_folder_beside(tmp_path):
    (tmp_path / "capture_traces").mkdir()
    (tmp_path / "capture_traces" / "a.json.gz").write_bytes(CAPTURE.read_bytes())
    (tmp_path / "replay.json.gz").write_bytes(REPLAY.read_bytes())
    assert tg.read_trace(tmp_path / "replay.json.gz").ranks[0].graphs.joined == 361


def test_a_graph_that_was_not_captured_is_joined_to_nothing():
    capture = read(captured(("aten::mm", "gemm"), ("aten::add", "add")))
    for kernels in (("gemm",), ("gemm", "mul"), ("gemm", "add", "add")):
        names, figures = operators_of(read(replayed(*kernels)), [capture])
        assert set(names) == {None}
        assert (figures.work, figures.joined) == (len(kernels), 0)


def test_a_capture_that_does_not_name_its_kernels_is_of_no_graph():
    events = captured(("aten::mm", "gemm"))
    for event in events:
        event["args"].pop("kernel", None)
    assert operators_of(read(replayed("gemm")), [read(events)])[1].joined == 0


def test_calls_whose_work_ran_were_not_captured():
    ran = [call("hipModuleLaunchKernel", 5, correlation=999, kernel="warm"), *captured(("a", "k"))]
    ran += [kernel("warm", 300, 5, 999)]
    names, figures = operators_of(read(replayed("k")), [read(ran)])
    assert (names, figures.joined) == (["a"], 1)


def test_operators_of_captures_of_several_sizes_are_without_sizes():
    graph = (("aten::mm", "gemm"), ("aten::add", "add"))
    both = read(captured(*graph), captured(*graph, begin=1000, sizes=LARGE))
    events, figures = joined(read(replayed("gemm", "add")), [both])
    assert (figures.joined, figures.without_sizes) == (2, 2)
    assert set(events.operators.dims.codes.tolist()) == {-1}
    certain, figures = joined(read(replayed("gemm", "add")), [read(captured(*graph, sizes=LARGE))])
    assert (figures.joined, figures.without_sizes) == (2, 0)
    assert {certain.operators.dims[n] for n in range(2)} == {((400, 8), (8, 2))}


def test_a_graph_that_follows_a_known_one_is_the_next_captured():
    first, second = ("aten::mm", "gemm"), ("aten::add", "add")
    small = [*captured(("a", "only_small")), *captured(first, second, begin=100)]
    large = captured(("a", "only_large"), begin=1000)
    large += captured(first, second, begin=1100, sizes=LARGE)
    steps = [
        *replayed("only_large", correlation=1),
        *replayed("gemm", "add", correlation=2, at=200),
    ]
    events, figures = joined(read(steps), [read(small, large)])
    assert (figures.joined, figures.without_sizes) == (3, 0)
    dims = {str(events.name[row]): events.operators.dims[n]
            for n, row in enumerate(events.operators.row.tolist())}  # fmt: skip
    assert dims["aten::mm"] == ((400, 8), (8, 2))


def test_operators_of_other_names_are_not_guessed():
    one, other = captured(("aten::mm", "k")), captured(("aten::bmm", "k"), begin=1000)
    assert operators_of(read(replayed("k")), [read(one, other)])[1].joined == 0


def test_nodes_order_work_that_branches_end_in_another_order():
    capture = read(captured(("aten::mm", "gemm"), ("aten::add", "add"), ("aten::mul", "add")))
    ended = replayed("add", "gemm", "add", nodes=[2, 1, 3], streams=[8, 7, 8])
    assert operators_of(read(ended), [capture])[0] == ["aten::add", "aten::mm", "aten::mul"]
    unnumbered = replayed("add", "gemm", "add", streams=[8, 7, 8])
    names, figures = operators_of(read(unnumbered), [capture])
    assert names == [None, "aten::mm", None]  # which "add" came first is unknown
    assert (figures.work, figures.joined) == (3, 1)


def test_what_is_around_the_launch_stays_around_its_operators():
    replay = read(mark("tg#0", 0, 60), replayed("gemm", at=5))
    events, _ = joined(replay, [read(captured(("aten::mm", "gemm")))])
    _, spans = attributed(events)
    names = [str(events.name[row]) for row in spans.row.tolist()]
    assert names == ["tg#0", "aten::mm"]
    assert spans.parent.tolist() == [-1, 0]
    assert len(events) == len(replay) + 1


@pytest.mark.parametrize("parts", [(), (captured(("a", "k")),)])
def test_a_trace_without_graphs_stays_as_it_is(parts):
    events = read(op("aten::mm", 0, 5))
    found, figures = joined(events, [read(*parts)] if parts else [])
    assert found is events
    assert figures is None


def test_a_recording_of_captures_says_that_it_is_one():
    capture = tg.read_trace(CAPTURE).ranks[0]
    assert (capture.graphs.launches, capture.graphs.captured) == (0, 25)
    ids = [finding.id for finding in capture.findings]
    assert ids[0] == "graph-capture"
    assert not {"synchronisation", "idle-host", "launch-bound"} & set(ids)
    assert "graph-capture" not in [one.id for one in tg.read_trace(REPLAY).ranks[0].findings]
