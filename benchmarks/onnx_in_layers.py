"""Share of the time of ONNX files that is in layers, and whether layers add up to the run.

    python -m benchmarks.onnx_in_layers --folder FOLDER   (as benchmarks.onnx_models wrote it)

Each file runs in ONNX Runtime as it does by itself, fused and laid out anew, on one thread. Printed
are the share of a call's time that is in a layer below the model, by rule, in the model itself, and
outside of the nodes; and the sum of all rows over the bare call.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from pathlib import Path

import torch

from torchgauge.errors import TorchgaugeError
from torchgauge.measure.effort import QUICK
from torchgauge.measure.timeline import runtime_timeline
from torchgauge.targets.builds.source import Source
from torchgauge.targets.runtimes.runtime_options import RuntimeOptions
from torchgauge.targets.target import TargetRequest

EFFORT = dataclasses.replace(QUICK, recording=0.15)


def shares(path: Path, optimization: str | None) -> dict[str, float]:
    """Return the shares of a file's time."""
    request = TargetRequest(str(path), runtime=RuntimeOptions(optimization=optimization))
    measured = runtime_timeline.measure(Source.of_request(request).open(), effort=EFFORT)
    tree = measured.tree
    total = tree.root.total("host") or 1
    inside = dict.fromkeys(("layers", "model", "none", "outside"), 0)
    places: list[str] = []
    for row in tree.rows:
        if row.kind in ("model", "layer"):
            places.append("layers" if row.path else "model")
            if row.path == "(no layer)":
                places[-1] = "none"
        else:
            places.append("outside" if row.kind == "bucket" else places[row.parent])
            inside[places[-1]] += row.host or 0
    by_rule = {f"by {rule}": seconds * 1e9 for rule, seconds in measured.time_by_rule.items()}
    figures = {name: time / total for name, time in (inside | by_rule).items()}
    return figures | {"sum": total * 1e-9 / (tree.passes[0].bare or 1)}


def main() -> None:
    """Print a line for each file, and the shares of all by exporter."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--optimization")
    options = parser.parse_args()
    torch.set_num_threads(1)
    by_exporter: dict[str, list[dict[str, float]]] = {}
    for path in sorted(options.folder.glob("*.onnx")):
        if options.only not in path.name:
            continue
        try:
            figures = shares(path, options.optimization)
        except TorchgaugeError as error:
            print(f"{path.name}: {error.message} {error.cause}", flush=True)
            continue
        by_exporter.setdefault(path.name.split(".")[-2], []).append(figures)
        line = ", ".join(f"{name} {share:.1%}" for name, share in figures.items())
        print(f"{path.name}: {line}", flush=True)
    for exporter, files in by_exporter.items():
        print(
            f"{exporter}: {len(files)} files, in a layer {_mean(files, 'layers'):.1%} "
            f"(least {min(file['layers'] for file in files):.1%}), in the model itself "
            f"{_mean(files, 'model'):.1%}, in none {_mean(files, 'none'):.1%}, outside the nodes "
            f"{_mean(files, 'outside'):.1%}, sum over the bare call {_mean(files, 'sum'):.4f}"
        )


def _mean(files: list[dict[str, float]], name: str) -> float:
    return statistics.mean(file.get(name, 0.0) for file in files)


if __name__ == "__main__":
    main()
