"""`FILE.onnx`: a graph with its inputs; nothing of it runs while it is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from torchgauge.analyze.onnx.layers import with_layers
from torchgauge.analyze.onnx.node_work import with_work
from torchgauge.errors import InputError
from torchgauge.readers.onnx.onnx_file import read_graph
from torchgauge.records.onnx.graph import Graph, TensorType
from torchgauge.targets.inputs.content import TOKEN_INPUTS
from torchgauge.targets.inputs.fake_tensors import RandomTensors
from torchgauge.targets.inputs.input_spec import DTYPES, InputSpec, parse_all
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.runtimes.runtime_model import RuntimeModel
from torchgauge.targets.runtimes.runtime_options import RuntimeOptions
from torchgauge.targets.target import Target, TargetRequest


def open_runtime(path: Path, options: RuntimeOptions) -> RuntimeModel:
    """Return the file in its runtime; raises as the runtimes' own classes do."""
    if options.runtime == "openvino":
        from torchgauge.targets.runtimes.openvino_model import OpenVinoModel

        return OpenVinoModel(path, options)
    from torchgauge.targets.runtimes.onnx_session import OnnxSession

    return OnnxSession(path, options)


KIND = "onnx"


class NotRunning:
    """The callable of a graph that no runtime has opened: it is counted, and cannot be called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Raise InputError `target-not-running`."""
        raise InputError(
            f"{self.name} is counted here, and not run.",
            id="target-not-running",
            remedy="Count it without --device, or profile it.",
        )


def load(request: TargetRequest, path: Path) -> Target:
    """Return the graph in a file with random inputs of the sizes that are given or fixed.

    Raises:
        InputError: as `read_graph` and `open_runtime`, `onnx-free-dimensions`, `input-spec`,
            `onnx-input-type`, `weights-no-module`.
        MissingExtraError: onnx or the runtime is not installed.
    """
    specs = [spec.with_batch(request.batch) for spec in parse_all(request.inputs)]
    graph = read_graph(
        path,
        {spec.name: spec.shape for spec in specs if spec.name is not None},
        [spec.shape for spec in specs if spec.name is None],
        request.batch,
    )
    inputs = _inputs(graph, specs, request, path)
    return Target(
        model=NotRunning(path.name)
        if request.device == "meta"
        else open_runtime(path, request.runtime),
        inputs=inputs,
        spec=request.spec,
        kind=KIND,
        name=path.stem,
        weights=f"from {', '.join(graph.files)}",
        files=tuple(path.parent / file for file in graph.files),
        graph=with_work(with_layers(graph)),
    )


def _inputs(graph: Graph, specs: Sequence[InputSpec], request: TargetRequest, path: Path) -> Inputs:
    """Return a tensor for each input; one alone is positional unless its name says that it counts.

    A spec gives the bound of whole numbers, and may repeat the element type. What is only counted
    needs no values: inputs of other types are left out, and all where the caller has them.
    """
    counted, draw = request.device == "meta", RandomTensors(request.device)
    names = [name for name in graph.inputs if graph.values[name].dtype in DTYPES]
    if not counted and not request.own_inputs and len(names) < len(graph.inputs):
        name = next(name for name in graph.inputs if name not in names)
        raise _unfit_type(path, name, graph.values[name], None)
    _check_sizes(graph, path)
    if request.own_inputs:
        return Inputs()
    named = {spec.name: spec for spec in specs if spec.name is not None}
    positional = [spec for spec in specs if spec.name is None]
    unnamed = [name for name in graph.inputs if name not in named]
    named |= dict(zip(unnamed, positional, strict=False))
    tensors = {}
    for name in names:
        kind = graph.values[name]
        spec = named.get(name)
        if spec and spec.dtype not in (None, kind.dtype):
            raise _unfit_type(path, name, kind, spec)
        high = spec.high if spec else None
        tensors[name] = InputSpec(name, kind.sizes or (), kind.dtype, high).tensor(draw)
    if len(tensors) == 1 and next(iter(tensors)) not in TOKEN_INPUTS:
        return Inputs(args=tuple(tensors.values()))
    return Inputs(kwargs=tensors)


def _check_sizes(graph: Graph, path: Path) -> None:
    """Raise InputError `onnx-free-dimensions` where a size is not known."""
    tensors = {name: graph.values[name] for name in graph.inputs if graph.values[name].dtype}
    free = {name: kind for name, kind in tensors.items() if kind.sizes is None}
    if not free:
        return
    shapes = "; ".join(f"{name} is {_written(kind)}" for name, kind in free.items())
    name, kind = next(iter(free.items()))
    example = "x".join("1" if not isinstance(n, int) else str(n) for n in kind.shape or (1,))
    prefix = f"{name}=" if name.isidentifier() and len(graph.inputs) > 1 else ""
    raise InputError(
        f"{path} has inputs with free dimensions, and no sizes are given for them.",
        id="onnx-free-dimensions",
        cause=f"{shapes}.",
        remedy=f"Give the sizes, for example --input {prefix}{example}; --batch N sets every "
        "free first dimension.",
    )


def _written(kind: TensorType) -> str:
    if kind.shape is None:
        return "of unknown shape"
    return "x".join("?" if size is None else str(size) for size in kind.shape)


def _unfit_type(path: Path, name: str, kind: TensorType, spec: InputSpec | None) -> InputError:
    if spec is None or kind.dtype not in DTYPES:
        cause = f"It takes {kind.dtype or 'no tensor'}, of which no random values are made."
    else:
        cause = f"It takes {kind.dtype}, and --input says {spec.dtype}."
    return InputError(
        f"The input {name!r} of {path} cannot be made.",
        id="onnx-input-type",
        cause=cause,
        remedy="Leave the element type out of --input."
        if kind.dtype in DTYPES
        else "Give the values in Python, tg.profile(FILE, inputs), or profile the part that takes "
        "tensors of numbers.",
    )
