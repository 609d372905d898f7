"""The graph of an ExecuTorch program against counts by hand, and its times from dumps."""

import json

import pytest
from tests.support import executorch_files
from tests.support.executorch_files import lowered_node, number, program, several, tensor

from torchgauge.analyze.executorch.program_graph import program_graph, recorded_call
from torchgauge.analyze.onnx.graph_size import graph_size
from torchgauge.analyze.onnx.node_tree import node_rows
from torchgauge.analyze.onnx.node_work import graph_cost
from torchgauge.errors import InputError
from torchgauge.readers.dialects.etdump import as_kineto
from torchgauge.readers.executorch.flatbuffer import read_runs
from torchgauge.readers.executorch.lowering_file import read_lowering
from torchgauge.readers.executorch.program_file import read_method


def graph(name: str, *, lowered: bool = True, **known):
    path = executorch_files.path(f"{name}.pte")
    method = read_method(path)
    lowering = read_lowering(path.with_suffix(".etrecord"), method.name) if lowered else None
    return program_graph(path, method, lowering, **known)


def test_work_layers_and_size_are_those_of_the_model():
    cost, size = graph_cost(graph("portable")), graph_size(graph("portable"))
    assert cost.matmul_flops == 2 * 3 * 4 * 8 + 2 * 3 * 8 * 2
    assert not cost.unknown
    works = cost.by_operator()
    assert works["aten::relu"].vector_flops == works["aten::add"].vector_flops == 3 * 8
    # A program copies what the model transposes by strides.
    assert works["aten::permute_copy"].bytes == 2 * (4 * 8 + 8 * 2) * 4
    assert {node.path: node.parameters for node in cost.nodes} == {
        "": 58, "body": 40, "body.linear": 40, "body.act": 0, "head": 18
    }  # fmt: skip
    assert (size.parameters, size.buffers, size.parameter_bytes) == (58, 8, 232)
    assert size.disk_bytes == executorch_files.path("portable.pte").stat().st_size


def test_without_its_record_layers_and_parameters_are_unknown():
    plain = graph("portable", lowered=False)
    assert graph_size(plain) is None
    (node,) = graph_cost(plain).nodes
    assert node.parameters is None
    assert graph_cost(plain).flops == graph_cost(graph("portable")).flops


def test_equal_constants_are_stored_once(tmp_path):
    path = tmp_path / "made.pte"
    values = [tensor(2), *(tensor(4, stored=buffer) for buffer in (1, 2, 1))]
    path.write_bytes(program(values, inputs=[0], outputs=[0]))
    stored = program_graph(path, read_method(path), None).initializers
    assert [(item.name, item.bytes, item.shared) for item in stored] == [
        ("constant 0", 16, ""), ("constant 1", 16, ""), ("constant 2", 16, "constant 0")
    ]  # fmt: skip


def test_the_work_of_a_backend_is_unknown():
    cost = graph_cost(graph("delegated"))
    assert cost.unknown == {"XnnpackBackend::delegate": 1}
    assert cost.at_least


def test_the_work_of_smaller_inputs_than_the_program_is_planned_for_is_unknown():
    assert graph_cost(graph("dynamic")).matmul_flops == 2 * (2 * 3 * 4 * 8 + 2 * 3 * 8 * 2)
    assert graph_cost(graph("dynamic", sizes_known=False)).unknown


def test_times_are_medians_by_instruction():
    runs = read_runs(
        executorch_files.dump(
            executorch_files.run(0, 100, 200),
            executorch_files.run(1000, 110, 900),
            executorch_files.run(3000, 120, 220),
        )
    )
    call = recorded_call(runs, graph("portable"))
    assert [(node.origins, node.layer) for node in call.nodes] == [
        ((0,), "body.linear"), ((1,), "body.linear")
    ]  # fmt: skip
    assert [node.seconds for node in call.nodes] == pytest.approx([110e-9, 220e-9])
    assert call.nodes[0].operator == "aten::permute_copy"
    assert call.seconds == pytest.approx(370e-9)


def test_the_parts_of_a_backend_are_taken_out_of_its_instruction():
    event = executorch_files.event
    run = [
        event("", 0, 120, 150, "GEMM"), event("", 0, 150, 170, "Add"),
        event("DELEGATE_CALL", 0, 100, 200), event("Method::execute", 0, 90, 210),
    ]  # fmt: skip
    call = recorded_call(read_runs(executorch_files.dump(run)), graph("delegated"))
    assert {node.operator: round(node.seconds * 1e9) for node in call.nodes} == {
        "XnnpackBackend::delegate": 50, "XnnpackBackend::GEMM": 30, "XnnpackBackend::Add": 20
    }  # fmt: skip
    assert [node.origins for node in call.nodes] == [(0,), (), ()]


def test_parts_by_a_coarse_clock_are_no_more_than_their_instruction():
    event = executorch_files.event
    run = [
        event("", 0, 0, 1000, "GEMM"), event("", 0, 1000, 2000, "Add"),
        event("DELEGATE_CALL", 0, 100, 200), event("Method::execute", 0, 90, 210),
    ]  # fmt: skip
    call = recorded_call(read_runs(executorch_files.dump(run)), graph("delegated"))
    assert sum(node.seconds for node in call.nodes) == pytest.approx(100e-9)


def test_a_backends_operators_are_unknown_work_and_called_as_often_as_they_ran():
    event = executorch_files.event
    run = [
        event("", 0, 120, 130, "GEMM"), event("", 0, 130, 150, "GEMM"),
        event("DELEGATE_CALL", 0, 100, 200), event("Method::execute", 0, 90, 210),
    ]  # fmt: skip
    delegated = graph("delegated")
    call = recorded_call(read_runs(executorch_files.dump(run, run)), delegated)
    rows = node_rows(delegated, call.nodes, 0.0)
    (gemm,) = (row for row in rows if row.name == "XnnpackBackend::GEMM")
    assert (gemm.calls, gemm.host) == (2, 30)
    assert (gemm.unknown, gemm.flops, gemm.bytes) == (2, None, None)
    (own,) = (row for row in rows if row.name == "XnnpackBackend::delegate")
    assert (own.calls, own.unknown, own.flops, own.bytes) == (1, 1, None, None)


def test_parts_are_in_each_call_of_an_instruction_whenever_their_clock_begins():
    event = executorch_files.event
    run = [
        event("", 0, 1020, 1030, "A"), event("", 0, 1120, 1250, "A"), event("", 1, 7, 9, "B"),
        event("DELEGATE_CALL", 0, 1000, 1100), event("DELEGATE_CALL", 0, 1100, 1200),
        event("OPERATOR_CALL", 1, 1200, 1210), event("Method::execute", 0, 1000, 1210),
    ]  # fmt: skip
    trace = json.loads(as_kineto(executorch_files.dump(run)))
    spans = [
        (e["name"], round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in trace["traceEvents"]
    ]
    assert sorted(spans) == [
        ("A", 20, 10), ("A", 120, 80), ("ProfilerStep#0", 0, 210),
        ("delegate", 0, 100), ("delegate", 100, 100), ("delegate", 200, 10),
    ]  # fmt: skip


@pytest.fixture
def made(tmp_path):
    """Make the graph of a program, with a record of it where that is given."""

    def make(data, *record, **tensors):
        path = tmp_path / "model.pte"
        path.write_bytes(data)
        method, lowering = read_method(path), None
        if record or tensors:
            executorch_files.write_record(path.with_suffix(".etrecord"), *record, **tensors)
            lowering = read_lowering(path.with_suffix(".etrecord"), method.name)
        return program_graph(path, method, lowering)

    return make


RELU, ADD, NONZERO = "aten::relu.out", "aten::add.out", "aten::nonzero.out"
# An input with sizes of at most 6x4, what is computed of it, and bounded sizes that values decide.
BOUNDED = [
    tensor(6, 4, bounded=True),
    tensor(6, 4, bounded=True),
    tensor(24, 2, dtype=4, bounded=True),
]


def test_sizes_that_values_decide_are_no_known_sizes(made):
    calls = [(RELU, (0, 1, 1)), (NONZERO, (1, 2, 2)), (RELU, (2, 2, 2))]
    nodes = made(program(BOUNDED, calls, inputs=[0])).nodes
    assert [node.flops for node in nodes] == [24, None, None]
    static = [tensor(6, 4), *BOUNDED[1:], number(0)]
    nodes = made(program(static, [(RELU, (0, 0, 0)), (RELU, (0, 1, 1))], inputs=[0])).nodes
    assert [node.flops for node in nodes] == [24, None]
    masked = [*BOUNDED, tensor(6, dtype=11, bounded=True), several(executorch_files.TENSORS, 3)]
    calls = [("aten::index.Tensor_out", (0, 4, 1, 1)), (RELU, (1, 1, 1))]
    nodes = made(program(masked, calls, inputs=[0])).nodes
    assert [node.flops for node in nodes] == [None, None]


LINEAR = program([tensor(3, 4), tensor(3, 8)], [(RELU, (0, 0, 0)), (ADD, (0, 0, 1, 1))], inputs=[0])
ROOT = "L__self__,,Net"
BODY = f"{ROOT};L__self__.body,body,m.Block"


@pytest.mark.parametrize(
    ("handles", "nodes", "sizes", "word"),
    [
        ({0: 1, 2: 1}, [], [3, 4], "instruction 2"),
        ({0: 1, 1: 2}, [], [3, 5], "inputs"),
        ({0: 1, 1: 2}, [lowered_node(2, ROOT, "aten.add.Tensor", "x")], [3, 4], "Instruction 1"),
        ({}, [], [3, 4], "few"),
    ],
)
def test_the_record_of_another_program_is_refused(made, handles, nodes, sizes, word):
    with pytest.raises(InputError) as caught:
        made(LINEAR, handles, nodes, {"x": (7, sizes)}, inputs=["x"])
    assert caught.value.id == "etrecord-unfit"
    assert word in caught.value.cause
    with pytest.raises(InputError):
        made(LINEAR, {0: 1, 1: 2}, [], {}, inputs=[])


def test_a_node_without_a_stack_says_nothing_of_the_layer(made):
    nodes = [lowered_node(1, BODY), lowered_node(1), lowered_node(2, reads=["w"])]
    sizes = {"x": (7, [3, 4]), "w": (7, [8])}
    made_graph = made(LINEAR, {0: 1, 1: 2}, nodes, sizes, inputs=["x"], parameters=["w"])
    assert [(node.layer, node.rule) for node in made_graph.nodes] == [
        ("body", "metadata"), ("body", "neighbours")
    ]  # fmt: skip
    assert made_graph.nodes[1].inputs == ("w",)


def test_layers_of_a_record_are_no_longer_or_deeper_than_a_model_s(made):
    for path in ("a." * 50_000 + "b", "a" * 50_000):
        nodes = [lowered_node(1, f"{ROOT};k,{path},Block"), lowered_node(2, BODY)]
        made_graph = made(LINEAR, {0: 1, 1: 2}, nodes, {"x": (7, [3, 4])}, inputs=["x"])
        assert [node.layer for node in made_graph.nodes] == [None, "body"]
        assert len(graph_cost(made_graph).nodes) == 3
