"""The tree of a trace recorded elsewhere: nothing left out, layers where it names them."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from tests.support.kineto_events import (
    ENGINE,
    MAIN,
    copy,
    kernel,
    launch,
    launched,
    mark,
    module,
    node,
    op,
    read,
)
from tests.support.paths import TINY_TRAINING, public_trace
from tests.support.recorded_trees import recorded_tree

from torchgauge.analyze.timeline.attribution import attribute
from torchgauge.analyze.timeline.launches import KINDS
from torchgauge.analyze.timeline.launches import launched as launches_of
from torchgauge.analyze.timeline.module_calls import Modules
from torchgauge.readers.kineto.kineto import read_events

LAYERED = ["h100_bert_small", "h100_qwen_0.5b", "mi300_resnet_ddp_checkpoint_rank0of8"]
BARE = [
    "a100_nccl_rank0of2",
    "diff_after_v100",
    "diff_before_a100",
    "v100_train_memory_events_rank1of2",
    "v100_train_ns_resolution",
]


def public(name):
    return read_events(public_trace(name))


def device_total(events):
    return int(events.duration[events.category.where(lambda name: name in KINDS)].sum())


def outline(tree):
    return {
        (one.parent.name if one.parent else "", one.name, one.kind): one.calls
        for one in tree.root.walk()
    }


def warned(tree):
    return [warning.id for warning in tree.warnings]


@pytest.mark.parametrize("name", LAYERED + BARE)
def test_public_traces_lose_nothing(name):
    events = public(name)
    tree = recorded_tree(events)
    assert sum(row.device for row in tree.rows) == device_total(events)
    work = events.category.where(lambda category: category in KINDS)
    assert sum(row.calls for row in tree.rows if row.kernel) == work.sum()
    assert sum(row.kernel.calls for row in tree.rows if row.kernel) == work.sum()
    annotations = events.category.where(lambda category: category == "user_annotation")
    steps = events.name.where(lambda text: text.startswith("ProfilerStep#")) & annotations
    assert tree.steps == steps.sum() > 0
    # Threads that overlap count once: the host's time is that of the steps.
    assert tree.root.host_time == pytest.approx(events.duration[steps].sum() * 1e-9, rel=1e-3)
    assert ("no-layers" in warned(tree)) == (name in BARE)
    assert ("no-layer-paths" in warned(tree)) == (name in LAYERED)
    assert all(row.parent < number for number, row in enumerate(tree.rows))
    (device,) = tree.devices
    assert 0 < device.busy <= device_total(events) * 1e-9
    assert device.idle > 0


@pytest.mark.parametrize("name", [*LAYERED, "a100_nccl_rank0of2", "v100_train_ns_resolution"])
def test_the_operator_of_a_launch_is_that_of_its_external_id(name):
    """External ids are right for all but communication, and absent or of other kinds elsewhere."""
    events = public(name)
    modules = Modules(events, "")
    spans = attribute(events, modules.tree, number=modules.number)
    work = launches_of(events, spans)
    of_event = np.full(len(events), -1)
    of_event[events.operators.row] = events.operators.external_id
    found = of_event[spans.row[work.span]]
    wanted = events.device_work.external_id[work.entry]
    is_nccl = events.name.take(work.row).where(lambda text: "nccl" in text)
    asked = work.launched & (wanted != -1) & ~is_nccl
    # A launch inside a module and in no operator has that module's own span, which has no id.
    asked &= found != -1
    assert asked.sum() > 50
    assert (found[asked] == wanted[asked]).all()


def test_the_share_of_communication_and_of_unknown_launches_is_not_hidden():
    tree = recorded_tree(public("mi300_resnet_ddp_checkpoint_rank0of8"))
    kernels = [row for row in tree.rows if row.kernel and row.kernel.work == "kernel"]
    whole = sum(row.device for row in kernels)
    older = [row for row in kernels if not row.kernel.launched]
    assert (sum(row.calls for row in older), sum(row.calls for row in kernels)) == (757, 2995)
    assert sum(row.device for row in older) / whole == pytest.approx(0.317, abs=0.0005)
    buckets = {one.name: one.total("device") for one in tree.root.children if one.kind == "bucket"}
    assert buckets["communication"] / whole == pytest.approx(0.735, abs=0.0005)
    message = next(w.message for w in tree.warnings if w.id == "launched-before")
    assert "757 of 2,995 kernels, 31.7 %" in message


def test_layers_of_a_recorded_training_have_backward_and_recomputed_work():
    tree = recorded_tree(public("mi300_resnet_ddp_checkpoint_rank0of8"))
    assert tree.root.name == "DistributedDataParallel_0"
    (resnet,) = tree.root.layers
    assert (resnet.name, resnet.row.type) == ("ResNet_0", "ResNet")
    times = dict.fromkeys(("forward", "backward", "recompute"), 0)
    for one in resnet.walk():
        if one.kind == "kernel" and one.row.phase in times:
            times[one.row.phase] += one.row.device
    assert min(times.values()) > 10**6
    assert sum(times.values()) == resnet.total("device")


def test_a_recorded_model_is_in_its_layers_as_a_whole():
    events = public("h100_bert_small")
    tree = recorded_tree(events)
    assert [one.name for one in tree.root.layers] == ["BertModel_0", "BertOnlyMLMHead_0"]
    assert sum(layer.total("device") for layer in tree.root.layers) == device_total(events)


def test_modules_are_layers_by_their_nesting():
    tree = recorded_tree(
        read(
            mark("ProfilerStep#3", 0, 100),
            module("Net_0", 10, 60),
            module("Linear_0", 12, 10),
            op("aten::linear", 13, 8, sequence=1),
            *launched("gemm", 60, 7, at=15),
            module("Linear_1", 24, 10),
            op("aten::linear", 25, 8, sequence=2),
            node("AddmmBackward0", 75, 10, 1),
            *launched("gemm backward", 80, 5, at=77, tid=ENGINE),
        )
    )
    assert outline(tree) == {
        ("", "Net_0", "model"): 1,
        ("Net_0", "Linear_0", "layer"): 1,
        ("Linear_0", "aten::linear", "operator"): 1,
        ("aten::linear", "gemm", "kernel"): 1,
        ("Linear_0", "autograd::engine::evaluate_function: AddmmBackward0", "operator"): 1,
        ("autograd::engine::evaluate_function: AddmmBackward0", "gemm backward", "kernel"): 1,
        ("Net_0", "Linear_1", "layer"): 1,
        ("Linear_1", "aten::linear", "operator"): 1,
        ("Net_0", "outside the model", "bucket"): 0,
    }
    assert tree.find("Linear_0").total("device") == 12_000
    assert warned(tree) == ["no-layer-paths"]


def test_several_models_are_below_the_recording():
    parts = [
        module("Net_0", 10, 20),
        module("Linear_0", 12, 5),
        module("CrossEntropyLoss_0", 40, 9),
    ]
    tree = recorded_tree(read(parts, traceName="/somewhere/step.json"))
    assert tree.root.name == "step.json"
    assert [one.name for one in tree.root.layers] == ["Net_0", "CrossEntropyLoss_0"]
    assert tree.find("Linear_0").parent.name == "Net_0"


def test_ranges_of_ours_win_over_modules():
    tree = recorded_tree(
        read(module("Net_0", 10, 60), mark("tg#0", 11, 50), mark("tg#2", 12, 20), op("a::b", 13, 5))
    )
    assert [(one.name, one.row.type) for one in tree.root.layers] == [("tg#2", "")]
    assert tree.find("tg#2").children[0].name == "a::b"


def test_without_layers_operators_are_the_models_own():
    tree = recorded_tree(
        read(
            launch(99, 2),  # of something before: it is no part of the time
            op("aten::linear", 13, 10),
            op("aten::addmm", 14, 8),
            *launched("gemm", 60, 7, at=16),
            launch(5, 30),
            copy("Memcpy", 90, 2, 5),
            op("aten::linear", 40, 10),
        )
    )
    assert outline(tree) == {
        ("", "recording", "model"): 0,
        ("recording", "aten::linear", "operator"): 2,
        ("aten::linear", "aten::addmm", "operator"): 1,
        ("aten::addmm", "gemm", "kernel"): 1,
        ("recording", "memory copies", "bucket"): 0,
        ("memory copies", "Memcpy", "kernel"): 1,
    }
    assert (tree.steps, tree.step, warned(tree)) == (1, "loop", ["no-layers"])
    assert tree.devices[0].idle == pytest.approx((92 - 13 - 9) * 1e-6)


def test_old_times_are_whole_microseconds_and_nest_by_that():
    parts = [op("aten::linear", 10, 5), op("aten::addmm", 12, 4), *launched("gemm", 60, 7, at=13)]
    nested, inner = ("recording", "aten::linear"), ("aten::linear", "aten::addmm")
    tree = recorded_tree(read(parts))
    assert {(*nested, "operator"), (*inner, "operator")} <= outline(tree).keys()
    # One time is finer: then a microsecond is no rounding.
    tree = recorded_tree(read(parts, op("aten::mul", 80, 0.5)))
    assert ("recording", "aten::addmm", "operator") in outline(tree)


def test_operators_are_in_the_order_of_their_times_on_whatever_thread():
    later = op("aten::later", 30, 5, tid=ENGINE)
    tree = recorded_tree(read(later, op("aten::early", 10, 5), op("aten::last", 50, 5)))
    assert [one.name for one in tree.root.children] == ["aten::early", "aten::later", "aten::last"]


def test_figures_are_those_of_all_steps_and_of_what_is_outside_of_them():
    parts = []
    for number in range(3):
        at = 100 * number
        parts += [mark(f"ProfilerStep#{number}", at, 50), op("aten::mul", at + 10, 20)]
        parts += launched("mul", at + 30, 1 + number, at=at + 12)
    tree = recorded_tree(read(parts, op("aten::mul", 400, 20), launched("mul", 430, 5, at=405)))
    mul = tree.root.children[0]
    assert (tree.steps, mul.calls, mul.children[0].calls) == (3, 4, 4)
    assert (mul.row.host, mul.children[0].row.device) == (80_000, 11_000)
    assert tree.root.total("host") == 3 * 50_000 + 20_000


def test_a_small_training_without_a_device():
    tree = recorded_tree(read_events(TINY_TRAINING))
    assert tree.root.device_time is None
    assert {"optimizer", "autograd engine"} < {one.name for one in tree.root.children}
    assert any(row.phase == "backward" for row in tree.rows)


def test_an_empty_trace_has_an_empty_tree():
    tree = recorded_tree(read())
    assert [(row.name, row.host, row.device) for row in tree.rows] == [("recording", 0, None)]


times = st.integers(0, 60)
spans = st.tuples(times, st.integers(0, 30), st.sampled_from([MAIN, ENGINE]))


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(
    host=st.lists(
        st.tuples(
            spans, st.sampled_from(["op", "node", "module", "ProfilerStep#1", "Optimizer.step#A"])
        ),
        max_size=12,
    ),
    calls=st.lists(st.tuples(spans, st.integers(0, 4)), max_size=5),
    work=st.lists(
        st.tuples(
            times, st.integers(0, 20), st.integers(-1, 5), st.sampled_from(["k", "nccl", "copy"])
        ),
        max_size=8,
    ),
)
def test_whatever_is_recorded_every_piece_of_device_work_is_in_one_node(host, calls, work):
    parts = [
        {"op": op, "node": node, "module": module}.get(kind, mark)(kind, ts, dur, tid=tid)
        for (ts, dur, tid), kind in host
    ]
    parts += [launch(number, ts, dur, tid) for (ts, dur, tid), number in calls]
    for ts, dur, number, kind in work:
        if kind == "copy":
            parts.append(copy("Memcpy", ts, dur, number))
        else:
            parts.append(kernel(kind, ts, dur, number))
    events = read(parts)
    tree = recorded_tree(events)
    assert sum(row.device or 0 for row in tree.rows) == device_total(events)
    assert sum(row.calls for row in tree.rows if row.kernel) == len(work)
    assert all(row.parent < number for number, row in enumerate(tree.rows))
    assert all(row.host >= 0 for row in tree.rows)
    for device in tree.devices:
        assert device.busy <= device_total(events) * 1e-9 + 1e-12
