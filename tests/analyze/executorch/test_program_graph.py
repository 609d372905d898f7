"""The graph of an ExecuTorch program against counts by hand, and its times from dumps."""

import pytest
from tests.support import executorch_files

from torchgauge.analyze.executorch.dump_nodes import recorded_call
from torchgauge.analyze.executorch.program_graph import program_graph
from torchgauge.analyze.onnx.graph_cost import graph_cost
from torchgauge.analyze.onnx.graph_size import graph_size
from torchgauge.readers.executorch.dump_file import read_runs
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
    assert len(graph_cost(plain).nodes) == 1
    assert graph_cost(plain).flops == graph_cost(graph("portable")).flops


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
