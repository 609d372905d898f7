"""FLOPs and parameters of exported models against those of the torch models, by their causes.

    python -m benchmarks.onnx_counts --folder FOLDER   (as benchmarks.onnx_models wrote it)

Parameters are matched by value, in any order of their elements. What a file has less is a parameter
of the module that is in it no longer ("absent"), what it has more a tensor that the exporter
computed ("made"): a convolution with its normalisation folded into it loses the weight of the
convolution and both of the normalisation, and gains a weight and a bias. A tensor that torchgauge
counts as a parameter and is a buffer, or a constant of the code, or the reverse, is an error.

FLOPs are compared by torch operator: those of a node belong to the operator that it comes from, by
value too (`onnx_values.py`). Where all FLOPs deviate by more than 0.5 %, the operators that differ
most are named.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import torch
from benchmarks.onnx_models import built
from benchmarks.onnx_values import Origins, recorded, values_of
from torch import nn

import torchgauge as tg
from torchgauge.analyze.onnx.graph_size import graph_size, parameter_elements
from torchgauge.analyze.onnx.layers import with_layers
from torchgauge.analyze.onnx.node_work import graph_cost, with_work
from torchgauge.readers.onnx.onnx_file import read_graph
from torchgauge.records.onnx.graph import Graph
from torchgauge.records.work.cost import Cost

TOLERANCE, DIGITS, NAMED = 0.005, 1e-9, 3


class Tensors(NamedTuple):
    """Elements of parameters by what became of them."""

    absent: Counter[str]  # by the class of the module
    made: Counter[str]  # by the operator that reads them
    wrong: Counter[str]  # by what they are


def fingerprint(array: np.ndarray) -> tuple[int, float, float]:
    """Return what is the same for a tensor in any order of its elements."""
    values = array.astype(np.float64).reshape(-1)
    return values.size, float(values.sum()), float(np.square(values).sum())


def same(a: tuple[int, float, float], b: tuple[int, float, float]) -> bool:
    """Return whether two fingerprints are of the same elements."""
    squares = max(a[2], b[2])
    sums_agree = abs(a[1] - b[1]) <= DIGITS * math.sqrt(a[0] * squares)
    return a[0] == b[0] and sums_agree and abs(a[2] - b[2]) <= DIGITS * squares


def compared(path: Path, graph: Graph, model: nn.Module) -> Tensors:
    """Return what became of the parameters of a module in a file."""
    counted = parameter_elements(graph)
    module = [
        (type(owner).__name__, is_parameter, fingerprint(tensor.detach().numpy()))
        for owner in model.modules()
        for is_parameter, tensors in (
            (True, owner.parameters(False)),
            (False, owner.buffers(False)),
        )
        for tensor in tensors
        if tensor.is_floating_point()
    ]
    readers = {name: node.operator for node in graph.nodes for name in node.inputs}
    result = Tensors(Counter(), Counter(), Counter())
    matched: set[int] = set()
    for tensor in onnx.load(path).graph.initializer:
        size = math.prod(tensor.dims)
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype.kind != "f":
            continue
        own = fingerprint(array)
        equal = [n for n, (_, _, other) in enumerate(module) if same(own, other)]
        matched.update(equal)
        is_parameter = any(module[n][1] for n in equal)
        reader = readers.get(tensor.name, "no node")
        if equal and is_parameter != (tensor.name in counted):
            result.wrong[f"{'parameter' if is_parameter else 'buffer'} of {reader}"] += size
        elif not equal and tensor.name in counted:
            result.made[reader] += size
    seen = set[tuple[int, float, float]]()
    for number, (kind, is_parameter, own) in enumerate(module):
        if is_parameter and number not in matched and own not in seen:
            result.absent[kind] += own[0]
        seen.add(own)
    return result


def flops_by_operator(graph: Graph, cost: Cost, true: Origins) -> list[str]:
    """Return the torch operators whose FLOPs differ most, with what the file has in their place."""
    theirs = Counter({name: work.flops for name, work in cost.by_operator().items()})
    ours: Counter[str] = Counter()
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for index, node in enumerate(graph.nodes):
        operator = true.operator(index)
        name = "no operator" if operator is None else operator.name
        ours[name] += node.flops or 0
        kinds[name][node.operator] += node.flops or 0
    names = sorted({*theirs, *ours}, key=lambda name: -abs(theirs[name] - ours[name]))
    return [
        f"{name.partition('::')[2] or name} {theirs[name] / 1e6:.2f} → {ours[name] / 1e6:.2f} M"
        + f" ({', '.join(kind for kind, flops in kinds[name].most_common(4) if flops) or 'folded'})"
        for name in names[:NAMED]
        if theirs[name] != ours[name]
    ]


def main() -> None:
    """Print a line for each file, and how many deviate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tally: defaultdict[str, Counter[str]] = defaultdict(Counter)
    largest: defaultdict[str, float] = defaultdict(float)
    for path in sorted(options.folder.glob("*.onnx")):
        if options.only not in path.name:
            continue
        name, exporter, _ = path.name.rsplit(".", 2)
        model, value = built(name)
        graph = with_work(with_layers(read_graph(path)))
        theirs, ours = tg.count_cost(model, value), graph_cost(graph)
        size, parameters = graph_size(graph), sum(p.numel() for p in model.parameters())
        tensors = compared(path, graph, model)
        explained = tensors.made.total() - tensors.absent.total()
        total = ours.flops / theirs.flops - 1
        parts = [f"{path.name}: FLOPs {total:+.2%}, parameters {size.parameters - parameters:+,}"]
        for label, amounts in tensors._asdict().items():
            if amounts:
                parts.append(f"{label} {', '.join(f'{k} {n:,}' for k, n in amounts.items())}")
        if abs(total) > TOLERANCE:
            feed = {graph.inputs[0]: value.numpy()}
            true = Origins(graph, recorded(model, value), values_of(path, feed))
            parts.append("FLOPs: " + ", ".join(flops_by_operator(graph, theirs, true)))
        if ours.unknown:
            parts.append(f"unknown {ours.unknown}")
        print("; ".join(parts), flush=True)
        tally[exporter]["files"] += 1
        tally[exporter]["products exact"] += ours.matmul_flops == theirs.matmul_flops
        tally[exporter]["FLOPs within 0.5 %"] += abs(total) <= TOLERANCE
        tally[exporter]["parameters equal"] += size.parameters == parameters
        tally[exporter]["parameters explained"] += size.parameters - parameters == explained
        tally[exporter]["with a wrong tensor"] += bool(tensors.wrong)
        tally[exporter]["with unknown operators"] += ours.at_least
        largest[exporter] = max(largest[exporter], abs(total))
    for exporter, counts in tally.items():
        print(f"{exporter}: {dict(counts)}, largest deviation of FLOPs {largest[exporter]:.2%}")


if __name__ == "__main__":
    main()
