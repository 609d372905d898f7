"""Whose device time is, in traces made by hand."""

import re

import pytest
from tests.support.kineto_events import (
    ENGINE,
    copy,
    kernel,
    launch,
    launched,
    mark,
    node,
    op,
    read,
    span,
)

from torchgauge.analyze.timeline.attribution import attribute
from torchgauge.analyze.timeline.call_tree import CallTree, NamedModule
from torchgauge.analyze.timeline.residual import LayerTimes
from torchgauge.analyze.timeline.tree import node_table
from torchgauge.analyze.timeline.typical_step import typical
from torchgauge.records.timeline.tables import operators
from torchgauge.records.trace.breakdown import Collective

STEPS = re.compile(r"tg@\d+")
TABLE = [
    NamedModule(("",), "Model"),
    NamedModule(("first",), "Linear"),
    NamedModule(("second",), "ReLU"),
]


def tree_of(*parts, **header):
    events = read(*parts, **header)
    calls = CallTree(TABLE, "Model")
    table = node_table(events, attribute(events, calls), calls, STEPS)
    return typical(table, LayerTimes([], []), step="training", passes=())


def step(*parts, ts=0, dur=100, number=0):
    """One step: the model from 10 to 50 with the layers `first` (12–30) and `second` (32–48)."""
    layers = [mark("tg#0", ts + 10, 40), mark("tg#1", ts + 12, 18), mark("tg#2", ts + 32, 16)]
    return [mark(f"tg@{number}", ts, dur), *layers, *parts]


def kernels(tree):
    """The name of each kernel's node: the names from the root to it, its ns."""
    found = {}
    for one in tree.root.walk():
        if one.kind == "kernel":
            above, names = one.parent, []
            while above.parent is not None:
                names.append(above.name)
                above = above.parent
            found[one.name] = ("/".join(reversed(names)), one.row.device)
    return found


def test_a_kernel_is_below_the_operator_that_launched_it_wherever_it_ran():
    tree = tree_of(
        step(
            op("aten::linear", 13, 10),
            op("aten::addmm", 14, 8),
            *launched("gemm", 60, 7, at=16),
            op("aten::relu", 33, 10),
            *launched("relu", 70, 3, at=35),
        )
    )
    assert kernels(tree) == {
        "gemm": ("first/aten::linear/aten::addmm", 7000),
        "relu": ("second/aten::relu", 3000),
    }
    assert tree.find("first").device_time == pytest.approx(7e-6)
    addmm = next(one for one in tree.root.walk() if one.name == "aten::addmm")
    linear = addmm.parent
    assert (addmm.device_time_self, linear.device_time_self) == (pytest.approx(7e-6), 0)
    assert (addmm.children[0].host_time, addmm.children[0].calls) == (0, 1)


def test_a_launch_between_two_operators_is_the_layers_own():
    parts = [op("aten::mul", 13, 4), *launched("custom", 60, 7, at=18), op("aten::add", 22, 4)]
    assert kernels(tree_of(step(*parts))) == {"custom": ("first", 7000)}


@pytest.mark.parametrize("at", [12.6, 16.5])
def test_a_launch_that_lies_partly_outside_its_operator_is_the_operators(at):
    parts = [op("aten::mul", 13, 4), *launched("mul", 60, 7, at=at)]
    assert kernels(tree_of(step(*parts)))["mul"][0] == ("first/aten::mul" if at < 16 else "first")


def test_streams_that_overlap_count_each_and_the_device_is_busy_once():
    tree = tree_of(
        step(
            op("aten::mul", 13, 14),
            *launched("one", 50, 20, at=14, stream=7),
            *launched("two", 60, 20, at=17, stream=8),
            *launched("inside two", 65, 5, at=19, stream=9),
            *launched("late", 90, 5, at=22, stream=9),
            *launched("elsewhere", 0, 10, at=20, stream=9, device=1),
        )
    )
    assert tree.root.total("device") == 60_000
    first, second = tree.devices
    assert (first.device, first.busy, first.idle) == pytest.approx((0, 35e-6, 65e-6))
    assert (second.device, second.busy, second.idle) == pytest.approx((1, 10e-6, 90e-6))


def test_work_without_a_launch_has_its_bucket_and_a_warning():
    bare = span("kernel", "no arguments", 5, 2, tid=7)
    # What has no correlation is not joined by it.
    unjoined = [launch(0, 14), launch(-1, 18)]
    tree = tree_of(
        step(*launched("mine", 60, 6, at=14), kernel("older", 1, 4, 0), copy("Memcpy", 2, 3, 78)),
        unjoined,
        bare,
        kernel("after all steps", 500, 1, 79),
    )
    bucket = "launched before the window"
    assert kernels(tree) == {
        "mine": ("first", 6000),
        "older": (bucket, 4000),
        "Memcpy": (bucket, 3000),
        "no arguments": (bucket, 2000),
    }
    assert [warning.id for warning in tree.warnings] == ["launched-before"]
    assert "2 of 3 kernels, 50.0 %" in tree.warnings[0].message
    older = {one.name: one.row.kernel.launched for one in tree.root.walk() if one.row.kernel}
    assert older == {"mine": True, "older": False, "Memcpy": False, "no arguments": False}


def test_copies_stay_in_their_layer_and_have_a_bucket_outside():
    tree = tree_of(
        step(
            launch(1, 14),
            copy("Memcpy HtoD (Pageable -> Device)", 60, 3, 1, size=7000),
            launch(11, 17),
            copy("Memcpy HtoD (Pageable -> Device)", 64, 1, 11, size=1000),
            launch(2, 52),
            copy("Memcpy HtoD (Pinned -> Device)", 70, 2, 2),
            mark("Optimizer.step#SGD.step", 60, 20),
            launch(3, 62),
            copy("Memcpy DtoD (Device -> Device)", 80, 1, 3),
            launch(4, 90),
            kernel("Memset (Device)", 90, 1, 4, cat="gpu_memset"),
        )
    )
    found = kernels(tree)
    assert found["Memcpy HtoD (Pageable -> Device)"] == ("first", 4000)
    assert found["Memcpy HtoD (Pinned -> Device)"] == ("memory copies", 2000)
    assert found["Memcpy DtoD (Device -> Device)"][0] == "optimizer/Optimizer.step#SGD.step"
    assert found["Memset (Device)"][0] == "memory copies"
    facts = {one.name.split()[1]: one.row.kernel for one in tree.root.walk() if one.row.kernel}
    copied = next(c.row.kernel for c in tree.find("first").children if c.kind == "kernel")
    assert (copied.work, copied.bytes, copied.pageable) == ("copy", 8000, True)
    assert copied.bandwidth == pytest.approx(2e9)
    assert (facts["DtoD"].pageable, facts["(Device)"].pageable) == (False, None)
    assert facts["(Device)"].work == "memory set"


def test_a_backward_kernel_is_in_the_layer_of_its_forward():
    tree = tree_of(
        step(
            op("aten::mul", 14, 4, sequence=5),
            op("aten::relu", 34, 4, sequence=6),
            node("ReluBackward0", 54, 8, 6),
            op("ReluBackward0", 54, 8, tid=ENGINE, **{"Sequence number": 6, "Fwd thread id": 1}),
            *launched("relu backward", 60, 3, at=56, tid=ENGINE),
            node("MulBackward0", 66, 8, 5),
            *launched("mul backward", 70, 5, at=68, tid=ENGINE),
        )
    )
    found = kernels(tree)
    assert found["relu backward"][0].startswith("second/autograd::engine")
    assert found["mul backward"] == (
        "first/autograd::engine::evaluate_function: MulBackward0",
        5000,
    )
    backward = [one.row for one in tree.root.walk() if one.kind == "kernel"]
    assert {row.phase for row in backward} == {"backward"}


def test_the_wait_for_the_backward_pass_is_not_host_time_twice():
    tree = tree_of(
        step(
            op("aten::mul", 14, 4, sequence=5),
            mark("loss.backward", 52, 30),
            node("MulBackward0", 54, 8, 5),
            node("torch::autograd::AccumulateGrad", 66, 8),
            op("hook", 75, 1, tid=ENGINE),
        ),
        step(
            op("aten::mul", 214, 4, sequence=7), node("MulBackward0", 254, 8, 7), ts=200, number=1
        ),
    )
    # The second step's loss.backward is missing: medians of two steps are means.
    assert tree.root.total("host") == 100_000
    buckets = {one.name: one.total("host") for one in tree.root.children if one.kind == "bucket"}
    # 4 µs of gap in one step; the 180 µs until the next step's node are none.
    assert buckets["autograd engine"] == 2_000
    annotation = next(one for one in tree.root.walk() if one.name == "loss.backward")
    assert annotation.row.host == (30_000 - 8_000 - 4_000 - 8_000 - 1_000) // 2


def test_communication_is_a_bucket_wherever_it_was_launched():
    said = {
        "Collective name": "allreduce",
        "dtype": "Float",
        "In msg nelems": 64,
        "Out msg nelems": 64,
        "Group size": 8,
    }
    tree = tree_of(
        step(
            *launched("ncclDevKernel_AllReduce", 60, 9, at=14, **said),
            *launched("ncclDevKernel_AllReduce", 70, 7, at=17, **said | {"In msg nelems": 32}),
            *launched("rccl_kernel", 80, 5, at=20),
            *launched("all_reduce_of_its_own", 90, 2, at=23, **said),
            *launched("all_reduce_of_its_own", 95, 1, at=26, **said | {"In msg nelems": 2**62}),
            kernel("rccl_kernel", 1, 3, 99),
        )
    )
    bucket = next(one for one in tree.root.children if one.name == "communication")
    assert bucket.total("device") == 27_000
    assert [(one.name, one.row.phase, one.row.kernel.launched) for one in bucket.children] == [
        ("rccl_kernel", "", False),
        ("ncclDevKernel_AllReduce", "", True),
        ("ncclDevKernel_AllReduce", "", True),
        ("rccl_kernel", "", True),
        ("all_reduce_of_its_own", "", True),
        ("all_reduce_of_its_own", "", True),
    ]
    assert bucket.children[1].row.kernel.collective == Collective(
        name="allreduce", dtype="Float", elements=64, group_size=8
    )
    assert bucket.children[3].row.kernel.collective is None
    assert tree.find("first").total("device") == 0


def test_kernels_of_a_graph_belong_to_its_launch_and_a_warning_says_so():
    tree = tree_of(
        step(
            op("aten::mul", 14, 8),
            launch(5, 15, name="cudaGraphLaunch"),
            *(kernel("a", 60 + 5 * i, 2, 5, **{"graph node id": 10 + i}) for i in range(3)),
            *launched("eager", 90, 2, at=19, **{"graph node id": 0}),
        )
    )
    mul = next(one for one in tree.root.walk() if one.name == "aten::mul")
    graph, eager = mul.children
    assert (graph.calls, graph.row.device, graph.row.kernel.graph) == (3, 6000, True)
    assert not eager.row.kernel.graph
    assert [warning.id for warning in tree.warnings] == ["cuda-graph"]
    assert "3 of 4 kernels, 75.0 %" in tree.warnings[0].message


def test_work_is_of_the_step_that_launched_it_and_figures_are_medians():
    parts = []
    for number, duration in enumerate((4, 2, 9)):
        at = 200 * number
        # It runs 150 µs later: between the steps.
        parts += step(*launched("k", at + 164, duration, at=at + 14), ts=at, number=number)
    unmarked = step(*launched("k", 900, 50, at=714), ts=700)[1:]
    tree = tree_of(parts, unmarked)
    (node_of,) = (one for one in tree.root.walk() if one.kind == "kernel")
    assert (node_of.row.device, node_of.calls) == (4000, 1)
    assert node_of.row.kernel.durations == (2000, 4000, 9000)
    assert node_of.row.kernel.quantile(0.5) == pytest.approx(4e-6)
    assert node_of.row.kernel.quantile(0.75) == pytest.approx(6.5e-6)
    assert tree.devices[0].busy == 0  # in each step's own time


def test_a_node_s_calls_share_one_launch_configuration():
    shape = {"grid": [216, 1, 1], "block": [256, 1, 1], "registers per thread": 32}
    parts = [
        op("aten::mul", 13, 14),
        *launched("k", 60, 2, at=14, **shape, **{"shared memory": 0}),
        *launched("k", 64, 3, at=17, **shape, **{"shared memory": 0}, stream=8),
        *launched("k", 70, 4, at=20, **shape | {"grid": [1, 1, 1]}, **{"shared memory": 0}),
    ]
    large, small = (one.row for one in tree_of(step(*parts)).root.walk() if one.kind == "kernel")
    assert (large.calls, large.device, large.kernel.streams) == (2, 5000, (7, 8))
    assert (large.kernel.grid, large.kernel.registers) == ((216, 1, 1), 32)
    # 2 blocks of 8 warps on each of 108 multiprocessors, which hold 64 warps.
    assert (large.kernel.occupancy, large.kernel.limiter) == (0.25, "grid")
    assert small.kernel.occupancy == pytest.approx(8 / 64 / 108)


def test_without_known_limits_occupancy_is_what_the_trace_says():
    args = {"grid": [1, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 25}
    said, unsaid = launched("k", 60, 2, at=14, **args), launched("l", 64, 2, at=17)
    rows = [row for row in tree_of(step(*said, *unsaid), devices=()).rows if row.kernel]
    assert [row.kernel.occupancy for row in rows] == [0.25, None]
    assert [row.kernel.limiter for row in rows] == [None, None]


def test_without_a_device_nothing_is_known_of_its_time():
    tree = tree_of(step(op("aten::mul", 14, 4)))
    assert tree.root.device_time is None
    assert (tree.devices, tree.warnings) == ((), ())


def test_copies_outside_of_layers_count_to_their_operators():
    tree = tree_of(
        step(
            op("aten::to", 50, 10),
            op("aten::copy_", 51, 5),
            launch(2, 52),
            copy("Memcpy HtoD (Pinned -> Device)", 70, 4, 2),
            launch(4, 90),
            copy("Memcpy DtoH (Device -> Pinned)", 90, 1, 4),
        )
    )
    (bucket,) = [node for node in tree.root.children if node.name == "memory copies"]
    assert bucket.device_time == pytest.approx(5e-6)
    table = operators(tree).columns
    times = zip(table["Self CUDA"], table["CUDA total"], strict=True)
    device = dict(zip(table["Name"], times, strict=True))
    assert device["aten::copy_"] == pytest.approx((4e-6, 4e-6))
    assert device["aten::to"] == pytest.approx((0, 4e-6))
    assert dict(zip(table["Name"], table["# of Calls"], strict=True))["aten::copy_"] == 1
    assert bucket.host_time == 0  # what the host did is where it did it
