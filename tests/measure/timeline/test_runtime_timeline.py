"""Profiles of ONNX files: the tree adds up to the call, fusions and fallbacks are named."""

from __future__ import annotations

import json
import time
from pathlib import Path

import onnx
import pytest
import torch
from tests.support import onnx_files

import torchgauge as tg
from torchgauge.analyze.timeline.node_times import RecordingCost
from torchgauge.cli.main import main
from torchgauge.errors import ModelError
from torchgauge.measure.effort import QUICK
from torchgauge.measure.timeline.profiled_nodes import RanGraph, graph_parts, profile_nodes
from torchgauge.targets.builds.source import Source
from torchgauge.targets.target import TargetRequest
from torchgauge.temporary import TemporaryFolder

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "small.onnx"
    onnx.save(onnx_files.convolutional(), path)
    return path


@pytest.fixture(scope="module")
def profile(path) -> tg.Profile:
    return tg.profile(str(path), effort="quick", roofs=False)


def test_the_tree_adds_up_to_the_call(profile):
    tree = profile.tree
    assert tree is not None
    assert tree.root.host_time == pytest.approx(tree.passes[0].bare, rel=1e-3)
    assert tree.passes[0].per_node > 0
    assert tree.passes[0].per_tiny_node > 0


def test_work_is_that_of_the_file_and_layers_are_found(profile):
    assert profile.tree.root.flops == profile.cost.totals["flops"]
    for layer in ("body.0", "body.2", "head"):
        assert profile.tree.find(layer).flops > 0
    assert sum(profile.graph.time_by_rule.values()) > 0


def test_parts_of_the_graph_take_what_a_bare_call_does(path):
    """The graph as it ran, in another layout, is cut and opened again."""
    placement = Source.of_request(TargetRequest(str(path))).open()
    model, args = placement.model, placement.inputs.args
    now = time.perf_counter_ns
    profiled = profile_nodes(model, placement, lambda: model(*args), QUICK, now)
    folder = TemporaryFolder()
    try:
        recording = model.recording(folder.path)
        ran = RanGraph(
            recording.graph_file, profiled.graph, profiled.recorded, profiled.times.seconds
        )
        cost = RecordingCost(0.0, 0.0, 0.0, 0.0)
        parts = graph_parts(model, ran, cost, placement.inputs, 0.2, now)
    finally:
        folder.remove()
    # A busy machine may make the whole, opened again, differ too much; then there are none.
    nodes = [number for part in parts for number in part.nodes]
    assert nodes in ([], ran.order())
    assert not parts or len(parts) > 1


def test_fusions_are_named(profile):
    names = [row.name for row in profile.tree.rows if row.kind == "operator"]
    assert any(name.endswith("= Conv + Relu") for name in names)


def test_memory_is_the_process_s(profile):
    assert profile.memory.peak >= profile.memory.parameters > 0
    assert sum(profile.memory.parts.values()) == profile.memory.peak
    assert profile.target.runtime.startswith("onnxruntime")


@pytest.mark.slow
def test_a_provider_that_leaves_nodes_to_the_cpu_is_named(path, capsys):
    arguments = ("profile", str(path), "--quick", "--provider", "azure", "--no-roofs", "--json")
    assert main(arguments) == 0
    record = json.loads(capsys.readouterr().out)
    assert "nodes-fell-back" in [warning["id"] for warning in record["tree"]["warnings"]]


@pytest.mark.slow
@onnx_files.needs_openvino
def test_openvino_s_counters_make_a_tree_too(path):
    record = tg.profile(path, runtime="openvino", effort="quick", roofs=False)
    assert record.tree.passes[0].name == "OpenVINO's counters"
    assert record.tree.root.host_time == pytest.approx(record.tree.passes[0].bare, rel=1e-3)


@pytest.mark.thorough
def test_inputs_of_the_caller_are_those_that_run(path):
    with pytest.raises(ModelError) as raised:
        tg.profile(path, torch.zeros(1, 3, 8, 8, dtype=torch.float64), effort="quick", roofs=False)
    assert raised.value.id == "forward-raised"
    assert "double" in raised.value.cause


@pytest.mark.slow
def test_a_model_and_its_file_return_the_same(path, tmp_path):
    model = tmp_path / "model.py"
    model.write_text(
        "import onnx, torch\n"
        "from onnx import numpy_helper\n"
        "def make():\n"
        "    conv = torch.nn.Conv2d\n"
        "    body = torch.nn.Sequential(conv(3, 4, 3, padding=1), torch.nn.ReLU(), "
        "conv(4, 8, 3, bias=False))\n"
        "    pool = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())\n"
        "    net = torch.nn.Sequential()\n"
        "    net.body, net.pool, net.head = body, pool, torch.nn.Linear(8, 10)\n"
        f"    stored = onnx.load({str(path)!r}).graph.initializer\n"
        "    weights = {t.name: torch.tensor(numpy_helper.to_array(t)) for t in stored}\n"
        "    net.load_state_dict(weights)\n"
        "    return net.eval(), torch.ones(1, 3, 8, 8)\n"
    )
    from torchgauge.api.gates import compare_targets
    from torchgauge.targets.target import TargetRequest

    compared = compare_targets(TargetRequest(str(path)), f"{model}:make", blocks=3)
    assert compared.outputs is not None
    assert compared.outputs.passed, compared.outputs.reason
    assert {"body.0", "body.2", "head"} <= {place.name for place in compared.layers}
