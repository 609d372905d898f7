"""Compares node times of ONNX files with the truth: bare runs of the graph cut after each segment.

    python -m benchmarks.onnx_node_times

The truth of a segment is what a bare call of the graph up to its end takes longer than one up to
its begin; all these sessions take turns, before and after torchgauge measures. Beside it: what ONNX
Runtime's profile says of the segment as it stands, and what torchgauge makes of it. OpenVINO's
counters of the whole graph are printed beside. All in points of the share of the call.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from torchgauge.analyze.onnx.origins import graph_indices
from torchgauge.errors import InputError
from torchgauge.measure.effort import USUAL
from torchgauge.measure.timeline.profiled_nodes import ProfiledNodes, profile_nodes
from torchgauge.targets.builds.source import Source
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.runtimes.onnx_session import OnnxSession
from torchgauge.targets.runtimes.openvino_model import OpenVinoModel
from torchgauge.targets.runtimes.runtime_options import RuntimeOptions
from torchgauge.targets.target import TargetRequest

ROUNDS, CALLS, SEGMENTS = 40, 10, 5
QUICK = 0.25
CACHE_BYTES = 32 << 20  # of a usual last level


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


def run(case: Case, folder: Path) -> tuple[float, float, float]:
    """Print a case; return the largest error of profile, torchgauge, and the truth itself."""
    options = RuntimeOptions(optimization="off")
    paths = [*_prefixes(case, folder), case.path]
    sizes = [path.stat().st_size for path in paths]
    request = TargetRequest(str(case.path), runtime=options)
    placement = Source.of_request(request).open()
    placement = dataclasses.replace(placement, inputs=Inputs(args=(case.inputs,)))
    whole = placement.model
    assert isinstance(whole, OnnxSession)
    sessions = [*(OnnxSession(path, options) for path in paths[:-1]), whole]
    truths = [_truth(sessions, sizes, case.inputs)]
    profiled = profile_nodes(
        whole, placement, lambda: whole(case.inputs), USUAL, time.perf_counter_ns
    )
    truths.append(_truth(sessions, sizes, case.inputs))
    segments = _segments(case, profiled)
    raw_seconds = np.zeros(len(segments))
    for call in profiled.recorded.calls:
        for node, _, duration in call.nodes:
            raw_seconds[node] += duration
    times, bare = profiled.times, float(np.median(profiled.turns.bare))
    recorded = float(np.median(profiled.turns.instrumented))
    ours = _shares(times.seconds / bare, segments)[1:]
    raw = _shares(raw_seconds / raw_seconds.sum(), segments)[1:]
    truth = np.mean(truths, axis=0)
    errors = [100 * np.abs(shares - truth).max() for shares in (raw, ours)]
    repeat = 100 * np.abs(truths[0] - truths[1]).max()
    print(
        f"{case.name}: {len(segments)} nodes, bare {bare * 1e6:.0f} µs, recorded "
        f"{recorded * 1e6:.0f} µs ({recorded / bare:.2f}×); {times.per_node * 1e6:.1f} µs a "
        f"node taken off, {times.calibrated * 1e6:.1f} of tiny nodes, scale {times.scale:.2f}"
    )
    sides = (("truth", truths[0]), ("again", truths[1]), ("profile", raw), ("torchgauge", ours))
    for name, shares in sides:
        print(f"  {name:11}", " ".join(f"{100 * share:6.1f}" for share in shares))
    print(
        f"  largest error: profile {errors[0]:.1f}, torchgauge {errors[1]:.1f} points; the truth "
        f"repeats within {repeat:.1f}"
    )
    _openvino(case)
    return errors[0], errors[1], repeat


def _truth(
    sessions: Sequence[OnnxSession], sizes: Sequence[int], inputs: torch.Tensor
) -> np.ndarray:
    """Return the share of each segment but the first, by bare calls that take turns.

    A graph that is larger than the caches evicts the weights of its first nodes in each call.
    Before a part of it as many bytes are read as the rest has, so that the part finds them so, too.
    """
    is_large = sizes[-1] > CACHE_BYTES
    rests = [torch.ones(max(0, sizes[-1] - size) // 4 if is_large else 0) for size in sizes]
    times: list[list[float]] = [[] for _ in sessions]
    for _ in range(ROUNDS):
        for session, rest, seconds in zip(sessions, rests, times, strict=True):
            for _ in range(CALLS):
                if len(rest):
                    rest.sum()
                begin = time.perf_counter()
                session(inputs)
                seconds.append(time.perf_counter() - begin)
    quick = [float(np.quantile(seconds, QUICK)) for seconds in times]
    return np.diff(quick) / quick[-1]


def _prefixes(case: Case, folder: Path) -> list[Path]:
    """Write the graph up to each cut; only the shape of the value there is an output.

    The value itself would be copied, which takes as long as small nodes do.
    """
    paths = []
    model = onnx.load(case.path)
    first = model.graph.input[0].name
    for number, cut in enumerate(case.cuts[:-1]):
        path = folder / f"{case.path.stem}_{number}.onnx"
        onnx.utils.extract_model(str(case.path), str(path), [first], [cut], check_model=False)
        part = onnx.load(path)
        part.graph.node.append(helper.make_node("Shape", [cut], ["shape"], name="shape"))
        del part.graph.output[:]
        part.graph.output.append(helper.make_tensor_value_info("shape", TensorProto.INT64, None))
        onnx.save(part, path)
        paths.append(path)
    return paths


def _segments(case: Case, profiled: ProfiledNodes) -> list[int]:
    """Return the segment of each recorded node: the first whose graph up to its end has it.

    Where it stands does not say: a file may hand on all its stored weights first.
    """
    nodes = profiled.graph.nodes
    makers = {value: number for number, node in enumerate(nodes) for value in node.outputs}
    segments: dict[int, int] = {}
    for segment, cut in enumerate(case.cuts):
        needed = [cut]
        while needed:
            number = makers.get(needed.pop())
            if number is not None and number not in segments:
                segments[number] = segment
                needed.extend(nodes[number].inputs)
    indices = graph_indices(profiled.recorded.nodes, profiled.graph)
    return [segments[-1 if index is None else index] for index in indices]


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
    raw, ours, repeat = (max(side) for side in zip(*errors, strict=True))
    print(
        f"largest error of all: profile {raw:.1f}, torchgauge {ours:.1f} points; the truth "
        f"repeats within {repeat:.1f}"
    )


if __name__ == "__main__":
    main()
