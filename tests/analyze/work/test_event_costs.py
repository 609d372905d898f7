"""Costs of hand-made traces: which operator counts, and what is unknown rather than nothing."""

import json

import numpy as np
import pytest
from tests.support.layer_sums import by_layer
from tests.support.recorded_trees import recorded_tree

from torchgauge.analyze.timeline.attribution import (
    FORWARD,
    NONE,
    OUTSIDE,
    RECOMPUTE,
    RECOMPUTE_END,
    attribute,
)
from torchgauge.analyze.timeline.call_tree import CallTree, NamedModule
from torchgauge.analyze.work.event_costs import ABSENT, by_node, event_costs
from torchgauge.readers.kineto.kineto import read_events

MM = {"dims": [[2, 3], [3, 4]], "types": ["float", "float"]}
MM_FLOPS = 2 * 2 * 3 * 4
ADD = {"dims": [[2, 4], [4], []], "types": ["float", "float", "Scalar"], "inputs": ["", "", "1"]}
NODE = "autograd::engine::evaluate_function: MmBackward0"


def span(name, *inside, dims=None, types=None, inputs=None, strides=None, cat="cpu_op", seq=None):
    args = {"Input Dims": dims, "Input type": types, "Concrete Inputs": inputs,
            "Input Strides": strides, "Sequence number": seq}  # fmt: skip
    return name, cat, {key: value for key, value in args.items() if value is not None}, inside


def trace(*spans):
    events = []

    def lay(one, start):
        name, cat, args, inside = one
        place = len(events)
        events.append(None)
        end = start + 1
        for other in inside:
            end = lay(other, end) + 1
        events[place] = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start,
                         "dur": end - start, "args": args}  # fmt: skip
        return end

    now = 0
    for one in spans:
        now = lay(one, now) + 1
    return read_events(json.dumps({"traceEvents": events}).encode())


def costs_of(*spans):
    events = trace(*spans)
    tree = CallTree(
        [NamedModule(("",), "Net"), NamedModule(("a",), "A"), NamedModule(("b",), "B")], "Net"
    )
    return (found := attribute(events, tree)), event_costs(events, found)


def totals(*spans):
    _, costs = costs_of(*spans)
    known = costs.matmul != ABSENT
    return int(costs.matmul[known].sum()), int(costs.vector[known].sum()), costs.unknown


def test_the_outermost_operator_with_a_formula_counts_alone():
    inner = span("aten::mul.Tensor", dims=[[2, 2]], types=["float"])
    assert totals(span("aten::mm", inner, **MM)) == (MM_FLOPS, 0, {})


def test_composites_and_ranges_do_nothing_themselves():
    linear = span("aten::linear", span("aten::t", dims=[[4, 3]], types=["float"]),
                  span("aten::mm", **MM), **MM)  # fmt: skip
    inside = span("MmBackward0", linear, dims=[[2, 4]], types=["float"])
    assert totals(span("forward", inside, cat="user_annotation")) == (MM_FLOPS, 0, {})
    assert totals(span("aten::reshape", dims=[[4]], types=["float"])) == (0, 0, {})


def test_an_elementwise_operator_costs_what_comes_out():
    assert totals(span("aten::add.Tensor", **ADD)) == (0, 8, {})
    assert totals(span("aten::add", **ADD)) == (0, 8, {})
    whole = {**ADD, "types": ["long int", "long int", "Scalar"]}
    assert totals(span("aten::add.Tensor", **whole)) == (0, 0, {})
    out = {"dims": [[2, 4], [4], [0]], "types": ["float"] * 3}
    assert totals(span("aten::mul.out", **out)) == (0, 8, {})


def test_what_has_no_formula_is_unknown_and_not_nothing():
    _, costs = costs_of(span("my::op", span("aten::empty", dims=[[]], types=["ScalarList"])))
    assert costs.flops.tolist() == [ABSENT, 0]
    assert costs.unknown == {"my::op": (1, "it has no formula")}
    assert costs.coverage == 0
    assert totals(span("my::op", span("aten::mm", **MM))) == (MM_FLOPS, 0, {})


def test_an_operator_that_fails_is_not_known_by_a_part_of_it():
    rest = span("aten::add.Tensor", **ADD)
    matmul, vector, unknown = totals(span("aten::mkldnn_rnn_layer", rest, dims=[[]], types=[""]))
    assert (matmul, vector) == (0, 0)
    assert list(unknown) == ["aten::mkldnn_rnn_layer"]


def test_without_sizes_nothing_is_known():
    assert totals(span("aten::mm")) == (0, 0, {"aten::mm": (1, "no sizes were recorded")})


def test_lists_of_tensors_are_known_by_what_they_call():
    lists = {"dims": [[[2, 4], [3]], []], "types": ["TensorList", "Scalar"], "inputs": ["", "1."]}
    slow = span("aten::_foreach_add_.Scalar", span("aten::add_.Tensor", **ADD), **lists)
    assert totals(slow) == (0, 8, {})
    assert list(totals(span("aten::_foreach_add_.Scalar", **lists))[2]) == [
        "aten::_foreach_add_.Scalar"
    ]


def test_fused_steps_count_by_their_lists_and_long_lists_are_unknown():
    numbers = {
        "types": ["TensorList"] * 5 + ["TensorList"] + ["Scalar"] * 7 + ["", ""],
        "inputs": [""] * 6 + ["0.1", "0.9", "0.9", "0.01", "1e-8", "False", "False", "", ""],
    }
    lists = [[[2, 4], [3]]] * 5 + [[[], []]]
    step = span("aten::_fused_adamw_", dims=[*lists, *[[]] * 9], **numbers)
    assert totals(step) == (0, (7 + 1) * (8 + 3), {})
    long = span("aten::_fused_adamw_", dims=[[]] * 15, **numbers)
    assert "list of tensors that is long" in totals(long)[2]["aten::_fused_adamw_"][1]


def test_overloads_that_are_composite_are_told_by_what_they_hold_in_old_traces():
    dims = {"dims": [[5, 7], []], "types": ["float", ""]}
    old = span("aten::var", span("aten::var", **dims), **dims)
    assert totals(old) == (0, 35, {})
    new = span("aten::var", span("aten::var.correction", **dims), **dims)
    assert totals(new) == (0, 35, {})


def test_a_custom_function_that_holds_nothing_is_unknown_but_a_node_is_not():
    given = {"dims": [[2]], "types": ["float"]}
    assert list(totals(span("MyFunction", **given))[2]) == ["MyFunction"]
    assert totals(span("AliasBackward0", **given)) == (0, 0, {})
    assert totals(span("torch::autograd::AccumulateGrad", **given)) == (0, 0, {})


def test_compiled_code_is_unknown_beside_the_operators_that_it_calls():
    region = span("## Call CompiledFxGraph f1 ##", span("aten::mm", **MM), cat="user_annotation")
    matmul, _, unknown = totals(region)
    assert matmul == MM_FLOPS
    assert len(unknown) == 1


@pytest.mark.parametrize(
    ("operator", "ran"),
    [(span("aten::mm", **MM), False), (span("aten::relu", dims=[[3]], types=["float"]), True)],
)
def test_the_operator_that_a_checkpoint_stopped_ran_if_it_saves_its_result(operator, ran):
    again = span(
        "tg#0", span("tg#1", span("aten::add.Tensor", **ADD), operator, span(RECOMPUTE_END))
    )
    spans, costs = costs_of(
        span("tg#0", span("tg#1", span("aten::mm", seq=1, **MM))), span(NODE, again, seq=1)
    )
    sums = by_layer(costs, spans)
    assert sums[1, FORWARD] == (MM_FLOPS, 0, 1, 0)
    assert sums[1, RECOMPUTE] == (0, 8 + 3 * ran, 1 + ran, 0)


def test_an_operator_stopped_inside_a_composite_never_ran_nor_did_that():
    linear = span("aten::linear", span("aten::addmm", **MM), **MM)
    _, costs = costs_of(span("tg#0", linear, span(RECOMPUTE_END)))
    assert costs.flops.tolist() == [0, 0, 0]


def test_bytes_are_given_where_types_are_certain():
    _, costs = costs_of(span("aten::mm", **MM), span("aten::add.Tensor", **ADD))
    assert costs.bytes.tolist() == [4 * (6 + 12 + 8), 4 * (8 + 4 + 8)]
    written = {**ADD, "strides": [[4, 1], [1], []]}
    halves = {**ADD, "types": ["c10::Half", "c10::BFloat16", "Scalar"]}
    assert costs_of(span("aten::add.Tensor", **halves))[1].bytes.tolist() == [ABSENT]
    _, costs = costs_of(span("aten::add_.Tensor", **written), span("aten::view", dims=[[2]]))
    assert costs.bytes.tolist() == [4 * (8 + 4 + 8), 0]


def test_sums_by_node_say_what_is_unknown():
    spans = [span("aten::mm", **MM), span("my::op"), span("aten::add.Tensor", **ADD)]
    _, costs = costs_of(*spans, span("my::op"), span("aten::view"), span("aten::mm", **MM))
    sums = by_node(costs, np.array([0, 0, 0, 1, 2, -1]), 4)
    mm = 4 * (6 + 12 + 8)  # bytes; those of my::op nobody knows
    assert sums == [(MM_FLOPS + 8, 1, None, 1), (None, 1, None, 1), (0, 0, 0, 0), None]
    alone = by_node(costs, np.array([0, 1, 1, 1, 1, 0]), 2)
    assert alone[0] == (2 * MM_FLOPS, 0, 2 * mm, 0)


def test_an_empty_trace_costs_nothing():
    spans, costs = costs_of()
    assert (costs.flops.tolist(), costs.coverage, by_layer(costs, spans)) == ([], None, {})


def test_what_runs_in_no_layer_is_under_none():
    spans, costs = costs_of(span("aten::mm", **MM), span("my::op"))
    assert by_layer(costs, spans) == {(NONE, OUTSIDE): (MM_FLOPS, 0, 2, 1)}


def test_the_tree_of_a_trace_has_the_work_that_its_sizes_tell():
    linear = span("aten::linear", span("aten::mm", **MM), **MM)
    root = recorded_tree(trace(span("tg#1", linear, span("my::op"), cat="user_annotation"))).root
    assert (root.flops, root.at_least, root.total("unknown")) == (MM_FLOPS, True, 1)
    (layer,) = root.layers
    assert [node.row.flops for node in layer.walk()] == [0, 0, MM_FLOPS, None]
    assert recorded_tree(trace(span("aten::view"), span("aten::mm"))).root.flops is None


@pytest.mark.parametrize("name", ["aten::mm", "aten::copy_"])
def test_sizes_of_no_tensor_are_unknown(name):
    sizes = [[10**30, 10**30], [10**30, 10**30]]
    (_, costs) = costs_of(span(name, dims=sizes, types=["float", "float"], inputs=["", ""]))
    assert name in costs.unknown


def test_a_list_nested_without_measure_is_a_value_that_nobody_said():
    deep = "[" * 2000 + "]" * 2000
    dims, types = [[2, 4], [4], []], ["float", "float", "Scalar"]
    # The number that the sum is scaled by changes no work.
    assert totals(span("aten::add", dims=dims, types=types, inputs=["", "", deep])) == (0, 8, {})
