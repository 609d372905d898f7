"""Layers of ONNX nodes against the modules that torch calls, names taken away by degrees.

    python -m benchmarks.onnx_layers --folder FOLDER   (as benchmarks.onnx_models wrote it)

The truth is found by values alone (`onnx_values.py`): the module that calls the torch operator
whose output a node computes, or a part of which it is. A node's weight is its time in ONNX Runtime
with all fusion off, one thread, on random inputs, from the runtime's own profile. Of each degree:
the share of that time in the right layer, in the layer above, in no layer, and what the four rules
found. Nodes that make whole numbers, or move a value that torch does not, have no truth.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime
import torch
from benchmarks.onnx_models import built
from benchmarks.onnx_values import Origins, recorded, values_of

from torchgauge.analyze.onnx.layers import with_layers
from torchgauge.readers.onnx.onnx_file import read_graph
from torchgauge.records.onnx.graph import Graph, GraphNode

CALLS = 12


def without_metadata(graph: Graph) -> Graph:
    """Take away what the exporter noted."""
    return _changed(graph, lambda node, _: msgspec.structs.replace(node, metadata={}))


def without_names(graph: Graph) -> Graph:
    """Take away metadata, and the names of nodes and of values that are no weights."""
    stored = {tensor.name for tensor in graph.initializers}
    # The names that the TorchScript exporter gives to copies of equal weights are weights' names.
    aliases = {node.outputs[0] for node in graph.nodes if node.operator == "Identity"}
    names: dict[str, str] = defaultdict(lambda: f"v{len(names)}")

    def renamed(values: tuple[str, ...]) -> tuple[str, ...]:
        kept = stored | aliases
        return tuple(name if name in kept or not name else names[name] for name in values)

    def change(node: GraphNode, index: int) -> GraphNode:
        return msgspec.structs.replace(
            node,
            metadata={},
            name=f"n{index}",
            inputs=renamed(node.inputs),
            outputs=renamed(node.outputs),
        )

    return _changed(graph, change)


def _changed(graph: Graph, change: Callable[[GraphNode, int], GraphNode]) -> Graph:
    nodes = tuple(change(node, index) for index, node in enumerate(graph.nodes))
    return msgspec.structs.replace(graph, nodes=nodes)


DEGREES = {"as exported": lambda graph: graph, "no metadata": without_metadata,
           "no names either": without_names}  # fmt: skip


def node_times(path: Path, feed: dict[str, np.ndarray]) -> dict[str, float]:
    """Return seconds by the name of a node, with graph optimisation off."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = f"{folder}/profile"
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        for _ in range(CALLS):
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text())
    durations: defaultdict[str, list[float]] = defaultdict(list)
    for event in events:
        if event["cat"] == "Node" and event["name"].endswith("_kernel_time"):
            durations[event["name"].removesuffix("_kernel_time")].append(event["dur"])
    return {name: statistics.median(values) for name, values in durations.items()}


def judged(
    graph: Graph, layers: list[set[str]], names: list[str], times: dict[str, float]
) -> Counter[str]:
    """Return time by outcome and by rule, of the nodes whose true layer is known."""
    outcome: Counter[str] = Counter()
    for node, right, name in zip(graph.nodes, layers, names, strict=True):
        seconds = times.get(name, 0.0)
        outcome["nodes"] += seconds
        if not right or not seconds:
            continue
        outcome["all"] += seconds
        outcome[node.rule] += seconds
        if node.layer in right:
            outcome["right"] += seconds
        elif node.layer in {layer.rpartition(".")[0] for layer in right}:
            outcome["above"] += seconds
        elif node.layer is None:
            outcome["unknown"] += seconds
    return outcome


def main() -> None:
    """Print a line for each file, and the shares of all by exporter and degree."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    totals: defaultdict[tuple[str, str], list[Counter[str]]] = defaultdict(list)
    torch.set_num_threads(1)
    for path in sorted(options.folder.glob("*.onnx")):
        if options.only not in path.name:
            continue
        graph = read_graph(path)
        model, value = built(path.name.rsplit(".", 2)[0])
        feed = {graph.inputs[0]: value.numpy()}
        true = Origins(graph, recorded(model, value), values_of(path, feed))
        layers = [true.layers(index) for index in range(len(graph.nodes))]
        times, names = node_times(path, feed), [node.name for node in graph.nodes]
        line = []
        for degree, change in DEGREES.items():
            outcome = judged(with_layers(change(graph)), layers, names, times)
            totals[path.name.split(".")[-2], degree].append(outcome)
            right, above = (outcome[key] / (outcome["all"] or 1) for key in ("right", "above"))
            line.append(f"{degree} {right:.1%} (+{above:.1%})")
        judged_share = outcome["all"] / (outcome["nodes"] or 1)
        print(f"{path.name:45} {'; '.join(line)}; judged {judged_share:.1%}", flush=True)
    for (exporter, degree), outcomes in totals.items():
        shares = {
            key: statistics.mean(outcome[key] / (outcome["all"] or 1) for outcome in outcomes)
            for key in ("right", "above", "unknown", "weights", "metadata", "names", "neighbours")
        }
        worst = min(outcome["right"] / (outcome["all"] or 1) for outcome in outcomes)
        judged_share = statistics.mean(o["all"] / (o["nodes"] or 1) for o in outcomes)
        print(
            f"{exporter:6} {degree:16} {len(outcomes)} files: "
            + ", ".join(f"{key} {share:.1%}" for key, share in shares.items() if share)
            + f"; worst right {worst:.1%}, judged {judged_share:.1%}"
        )


if __name__ == "__main__":
    main()
