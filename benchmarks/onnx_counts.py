"""FLOPs and parameters of exported models against those of the torch models.

    python -m benchmarks.onnx_counts --folder FOLDER   (as benchmarks.onnx_models wrote it)

Where FLOPs deviate by more than 0.5 %, or parameters at all, the operators say why: products and
vector work by torch operator beside those by ONNX operator.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from torchgauge.analyze.onnx.graph_cost import graph_cost
from torchgauge.analyze.onnx.graph_size import graph_size
from torchgauge.analyze.onnx.layers import with_layers
from torchgauge.analyze.onnx.node_work import with_work
from torchgauge.readers.onnx.onnx_file import read_graph
from torchgauge.records.work.cost import Cost

TOLERANCE = 0.005


def deviation(value: int, true: int) -> float:
    """Return the relative deviation."""
    return value / true - 1 if true else 0.0


def reasons(cost: Cost, truth: dict[str, Any]) -> str:
    """Return the operators with most vector work on both sides."""
    theirs = Counter({name: sums[2] for name, sums in truth["operators"].items()})
    ours = Counter({name: work.vector_flops for name, work in cost.by_operator().items()})
    sides = []
    for side, amounts in (("torch", theirs), ("onnx", ours)):
        parts = [f"{name.partition('::')[2]} {n / 1e6:.2f} M" for name, n in amounts.most_common(6)]
        sides.append(f"{side}: {', '.join(parts)}")
    return "; ".join(sides)


def main() -> None:
    """Print a line for each file, and how many deviate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    tally: defaultdict[str, Counter[str]] = defaultdict(Counter)
    worst: defaultdict[str, float] = defaultdict(float)
    for path in sorted(options.folder.glob("*.onnx")):
        if options.only not in path.name:
            continue
        name, exporter, _ = path.name.rsplit(".", 2)
        truth = json.loads((path.parent / f"{name}.json").read_text())
        graph = with_work(with_layers(read_graph(path)))
        cost, size = graph_cost(graph), graph_size(graph)
        total = deviation(cost.flops, truth["flops"])
        products = deviation(cost.matmul_flops, truth["matmul_flops"])
        parameters = size.parameters - truth["parameters"]
        tally[exporter]["files"] += 1
        tally[exporter]["FLOPs within 0.5 %"] += abs(total) <= TOLERANCE
        tally[exporter]["products exact"] += cost.matmul_flops == truth["matmul_flops"]
        tally[exporter]["parameters exact"] += not parameters
        tally[exporter]["with unknown operators"] += cost.at_least
        worst[exporter] = max(worst[exporter], abs(total))
        why = reasons(cost, truth) if abs(total) > TOLERANCE else ""
        unknown = f" unknown {cost.unknown}" if cost.unknown else ""
        print(
            f"{path.name:45} FLOPs {total:+.2%} products {products:+.3%} parameters {parameters:+}"
            f" constants {size.buffers:,}{unknown} {why}",
            flush=True,
        )
    for exporter, counts in tally.items():
        print(f"{exporter}: {dict(counts)}, largest deviation of FLOPs {worst[exporter]:.2%}")


if __name__ == "__main__":
    main()
