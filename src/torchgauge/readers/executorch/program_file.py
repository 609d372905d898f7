"""Reads ExecuTorch programs (`.pte`): methods with their instructions, nothing of which runs.

It is read by the numbers of the fields in ExecuTorch's schema/program.fbs, so that neither torch
nor ExecuTorch is needed: importing its own reader takes some ten seconds.
"""

from __future__ import annotations

import itertools
import math
import struct
from pathlib import Path
from typing import Any, NamedTuple

from torchgauge.errors import InputError
from torchgauge.files import check_file
from torchgauge.readers.executorch.flatbuffer import ENTRY, Buffer, DamagedError, Table, root
from torchgauge.reading import Bound, too_large, unreadable
from torchgauge.records.onnx.graph import TensorType

# Of a program without what it stores, which follows in segments.
PROGRAM = Bound(minimum=1 << 28, times=0, maximum=1 << 28)
_MAGIC, _EXTENDED = b"ET", b"eh"
_HEADER = 24
DTYPES = {0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32",
          7: "float64", 8: "complex32", 9: "complex64", 10: "complex128", 11: "bool", 12: "qint8",
          13: "quint8", 14: "qint32", 15: "bfloat16", 22: "bits16", 23: "float8_e5m2",
          24: "float8_e4m3fn", 25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz", 27: "uint16",
          28: "uint32", 29: "uint64"}  # fmt: skip
MOST_DIMENSIONS, _MOST_BYTES = 64, 2**63  # of torch's tensors
_LARGEST_ITEM = 16
# Numbers of fields: of a program, an execution plan, a chain, and a tensor.
_PLANS = 1
_NAME, _VALUES, _INPUTS, _OUTPUTS, _CHAINS, _OPERATORS, _DELEGATES = 0, 2, 3, 4, 5, 6, 7
_INSTRUCTIONS = 2
_TYPE, _SIZES, _DATA, _PLANNED, _DYNAMISM = 0, 2, 5, 6, 8
# Kinds of values and of instructions.
_INT, _BOOL, _DOUBLE, _TENSOR, _STRING, _INTS, _DOUBLES, _BOOLS, _TENSORS, _OPTIONALS = range(2, 12)
_KERNEL, _DELEGATE, _, _JUMP = range(1, 5)
_UNBOUNDED = 2  # of the kinds of sizes: static, bounded, without a bound
DELEGATED = "delegate"  # what an instruction of a backend is called


class Tensor(NamedTuple):
    """A tensor of a method: `stored` in the file; `bounded`: its sizes are the largest.

    Equal constants have one `buffer`, which the file numbers from 1; 0 is none.
    """

    type: TensorType
    stored: bool
    bounded: bool
    buffer: int = 0


class Instruction(NamedTuple):
    """A call of an operator ("aten::addmm.out"), or of a backend's part; None of neither.

    `arguments` are values, tensors as `Tensor`, in the order of the operator's schema; then what it
    writes, and then what it returns.
    """

    operator: str | None
    arguments: tuple[Any, ...] = ()
    delegated: bool = False


class Method(NamedTuple):
    """One method of a program. With `branches`, which instructions run depends on values."""

    name: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    instructions: tuple[Instruction, ...]
    stored: tuple[Tensor, ...]
    branches: bool


def read_method(path: Path) -> Method:
    """Return the method "forward" of a program, or its first.

    Raises InputError `file-missing`, `pte-unreadable`, `file-too-large`.
    """
    check_file(path)
    try:
        plans = list(root(_program(path)).tables(_PLANS))
        methods = {plan.text(_NAME): plan for plan in plans}
        if not methods:
            raise DamagedError("It has no methods.")
        return _method(methods.get("forward", plans[0]))
    except (DamagedError, IndexError, struct.error) as error:
        raise InputError(
            f"{path} cannot be read as an ExecuTorch program.",
            id="pte-unreadable",
            cause=str(error) if isinstance(error, DamagedError) else "It refers to absent values.",
            remedy="Give what ExecutorchProgramManager.save wrote (schema ET12).",
        ) from error
    except OSError as error:
        raise unreadable(f"'{path}'", error) from error


def _program(path: Path) -> bytes:
    """Return the part of the file before the segments, which hold what it stores."""
    with path.open("rb") as file:
        header = file.read(_HEADER)
        if header[4:6] != _MAGIC:
            raise DamagedError("It does not begin as a program does.")
        size = path.stat().st_size
        if header[8:10] == _EXTENDED and len(header) == _HEADER:
            size = min(size, Buffer(header).number(16, "<Q"))
        limit = PROGRAM.limit_for(0)
        if size > limit:
            raise too_large(f"'{path}'", "Its program", limit)
        file.seek(0)
        return file.read(size)


def _method(plan: Table) -> Method:
    values = [_Value(table) for table in plan.tables(_VALUES)]
    operators = [".".join(filter(None, (o.text(0), o.text(1)))) for o in plan.tables(_OPERATORS)]
    backends = [backend.text(0) for backend in plan.tables(_DELEGATES)]
    instructions, branches = [], False
    for chain in itertools.islice(plan.tables(_CHAINS), 1):
        for table in chain.tables(_INSTRUCTIONS):
            kind, call = table.number(0, "<B"), table.table(1)
            branches |= kind == _JUMP
            if call is None or kind not in (_KERNEL, _DELEGATE):
                instructions.append(Instruction(None))
                continue
            names = operators if kind == _KERNEL else backends
            arguments = _arguments(values, call, 1)
            name = names[_index(call.number(0, "<i"), names)]
            instructions.append(Instruction(name, arguments, kind == _DELEGATE))
    tensors = [value.content(values) for value in values if value.kind == _TENSOR]
    return Method(
        plan.text(_NAME),
        _arguments(values, plan, _INPUTS),
        _arguments(values, plan, _OUTPUTS),
        tuple(instructions),
        tuple(tensor for tensor in tensors if isinstance(tensor, Tensor) and tensor.stored),
        branches,
    )


class _Value:
    """A value of a method, which is decoded once."""

    __slots__ = ("_content", "_table", "kind")

    def __init__(self, table: Table) -> None:
        self.kind, self._table = table.number(0, "<B"), table.table(1)
        self._content: Any = self

    def content(self, values: list[_Value]) -> Any:
        """Return what it is; lists have the values that they refer to."""
        if self._content is self:
            self._content = None if self._table is None else self._decoded(self._table, values)
        return self._content

    def _decoded(self, table: Table, values: list[_Value]) -> Any:
        if self.kind == _TENSOR:
            return _tensor(table)
        if self.kind == _INT:
            return table.number(0, "<q")
        if self.kind == _BOOL:
            return bool(table.number(0, "<B"))
        if self.kind == _DOUBLE:
            return table.real(0)
        if self.kind == _STRING:
            return table.text(0)
        if self.kind == _DOUBLES:
            return table.values(0, "d")
        if self.kind == _BOOLS:
            return tuple(map(bool, table.values(0, "B")))
        if self.kind in (_INTS, _TENSORS, _OPTIONALS):
            return _elements(values, table.values(0, "q" if self.kind == _INTS else "i"))
        return None


def checked_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes of a tensor. Raises DamagedError for those that none of torch has."""
    largest = math.prod(max(1, size) for size in sizes[:MOST_DIMENSIONS]) * _LARGEST_ITEM
    if len(sizes) > MOST_DIMENSIONS or largest > _MOST_BYTES or min(sizes, default=0) < 0:
        raise DamagedError("A tensor has sizes that are impossible.")
    return sizes


def _tensor(table: Table) -> Tensor:
    dynamism, dtype = table.number(_DYNAMISM, "<b"), DTYPES.get(table.number(_TYPE, "<b"), "")
    shape = checked_sizes(table.values(_SIZES, "i")) if dynamism < _UNBOUNDED else None
    buffer = table.number(_DATA, "<I")
    stored = buffer > 0 and table.table(_PLANNED) is None
    if stored and not dtype:
        raise DamagedError("It stores a tensor of an unknown element type.")
    return Tensor(TensorType(dtype=dtype, shape=shape), stored, dynamism > 0, buffer)


def _arguments(values: list[_Value], table: Table, field: int) -> tuple[Any, ...]:
    """Return the values that a field names; each use of a list counts as reading it."""
    arguments = tuple(
        None if index == -1 else values[_index(index, values)].content(values)
        for index in table.values(field, "i")
    )
    table.buffer.charge(ENTRY * sum(len(a) for a in arguments if type(a) is tuple))
    return arguments


def _elements(values: list[_Value], indices: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the elements of a list, of which none is a list."""
    elements = [None if index == -1 else values[_index(index, values)] for index in indices]
    if any(element is not None and element.kind >= _INTS for element in elements):
        raise DamagedError("A list holds a list.")
    return tuple(None if element is None else element.content(values) for element in elements)


def _index(index: int, values: list[Any]) -> int:
    if not 0 <= index < len(values):
        raise DamagedError("It refers to what is not in it.")
    return index
