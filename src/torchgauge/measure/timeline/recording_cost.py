"""What ONNX Runtime's profiler adds to each node, measured on graphs of tiny nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from torchgauge.analyze.timeline.node_times import QUICK, RecordingCost
from torchgauge.errors import missing_extra
from torchgauge.targets.runtimes.onnx_session import OnnxSession, RecordingSession

OPSET, IR_VERSION = 13, 8
ROUNDS, CALLS, WARM_UP = 15, 10, 20
CHAIN = 60  # nodes
NARROW, WIDE = 2, 8  # inputs of a node
ENDS = 8  # inputs and outputs of the graph


class _Tiny(NamedTuple):
    """A graph of `chains` chains of tiny nodes, and seconds of bare and recorded calls by round."""

    nodes: int
    inputs: int
    chains: int
    bare: list[list[float]]
    recorded: list[list[float]]

    @property
    def call(self) -> float:
        """Seconds of a quick bare call, as those of the model are compared with it."""
        return float(np.quantile(self.bare, QUICK))

    @property
    def added(self) -> float:
        """Seconds that recording adds to it."""
        by_round = np.median(self.recorded, axis=1) - np.median(self.bare, axis=1)
        return float(np.median(by_round))


def recording_cost(model: OnnxSession, folder: Path, now: Callable[[], int]) -> RecordingCost:
    """Return what recording adds, under the settings of a session, by its own sessions in `folder`.

    Bare and recorded calls of graphs of tiny nodes take turns: of a few and of many nodes, with few
    and with many inputs, of one and of several inputs and outputs. Raises MissingExtraError.
    """
    graphs = [
        _Tiny(nodes, inputs, chains, [], [])
        for nodes, inputs, chains in (
            (1, NARROW, 1), (CHAIN, NARROW, 1), (CHAIN, WIDE, 1), (ENDS, NARROW, ENDS)
        )
    ]  # fmt: skip
    calls = [_sessions(graph, model, folder / str(index)) for index, graph in enumerate(graphs)]
    for _ in range(ROUNDS):
        for graph, (session, recording, inputs) in zip(graphs, calls, strict=True):
            graph.bare.append(_times(session, inputs, now))
            graph.recorded.append(_times(recording, inputs, now))
    for _, recording, _ in calls:
        recording.end()
    return _cost(*graphs)


def _sessions(
    graph: _Tiny, model: OnnxSession, folder: Path
) -> tuple[OnnxSession, RecordingSession, list[torch.Tensor]]:
    folder.mkdir()
    path = folder / "tiny.onnx"
    path.write_bytes(_graph(graph.nodes // graph.chains, graph.inputs, graph.chains))
    settings = {**model.settings, "graph_optimization_level": "ORT_DISABLE_ALL"}
    session = OnnxSession(path, model.options, settings)
    recording = session.recording(folder)
    inputs = [torch.zeros(1, 8) for _ in range(graph.chains)]
    for _ in range(WARM_UP):
        session(*inputs)
        recording(*inputs)
    return session, recording, inputs


def _cost(single: _Tiny, narrow: _Tiny, wide: _Tiny, ends: _Tiny) -> RecordingCost:
    per_node = max(0.0, (narrow.added - single.added) / (narrow.nodes - single.nodes))
    per_tensor = (wide.added - narrow.added) / narrow.nodes / (wide.inputs - narrow.inputs)
    per_tensor = min(max(0.0, per_tensor), per_node / (narrow.inputs + 1))
    bare_node = max(0.0, (narrow.call - single.call) / (narrow.nodes - single.nodes))
    call = max(0.0, single.call - bare_node)
    value = max(0.0, ends.call - ends.nodes * bare_node - call) / (2 * (ends.chains - 1))
    return RecordingCost(
        node=per_node - per_tensor * (narrow.inputs + 1),
        tensor=per_tensor,
        call=max(0.0, call - 2 * value),
        value=value,
        tiny=bare_node,
    )


def _times(
    call: Callable[..., object], inputs: list[torch.Tensor], now: Callable[[], int]
) -> list[float]:
    times = []
    for _ in range(CALLS):
        begin = now()
        call(*inputs)
        times.append((now() - begin) * 1e-9)
    return times


def _graph(length: int, inputs: int, chains: int) -> bytes:
    """Return a model of chains of sums of tiny tensors, each with its own input and output."""
    try:
        from onnx import TensorProto, helper
    except ImportError as error:
        raise missing_extra("onnx", "onnx", "Node times of an ONNX file") from error
    nodes, ends = [], []
    for chain in range(chains):
        first = value = f"x{chain}"
        for number in range(length):
            output = f"y{chain}_{number}"
            nodes.append(helper.make_node("Sum", [value, *[first] * (inputs - 1)], [output]))
            value = output
        ends.append((first, value))
    first_names, last_names = zip(*ends, strict=True)
    inputs_info, outputs_info = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in names]
        for names in (first_names, last_names)
    )
    opsets = [helper.make_opsetid("", OPSET)]
    graph = helper.make_graph(nodes, "tiny", inputs_info, outputs_info)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    return bytes(model.SerializeToString())
