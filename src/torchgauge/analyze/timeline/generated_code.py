"""Kernels in the code that torch's compiler generates: their names, operators and source nodes.

Above a kernel's call the code names what it was made from, but not for fused kernels of the CPU:
those have their operators in their names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_IDENTITY = re.compile(r"^# AOT ID: \['(\d+)_(\w+)'\]", re.MULTILINE)
_SOURCE = re.compile(r"^\s+# .*Source Nodes: \[([^\]]*)\], Original ATen: \[([^\]]*)\]")
_HANDLE = re.compile(r"^\s+# \[Provenance debug handles\] (\S+)")
_CALL = re.compile(
    r"^\s+(?:\w+ = )?(extern_kernels\.\w+|torch\.ops\.[\w.]+|(?:cpp|triton)_\w+?)(?:\.run)?\("
)
_FUSED = re.compile(r"(?:cpp|triton(?:_[a-z]+)?)_fused_(\w+?)_\d+")


class KernelCall(NamedTuple):
    """A kernel as the code calls it.

    Attributes:
        nodes: Nodes of the traced program; () where the code names none.
        line: The number of the line.
        handle: By what Inductor's table of sources names this call; "" without such a table.
    """

    name: str
    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    line: int
    handle: str = ""


def identity(text: str) -> tuple[int, str] | None:
    """Return the number of the graph that the code is of, and "forward", "backward" or such."""
    match = _IDENTITY.search(text)
    return (int(match[1]), match[2]) if match else None


def kernel_calls(text: str, is_operator: Callable[[str], bool]) -> list[KernelCall]:
    """Return the calls in their order; `is_operator` knows the names that a fused one is made of.

    Raises nothing for code of another form: it has no calls then.
    """
    calls = []
    source: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    handle = ""
    for number, line in enumerate(text.splitlines(), 1):
        if source_match := _SOURCE.match(line):
            source = _listed(source_match[1]), _listed(source_match[2])
        elif handle_match := _HANDLE.match(line):
            handle = handle_match[1]
        elif call := _CALL.match(line):
            nodes, operators = source or ((), _in_name(call[1], is_operator))
            calls.append(KernelCall(call[1], operators, nodes, number, handle))
            source, handle = None, ""
    return calls


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _in_name(name: str, is_operator: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the operators that a fused kernel's name joins; an unknown word stands for itself."""
    fused = _FUSED.fullmatch(name)
    words = fused[1].split("_") if fused else []
    operators, index = [], 0
    while index < len(words):
        ends = range(len(words), index + 1, -1)
        parts = ((end, "_".join(words[index:end])) for end in ends)
        end, part = next(
            ((end, part) for end, part in parts if is_operator(part)), (index + 1, words[index])
        )
        if part:
            operators.append(f"aten.{part}")
        index = end
    return tuple(operators)
