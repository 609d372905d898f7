"""`FILE.pte`: a program of ExecuTorch; counted without running anything, run only with --trust."""

from __future__ import annotations

from pathlib import Path

from torchgauge.analyze.executorch.program_graph import program_graph
from torchgauge.errors import InputError
from torchgauge.readers.executorch.lowering_file import read_lowering
from torchgauge.readers.executorch.program_file import Method, Tensor, read_method
from torchgauge.targets.inputs.fake_tensors import RandomTensors
from torchgauge.targets.inputs.input_spec import DTYPES, InputSpec, parse_all
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.loaders.onnx_file import NotRunning
from torchgauge.targets.runtimes.runtime_model import ExecuTorchProgram
from torchgauge.targets.target import Target, TargetRequest


def load(request: TargetRequest, path: Path) -> Target:
    """Return the program in a file with random inputs of the sizes that it was exported for.

    Raises:
        InputError: as `read_method` and `read_lowering`, `untrusted-file`, `inputs-unfit`,
            `input-spec`, `model-not-opened`.
        MissingExtraError: executorch is not installed.
    """
    counted = request.device == "meta"
    if not counted and not request.trust:
        raise InputError(
            f"{path} was not run: a program can write anywhere in the memory of its process.",
            id="untrusted-file",
            cause="ExecuTorch's runtime checks that a file is whole, not what its program does.",
            remedy="If you trust the file, add --trust: it then runs in a process of its own. "
            "`torchgauge count TARGET` reads it without running it.",
        )
    method = read_method(path)
    lowering = None if request.etrecord is None else read_lowering(request.etrecord, method.name)
    specs = [spec.with_batch(request.batch) for spec in _specs(request, method, path)]
    sizes_known = _check_sizes(specs, method, path)
    graph = program_graph(path, method, lowering, sizes_known=sizes_known)
    draw = RandomTensors(request.device)
    tensors = [spec.tensor(draw) for spec in specs]
    return Target(
        model=NotRunning(path.name) if counted else ExecuTorchProgram(path, graph),
        inputs=Inputs(args=tuple(tensors)),
        spec=request.spec,
        kind="executorch",
        name=path.stem,
        weights=f"from {path.name}",
        files=(path,),
        graph=graph,
    )


def _specs(request: TargetRequest, method: Method, path: Path) -> list[InputSpec]:
    """Return a spec for each input: as requested, and of the type that the program takes."""
    requested = parse_all(request.inputs)
    if any(spec.name is not None for spec in requested) or len(requested) not in (
        0,
        len(method.inputs),
    ):
        raise InputError(
            f"{path} has {len(method.inputs)} inputs, by position alone.",
            id="inputs-unfit",
            remedy="Leave --input out, or give one for each, without names.",
        )
    specs = []
    for number, value in enumerate(method.inputs):
        kind = value.type if isinstance(value, Tensor) else None
        if kind is None or kind.dtype not in DTYPES:
            raise InputError(
                f"Input {number} of {path} cannot be made.",
                id="inputs-unfit",
                cause="It is not a tensor of numbers.",
                remedy="Lower the part of the model that takes tensors of numbers.",
            )
        spec = requested[number] if requested else InputSpec(None, kind.sizes or ())
        if (kind.sizes is None and not requested) or spec.dtype not in (None, kind.dtype):
            raise InputError(
                f"Input {number} of {path} needs a size, or another type.",
                id="inputs-unfit",
                cause=f"It takes {kind.dtype} of {kind.sizes or 'any sizes'}.",
                remedy="Give --input SIZES for each input, without a type.",
            )
        specs.append(InputSpec(None, spec.shape, kind.dtype, spec.high))
    return specs


def _check_sizes(specs: list[InputSpec], method: Method, path: Path) -> bool:
    """Return whether the inputs have the sizes that the program's tensors are planned for.

    Raises InputError `inputs-unfit` where it takes no others, or smaller ones alone.
    """
    as_planned = True
    for number, (spec, value) in enumerate(zip(specs, method.inputs, strict=True)):
        planned = value.type.sizes
        if planned is None or planned == spec.shape:
            as_planned &= planned is not None
            continue
        smaller = len(planned) == len(spec.shape) and all(map(int.__le__, spec.shape, planned))
        if not value.bounded or not smaller:
            sizes = "x".join(map(str, planned))
            raise InputError(
                f"Input {number} of {path} cannot be {'x'.join(map(str, spec.shape))}.",
                id="inputs-unfit",
                cause=f"It was exported for {'at most ' * value.bounded}{sizes}.",
                remedy="Leave --input and --batch out, or export it for other sizes.",
            )
        as_planned = False
    return as_planned
