"""A recorded call of an operator, made again from its sizes, types and strides, and timed here.

Nothing of the file is run: its name must be one of torch's own operators that has a formula or a
kind here, and the values of its tensors are made up: random fractions, zeros as whole numbers, so
that indices exist.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from torchgauge.analyze.work.recorded_work import arguments
from torchgauge.errors import InputError
from torchgauge.formulas.kinds import kind
from torchgauge.formulas.operand import Described, MissingValue
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.plan import measure_latency
from torchgauge.progress import Progress
from torchgauge.records.trace.replay import RecordedCall, Replay
from torchgauge.targets.builds.source import Source

MOST_OF_MEMORY = 0.5  # of what is free, for the tensors of a call
REMEDY = "Choose another call; the tables name the operators that take most of the time."


class _BoundOperator(NamedTuple):
    """An operator with arguments that fit its schema."""

    overload: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Misfit(Exception):  # noqa: N818 - it leaves no caller
    """The recorded arguments are not those of an overload; the message says which."""


def replayed(call: RecordedCall, device: str, budget: float, progress: Progress) -> Replay:
    """Return the call's time on "cpu" or "cuda:0".

    Raises InputError `operator-not-replayable` where it cannot be made again, with the cause, and
    `operator-too-large` where its tensors need more than half of the free memory.
    """
    operands = arguments(call.dims, call.types, call.strides, call.inputs)
    _check_size(call, operands, device)
    bound = _bound_operator(call, operands, device)

    def run() -> Any:
        with torch.no_grad():
            return bound.overload(*bound.args, **bound.kwargs)

    try:
        run()
    except Exception as error:  # torch's kernels raise anything
        raise _refusal(call, f"torch refused its arguments: {error}".splitlines()[0]) from error
    source = Source.of_object(run, (), device=device)
    latency = measure_latency(source, LatencyOptions(processes=1, budget=budget), progress)
    return Replay(
        call=call,
        overload=str(bound.overload),
        on=device_name(device),
        latency=latency,
        notes=tuple(_notes(call, bound)),
    )


def device_name(device: str) -> str:
    """Return what "cpu" or "cuda:0" is called here."""
    return "CPU" if device == "cpu" else torch.cuda.get_device_name(device)


def _bound_operator(call: RecordedCall, operands: Sequence[Any], device: str) -> _BoundOperator:
    namespace, _, name = call.name.partition("::")
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None) if namespace == "aten" else None
    if packet is None or kind(call.name) == "unknown":
        raise _refusal(call, "It is not one of torch's operators that are known here.")
    overloads = [overload] if overload in packet.overloads() else packet.overloads()
    misfits = []
    for chosen in overloads:
        candidate = getattr(packet, chosen)
        try:
            return _BoundOperator(candidate, *_bound(candidate, call, operands, device))
        except _Misfit as misfit:
            misfits.append(f"{misfit}")
    raise _refusal(call, misfits[0] if misfits else "It has no overload here.")


def _bound(
    overload: Any, call: RecordedCall, operands: Sequence[Any], device: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments that fit the overload's schema; raises _Misfit where they do not."""
    parameters = overload._schema.arguments  # noqa: SLF001 - torch has no other way to it
    if len(parameters) != len(operands):
        raise _Misfit(f"It has {len(operands)} arguments, and {overload} takes {len(parameters)}.")
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for parameter, operand, type_ in zip(parameters, operands, call.types, strict=True):
        value = _value(parameter, operand, type_, device)
        if parameter.kwarg_only:
            kwargs[parameter.name] = value
        else:
            args.append(value)
    return tuple(args), kwargs


def _value(parameter: Any, operand: Any, recorded_type: str, device: str) -> Any:
    schema_type = str(parameter.type)
    is_tensor = isinstance(operand, Described)
    if "List[" in schema_type and "Tensor" in schema_type:
        raise _Misfit(f"The file does not have the types in the list '{parameter.name}'.")
    if is_tensor != ("Tensor" in schema_type) and operand is not None:
        raise _Misfit(f"Its argument '{parameter.name}' has another kind.")
    if is_tensor:
        return _tensor(operand, device)
    if operand is None or (isinstance(operand, MissingValue) and not recorded_type):
        return _absent(parameter, schema_type)
    if isinstance(operand, MissingValue):
        raise _Misfit(f"The file does not have the value of '{parameter.name}'.")
    return operand


def _absent(parameter: Any, schema_type: str) -> Any:
    """Return what stands for an argument that is empty in the file: None, text, a device."""
    if parameter.has_default_value():
        return parameter.default_value
    if schema_type.startswith("Optional["):
        return None
    raise _Misfit(f"The file does not have the value of '{parameter.name}'.")


def _tensor(operand: Described, device: str) -> torch.Tensor:
    dtype = getattr(torch, operand.dtype, None)
    if not isinstance(dtype, torch.dtype) or min((*operand.shape, *operand.stride(), 0)) < 0:
        raise _Misfit(f"There is no tensor of sizes {operand.shape} and type {operand.dtype}.")
    elements = _span(operand)
    if dtype.is_floating_point and dtype.itemsize > 1:
        flat = torch.rand(elements, device=device).to(dtype)
    else:
        flat = torch.zeros(elements, dtype=dtype, device=device)
    return flat.as_strided(operand.shape, operand.stride())


def _span(operand: Described) -> int:
    """Return the elements from the first to the last; 0 of a tensor without any."""
    if 0 in operand.shape:
        return 0
    steps = zip(operand.shape, operand.stride(), strict=True)
    return 1 + sum((size - 1) * step for size, step in steps)


def _check_size(call: RecordedCall, operands: Sequence[Any], device: str) -> None:
    tensors = [operand for operand in operands if type(operand) is Described]
    needed = sum(_span(operand) * max(operand.itemsize, 4) for operand in tensors)
    free = free_memory(device)
    if needed > MOST_OF_MEMORY * free:
        raise InputError(
            f"{call.name}#{call.number} needs {needed:,} bytes for its arguments.",
            id="operator-too-large",
            cause=f"{free:,} bytes are free on {device}, and at most half of them are used.",
            remedy="Replay it on a device with more memory (--device).",
        )


def free_memory(device: str) -> int:
    """Return the bytes that are free on a device."""
    if device != "cpu":
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _notes(call: RecordedCall, bound: _BoundOperator) -> list[str]:
    texts = [
        parameter.name
        for parameter, text, type_ in zip(
            bound.overload._schema.arguments,  # noqa: SLF001
            call.inputs or ("",) * len(call.types),
            call.types,
            strict=False,
        )
        if not text and not type_ and str(parameter.type) == "str"
    ]
    notes = ["Values are made up: time that depends on them (indices, sparsity) may differ."]
    if call.strides is None:
        notes.append("The file has no strides: tensors are contiguous.")
    if texts:
        notes.append(f"The file has no text: {', '.join(texts)} as torch's default.")
    return notes


def _refusal(call: RecordedCall, cause: str) -> InputError:
    return InputError(
        f"{call.name}#{call.number} cannot be replayed.",
        id="operator-not-replayable",
        cause=cause,
        remedy=REMEDY,
    )
