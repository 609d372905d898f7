"""What ONNX Runtime's profiler writes: nodes by call, graphs inside of nodes, kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torchgauge.errors import MeasurementError
from torchgauge.readers.onnxruntime_profile import read_profile


def event(category: str, name: str, begin: int, duration: int, **args: Any) -> dict[str, Any]:
    return {
        "cat": category, "pid": 1, "tid": 1, "ts": begin, "dur": duration, "ph": "X", "name": name,
        "args": args,
    }  # fmt: skip


def node(name: str, begin: int, duration: int, operator: str = "Relu", **more: Any) -> Any:
    shapes = {
        "input_type_shape": [{"float": [1, 8]}, {"int64": [2]}],
        "output_type_shape": [{"float": [1, 8]}],
    }
    args = {"op_name": operator, "node_index": "0", "provider": "CPUExecutionProvider"}
    return event("Node", f"{name}_kernel_time", begin, duration, **args, **shapes, **more)


def run(begin: int, end: int) -> list[dict[str, Any]]:
    return [
        event("Session", "SequentialExecutor::Execute", begin, end - begin),
        event("Session", "model_run", begin - 2, end - begin + 4),
    ]


def read(folder: Path, events: list[dict[str, Any]]) -> Any:
    path = folder / "profile.json"
    path.write_text(json.dumps(events))
    return read_profile(path)


def test_nodes_are_those_before_the_end_of_their_call(tmp_path):
    start = event("Session", "session_initialization", 0, 900)
    events = [start, node("a", 10, 3), node("b", 15, 4, "Add"), *run(8, 25)]
    recorded = read(tmp_path, [*events, node("a", 40, 2), *run(38, 50)])
    assert [(each.name, each.operator) for each in recorded.nodes] == [("a", "Relu"), ("b", "Add")]
    assert recorded.nodes[0].shapes == "[[1, 8], [2]]"
    assert recorded.nodes[0].dtype == "float32"
    assert recorded.nodes[0].tensors == 3
    assert [call.nodes for call in recorded.calls] == [[(0, 10, 3), (1, 15, 4)], [(0, 40, 2)]]
    assert [(call.begin, call.end) for call in recorded.calls] == [(8, 25), (38, 50)]


def test_the_execution_of_a_graph_inside_of_a_node_is_not_the_call_s(tmp_path):
    inner = event("Session", "SequentialExecutor::Execute", 12, 5)
    events = [node("body", 13, 2), inner, node("loop", 11, 9, "Loop"), *run(8, 25)]
    assert (read(tmp_path, events).calls[0].begin, read(tmp_path, events).calls[0].end) == (8, 25)


def test_kernels_belong_to_the_node_that_launched_them(tmp_path):
    kernel = event("Kernel", "sgemm", 12, 7, parent_name="a_kernel_time", op_name="Gemm")
    other = event("Kernel", "fill", 12, 2)
    recorded = read(tmp_path, [node("a", 10, 3, "Gemm"), kernel, other, *run(8, 25)])
    assert recorded.calls[0].kernels == [(0, "sgemm", 7), (-1, "fill", 2)]


@pytest.mark.parametrize("text", ["", "[", "{}", '[{"cat": 1}]'])
def test_what_is_no_profile_is_an_error(tmp_path, text):
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(MeasurementError) as raised:
        read_profile(path)
    assert raised.value.id == "profile-unreadable"
