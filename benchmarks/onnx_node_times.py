"""Compares node times of ONNX files with the truth: bare runs of the graph cut after each segment.

    python -m benchmarks.onnx_node_times

The truth of a segment is what a bare call of the graph up to its end takes longer than one up to
its begin; all these sessions take turns. Beside it: what ONNX Runtime's profile says of the
segment as it stands, and what torchgauge makes of it. OpenVINO's counters of the whole graph are
printed beside. All in points of the share of the call.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from torchgauge.analyze.timeline.node_times import node_times
from torchgauge.errors import InputError
from torchgauge.measure.timeline.recording_cost import recording_cost
from torchgauge.readers.onnxruntime_profile import RecordedCalls, read_profile
from torchgauge.targets.runtimes.onnx_session import OnnxSession
from torchgauge.targets.runtimes.openvino_model import OpenVinoModel
from torchgauge.targets.runtimes.runtime_options import RuntimeOptions

ROUNDS, CALLS, SEGMENTS = 40, 10, 5
QUICK = 0.25


class Case(NamedTuple):
    """A graph, its input, and the values after which it is cut."""

    name: str
    path: Path
    inputs: torch.Tensor
    cuts: list[str]


def product(folder: Path, tiny: int, width: int) -> Case:
    """Return a chain of tiny nodes around one product."""
    nodes, value = [], "x"
    weight = helper.make_tensor(
        "w", TensorProto.FLOAT, [width, width],
        np.random.default_rng(0).standard_normal((width, width), np.float32).tobytes(), raw=True,
    )  # fmt: skip
    for number in range(tiny):
        operator = "MatMul" if number == tiny // 2 else "Tanh"
        inputs = [value, "w"] if operator == "MatMul" else [value]
        nodes.append(helper.make_node(operator, inputs, [f"v{number}"], name=f"n{number}"))
        value = f"v{number}"
    sides = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, width])] for n in ("x", value)
    ]
    graph = helper.make_graph(nodes, "product", sides[0], sides[1], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / f"product{tiny}_{width}.onnx"
    onnx.save(model, path)
    middle = tiny // 2
    cuts = [f"v{middle - 1}", f"v{middle}", value]
    return Case(f"{tiny} nodes, one a product of {width}²", path, torch.randn(1, width), cuts)


def exported(folder: Path, name: str, model: torch.nn.Module, inputs: torch.Tensor) -> Case:
    """Return an exported model, cut into segments where a single value goes on."""
    path = folder / f"{name}.onnx"
    torch.onnx.export(model.eval(), (inputs,), path, dynamo=False, opset_version=17)
    inferred = onnx.shape_inference.infer_shapes(onnx.load(path))
    onnx.save(inferred, path)
    nodes = inferred.graph.node
    stored = {tensor.name for tensor in inferred.graph.initializer}
    last = {name: index for index, node in enumerate(nodes) for name in node.input}
    single = []
    for index, node in enumerate(nodes):
        alive = {
            output for before in nodes[: index + 1] for output in before.output
            if last.get(output, -1) > index and output not in stored
            and before.op_type not in ("Constant", "Identity")
        }  # fmt: skip
        if alive == set(node.output) and node.op_type not in ("Constant", "Identity"):
            single.append((index, node.output[0]))
    step = max(1, len(single) // SEGMENTS)
    cuts = [value for _, value in single[step - 1 :: step]][: SEGMENTS - 1]
    return Case(name, path, inputs, [*cuts, inferred.graph.output[0].name])


def run(case: Case, folder: Path) -> tuple[float, float]:
    """Print a case; return the largest errors of the raw and of the calibrated shares."""
    options = RuntimeOptions(optimization="off")
    sessions = [OnnxSession(path, options) for path in _prefixes(case, folder)]
    whole = sessions[-1]
    (place := folder / f"{case.path.stem}_record").mkdir()
    recording = whole.recording(place)
    calls: list[Callable[..., Any]] = [*sessions, recording]
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(10):
        for call in calls:
            call(case.inputs)
    for _ in range(ROUNDS):
        for call, seconds in zip(calls, times, strict=True):
            for _ in range(CALLS):
                begin = time.perf_counter()
                call(case.inputs)
                seconds.append(time.perf_counter() - begin)
    quick = [float(np.quantile(seconds, QUICK)) for seconds in times]
    file = read_profile(recording.end())
    recorded = RecordedCalls(file.nodes, file.calls[10:])
    (tiny := folder / f"{case.path.stem}_tiny").mkdir()
    cost = recording_cost(whole, tiny, time.perf_counter_ns)
    found = node_times(recorded, times[-2], cost, 2)
    segments = _segments(case, [node.name for node in recorded.nodes])
    total = quick[-2]
    truth = np.diff([quick[0], *quick[1:-1]]) / total
    raw_seconds = np.zeros(len(recorded.nodes))
    for call in recorded.calls:
        for node, _, duration in call.nodes:
            raw_seconds[node] += duration
    ours = _shares(found.seconds / float(np.median(times[-2])), segments)[1:]
    raw = _shares(raw_seconds / raw_seconds.sum(), segments)[1:]
    errors = [100 * np.abs(shares - truth).max() for shares in (raw, ours)]
    print(
        f"{case.name}: {len(recorded.nodes)} nodes, bare {total * 1e6:.0f} µs, recorded "
        f"{quick[-1] * 1e6:.0f} µs ({quick[-1] / total:.2f}×); {found.per_node * 1e6:.1f} µs a "
        f"node taken off, {found.calibrated * 1e6:.1f} of tiny nodes, scale {found.scale:.2f}"
    )
    for name, shares in (("truth", truth), ("profile", raw), ("torchgauge", ours)):
        print(f"  {name:11}", " ".join(f"{100 * share:6.1f}" for share in shares))
    print(f"  largest error: profile {errors[0]:.1f}, torchgauge {errors[1]:.1f} points")
    _openvino(case)
    return errors[0], errors[1]


def _prefixes(case: Case, folder: Path) -> list[Path]:
    paths = []
    first = onnx.load(case.path).graph.input[0].name
    for number, cut in enumerate(case.cuts[:-1]):
        path = folder / f"{case.path.stem}_{number}.onnx"
        onnx.utils.extract_model(str(case.path), str(path), [first], [cut], check_model=False)
        paths.append(path)
    return [*paths, case.path]


def _segments(case: Case, names: Sequence[str]) -> list[int]:
    """Return the segment of each recorded node, by where the file has it."""
    graph = onnx.load(case.path).graph
    ends = [
        next(number for number, node in enumerate(graph.node) if cut in node.output)
        for cut in case.cuts
    ]
    numbers = {
        name: number for number, node in enumerate(graph.node)
        for name in (node.name, f"{node.op_type}_{number}")
    }  # fmt: skip
    return [int(np.searchsorted(ends, numbers.get(name, 0))) for name in names]


def _shares(shares: np.ndarray, segments: Sequence[int]) -> np.ndarray:
    return np.bincount(segments, weights=shares, minlength=max(segments) + 1)


def _openvino(case: Case) -> None:
    try:
        model = OpenVinoModel(case.path, RuntimeOptions("openvino")).counting()
    except InputError as error:
        print(f"  OpenVINO: {error.cause[:90]}")
        return
    for _ in range(50):
        model(case.inputs)
    times = {}
    for counter in model.counters():
        if counter.seconds:
            times[counter.operator] = times.get(counter.operator, 0.0) + counter.seconds
    total = sum(times.values())
    largest = sorted(times.items(), key=lambda item: -item[1])[:4]
    text = ", ".join(f"{name} {100 * seconds / total:.0f} %" for name, seconds in largest)
    print(f"  OpenVINO's counters: {total * 1e6:.0f} µs in nodes: {text or 'all below 1 µs'}")


def main() -> None:
    """Run all cases with one thread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        import torchvision

        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        cases = [
            product(folder, 40, 512),
            product(folder, 200, 1024),
            exported(folder, "mobilenet_v3_small", torchvision.models.mobilenet_v3_small(),
                     torch.randn(1, 3, 64, 64)),
            exported(folder, "encoder", torch.nn.TransformerEncoder(
                layer, 3, enable_nested_tensor=False), torch.randn(1, 16, 64)),
            exported(folder, "resnet18", torchvision.models.resnet18(),
                     torch.randn(1, 3, 64, 64)),
        ]  # fmt: skip
        errors = [run(case, folder) for case in cases]
    raw, ours = (max(side) for side in zip(*errors, strict=True))
    print(f"largest error of all: profile {raw:.1f}, torchgauge {ours:.1f} points")


if __name__ == "__main__":
    main()
